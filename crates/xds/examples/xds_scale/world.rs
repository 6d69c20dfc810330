//! Backends, their Services and EndpointSlices, as documents that are there before anything is measured.

use std::net::SocketAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use oooi_api::proxy_server::ProxyServerSpec;
use oooi_proxy::assemble::Assembler;
use oooi_proxy::snapshot::Snapshot;
use serde_json::{Value, json};

use crate::Failure;

/// The server name of the backend that is real.
pub(crate) const NAME: &str = "real.bench.test";

pub(crate) struct World {
    spec: ProxyServerSpec,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
    assembler: Assembler,
}

impl World {
    pub(crate) fn new(
        backends: usize,
        endpoints: usize,
        port: u16,
        real: SocketAddr,
    ) -> Result<Self, Failure> {
        let backend = |name: &str| {
            json!({"name": name, "hostname": format!("{name}.bench.test"), "port": port, "targetService": name,
                "targetPort": 443, "targetNamespace": "bench"})
        };
        let service = |name: &str| {
            json!({"metadata": {"namespace": "bench", "name": name},
                "spec": {"ports": [{"port": 443, "name": "main", "protocol": "TCP"}]}})
        };
        let names: Vec<String> = (0..backends).map(|number| format!("b{number}")).collect();
        let all = || names.iter().map(String::as_str).chain(["real"]);
        let spec = json!({"networkConfig": {"serverIP": "127.0.0.1"}, "backends": all().map(backend).collect::<Vec<_>>()});
        let mut slices = Vec::new();
        for (number, name) in names.iter().enumerate() {
            // Nobody asks for these names, so nobody dials these addresses.
            let addresses = (0..endpoints).map(|one| format!("10.{}.{}.{one}", number / 250, number % 250));
            slices.push(slice(name, 8443, addresses)?);
        }
        slices.push(slice("real", real.port(), [real.ip().to_string()])?);
        Ok(Self {
            spec: serde_json::from_value(spec)?,
            services: all()
                .map(|name| serde_json::from_value(service(name)))
                .collect::<Result<_, _>>()?,
            slices,
            assembler: Assembler::default(),
        })
    }

    /// All documents, by an assembler that knew nothing.
    pub(crate) fn assemble(&self) -> Arc<Snapshot> {
        self.fill(&mut Assembler::default())
    }

    /// The same, to be changed afterwards.
    pub(crate) fn take_all(&mut self) -> Arc<Snapshot> {
        let mut assembler = Assembler::default();
        let snapshot = self.fill(&mut assembler);
        self.assembler = assembler;
        snapshot
    }

    fn fill(&self, assembler: &mut Assembler) -> Arc<Snapshot> {
        assembler.set_spec(&self.spec);
        self.services
            .iter()
            .for_each(|service| assembler.set_service(service));
        self.slices.iter().for_each(|slice| assembler.set_slice(slice));
        assembler.snapshot()
    }

    /// The real backend's endpoint is here from now on.
    pub(crate) fn move_to(&mut self, place: SocketAddr) -> Result<Arc<Snapshot>, Failure> {
        self.assembler
            .set_slice(&slice("real", place.port(), [place.ip().to_string()])?);
        Ok(self.assembler.snapshot())
    }
}

fn slice(
    service: &str,
    port: u16,
    addresses: impl IntoIterator<Item = String>,
) -> Result<EndpointSlice, Failure> {
    let endpoint = |address| json!({"addresses": [address], "conditions": {"ready": true}});
    let endpoints: Vec<Value> = addresses.into_iter().map(endpoint).collect();
    Ok(serde_json::from_value(json!({
        "metadata": {"namespace": "bench", "name": service, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"name": "main", "port": port, "protocol": "TCP"}], "endpoints": endpoints,
    }))?)
}
