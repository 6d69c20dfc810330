//! The native engine alone, as benchmarks run it: `gateway THREADS LISTEN NAME=ENDPOINT...`.
//!
//! Each name is a backend with one endpoint, on the port of LISTEN; the name `*` is plain TCP. It prints `ready` once it
//! listens and runs until it is ended.

use std::net::SocketAddr;
use std::sync::Arc;

use oooi_api::report::Recorded;
use oooi_proxy::assemble::Assembler;
use oooi_proxy::metrics::Metrics;
use oooi_proxy::server::{Options, Server};
use oooi_proxy::snapshot::Snapshot;
use serde_json::{Value, json};
use tokio::sync::watch;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(threads), Some(listen)) = (arguments.next(), arguments.next()) else {
        return Err("usage: gateway THREADS LISTEN NAME=ENDPOINT...".into());
    };
    let listen: SocketAddr = listen.parse()?;
    let mut options = Options::new(vec![listen.ip()]);
    options.threads = threads.parse()?;
    let snapshot = snapshot(listen, &arguments.collect::<Vec<_>>())?;
    let (_snapshots, receiver) = watch::channel(snapshot);
    let metrics = Metrics::default();
    let server = Server::new(options, metrics.clone(), Arc::new(Recorded::default()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let ready = async {
            while metrics.updates() == 0 {
                tokio::task::yield_now().await;
            }
            println!("ready");
            std::future::pending::<()>().await;
        };
        tokio::select! {
            result = server.run(receiver, std::future::pending()) => Ok(result?),
            () = ready => Ok(()),
        }
    })
}

/// Through the real parser and assembler.
fn snapshot(listen: SocketAddr, backends: &[String]) -> Result<Arc<Snapshot>, Failure> {
    let mut assembler = Assembler::default();
    let mut specs: Vec<Value> = Vec::new();
    for (index, backend) in backends.iter().enumerate() {
        let (name, endpoint) = backend.split_once('=').ok_or("a backend is NAME=ENDPOINT")?;
        let endpoint: SocketAddr = endpoint.parse()?;
        let service = format!("s{index}");
        specs.push(
            json!({"name": service, "hostname": name, "port": listen.port(), "targetService": service,
            "targetPort": 443, "targetNamespace": "bench"}),
        );
        let object = json!({"metadata": {"namespace": "bench", "name": service},
            "spec": {"ports": [{"port": 443, "name": "main", "protocol": "TCP"}]}});
        assembler.set_service(&serde_json::from_value(object)?);
        let slice = json!({"metadata": {"namespace": "bench", "name": service,
                "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": [{"name": "main", "port": endpoint.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [endpoint.ip().to_string()], "conditions": {"ready": true}}]});
        assembler.set_slice(&serde_json::from_value(slice)?);
    }
    let spec = json!({"networkConfig": {"serverIP": "127.0.0.1"}, "backends": specs});
    assembler.set_spec(&serde_json::from_value(spec)?);
    Ok(assembler.snapshot())
}
