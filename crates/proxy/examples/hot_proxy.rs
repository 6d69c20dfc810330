//! The hot functions of the gateway, to count their instructions: `hot_proxy hello|route COUNT` (see bench/regress.py).

use std::hint::black_box;

use oooi_proxy::client_hello::parse_client_hello;
use oooi_proxy::config::Config;
use oooi_proxy::route::Routes;
use oooi_proxy::server_name::ServerName;
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

/// A post-quantum hello: the largest that is common.
const HELLO: &[u8] = include_bytes!("../tests/hellos/go.bin");
const BACKENDS: usize = 100;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, count] = arguments.as_slice() else {
        return Err("usage: hot_proxy hello|route COUNT".into());
    };
    let count: usize = count.parse()?;
    match what.as_str() {
        "hello" => {
            for _ in 0..count {
                black_box(parse_client_hello(black_box(HELLO))?);
            }
        }
        "route" => {
            let Routes::ByName(names) = routes()? else {
                return Err("a port without names".into());
            };
            let name = ServerName::parse("grafana.apps.b50.example.com")?;
            for _ in 0..count {
                black_box(names.select(black_box(Some(&name))).map_err(|_| "no route")?);
            }
        }
        _ => return Err(format!("{what} is neither hello nor route").into()),
    }
    Ok(())
}

/// A port with an exact name and a wildcard for each of many backends.
fn routes() -> Result<Routes, Failure> {
    let backend = |number: usize| {
        json!({"name": format!("b{number}"), "hostname": format!("api.b{number}.example.com"), "port": 443,
            "alternateHostnames": [format!("*.apps.b{number}.example.com")],
            "targetService": "kube-apiserver", "targetPort": 443, "targetNamespace": "demo"})
    };
    let backends: Vec<Value> = (0..BACKENDS).map(backend).collect();
    let spec = json!({"networkConfig": {"serverIP": "192.0.2.4"}, "backends": backends});
    let (config, mistakes) = Config::read(&serde_json::from_value(spec)?);
    match mistakes.first() {
        Some(mistake) => Err(mistake.to_string().into()),
        None => Ok(Routes::of_port(config.backends.iter())),
    }
}
