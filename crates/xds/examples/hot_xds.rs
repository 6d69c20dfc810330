//! The hot path of the Envoy engine, to count its instructions: `hot_xds change COUNT` (see bench/regress.py).
//!
//! One endpoint of one backend among a thousand changes: slice, snapshot, resources, and what an Envoy is sent.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::discovery::v1::EndpointSlice;
use oooi_proxy::assemble::Assembler;
use oooi_xds::resources::{Kind, Resources};
use oooi_xds::stream::{Request, Stream, Variant};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

const BACKENDS: usize = 1000;
const GATEWAY: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ["change", count] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        return Err("usage: hot_xds change COUNT".into());
    };
    let mut assembler = Assembler::default();
    let backends: Vec<Value> = (0..BACKENDS).map(backend).collect();
    let spec = json!({"networkConfig": {"serverIP": "127.0.0.1"}, "backends": backends});
    assembler.set_spec(&serde_json::from_value(spec)?);
    for number in 0..BACKENDS {
        assembler.set_slice(&slice(number, 1)?);
    }
    let mut resources = Resources::next(&Resources::default(), &assembler.snapshot(), &GATEWAY);
    let mut stream = Stream::new(Variant::Delta);
    let names = (0..BACKENDS).map(|number| format!("b{number}")).collect();
    stream.request(request(Kind::Clusters, String::new(), vec![]), &resources);
    stream.request(request(Kind::Endpoints, String::new(), names), &resources);
    stream.request(request(Kind::Listeners, String::new(), vec![]), &resources);
    answer_all(&mut stream, &resources);
    let slices = [slice(500, 2)?, slice(500, 1)?];
    for turn in 0..count.parse::<usize>()? {
        assembler.set_slice(black_box(&slices[turn % 2]));
        resources = Resources::next(&resources, &assembler.snapshot(), &GATEWAY);
        let sent = answer_all(&mut stream, &resources);
        if sent != 1 || !stream.is_settled(&resources) {
            return Err(format!("{sent} resources were sent").into());
        }
    }
    Ok(())
}

/// Plays a client that accepts; how many resources it was sent.
fn answer_all(stream: &mut Stream, resources: &Resources) -> usize {
    let mut sent = 0;
    while let Some(response) = stream.next(resources) {
        sent += response.resources.len();
        stream.request(request(response.kind, response.nonce, vec![]), resources);
    }
    sent
}

fn request(kind: Kind, nonce: String, subscribe: Vec<String>) -> Request {
    Request {
        type_url: kind.type_url().to_owned(),
        nonce,
        subscribe,
        ..Request::default()
    }
}

fn backend(number: usize) -> Value {
    json!({"name": format!("b{number}"), "hostname": format!("b{number}.example"), "port": 443,
        "targetService": format!("s{number}"), "targetPort": 443, "targetNamespace": "demo"})
}

fn slice(number: usize, last: u8) -> Result<EndpointSlice, Failure> {
    let endpoints: Vec<Value> = (10..19)
        .chain([last])
        .map(|last| json!({"addresses": [format!("10.{}.{}.{last}", number / 250, number % 250)]}))
        .collect();
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": "demo", "name": format!("s{number}"),
            "labels": {"kubernetes.io/service-name": format!("s{number}")}},
        "addressType": "IPv4", "ports": [{"port": 8443}], "endpoints": endpoints,
    }))?)
}
