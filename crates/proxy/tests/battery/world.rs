//! The manifest of a test and its backends, put together through the real parser and assembler.

use std::net::SocketAddr;
use std::sync::Arc;

use oooi_proxy::assemble::Assembler;
use oooi_proxy::snapshot::Snapshot;
use serde_json::{Value, json};

/// Collects backends and makes snapshots of them.
#[derive(Default)]
pub struct World {
    pub assembler: Assembler,
    pub backends: Vec<Value>,
    pub idle_timeout: Option<&'static str>,
}

impl World {
    /// Publishes a backend of this name on `port`. Its Service has the same name, and these endpoints.
    pub fn publish(&mut self, name: &str, hostname: &str, port: u16, endpoints: &[SocketAddr]) -> &mut Self {
        self.publish_with(name, hostname, port, endpoints, json!({}))
    }

    /// The same with further fields of the backend.
    pub fn publish_with(
        &mut self,
        name: &str,
        hostname: &str,
        port: u16,
        endpoints: &[SocketAddr],
        more: Value,
    ) -> &mut Self {
        let mut backend = json!({"name": name, "hostname": hostname, "port": port, "targetService": name,
            "targetPort": 443, "targetNamespace": "demo"});
        for (key, value) in more.as_object().unwrap() {
            backend[key] = value.clone();
        }
        self.withdraw(name);
        self.backends.push(backend);
        let protocol = self.backends.last().unwrap()["protocol"]
            .as_str()
            .unwrap_or("TCP")
            .to_owned();
        let service = json!({"metadata": {"namespace": "demo", "name": name},
            "spec": {"ports": [{"port": 443, "name": "main", "protocol": protocol}]}});
        self.assembler
            .set_service(&serde_json::from_value(service).unwrap());
        self.endpoints(name, endpoints)
    }

    /// Removes a backend from the manifest.
    pub fn withdraw(&mut self, name: &str) -> &mut Self {
        self.backends.retain(|backend| backend["name"] != name);
        self
    }

    /// Replaces the endpoints of a Service: one slice for each, since their ports differ.
    pub fn endpoints(&mut self, name: &str, endpoints: &[SocketAddr]) -> &mut Self {
        let protocol = self.backends.iter().find(|backend| backend["name"] == name);
        let protocol = protocol
            .and_then(|b| b["protocol"].as_str())
            .unwrap_or("TCP")
            .to_owned();
        for index in 0..10 {
            self.assembler.remove_slice("demo", &format!("{name}-{index}"));
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            let slice = json!({"metadata": {"namespace": "demo", "name": format!("{name}-{index}"),
                    "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "ports": [{"name": "main", "port": endpoint.port(), "protocol": protocol}],
                "endpoints": [{"addresses": [endpoint.ip().to_string()], "conditions": {"ready": true}}]});
            self.assembler.set_slice(&serde_json::from_value(slice).unwrap());
        }
        self
    }

    /// What an engine gets now.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        let spec = json!({"networkConfig": {"serverIP": "127.0.0.1"}, "backends": self.backends,
            "idleTimeout": self.idle_timeout});
        self.assembler.set_spec(&serde_json::from_value(spec).unwrap());
        let snapshot = self.assembler.snapshot();
        assert_eq!(*snapshot.mistakes, [], "the tests' own manifest is good");
        snapshot
    }
}
