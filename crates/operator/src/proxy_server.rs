//! ProxyServer → what runs it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use oooi_api::ProxyServer;
use oooi_api::proxy_server::{Protocol, ProxyEngine};
use oooi_api::report::ServerReport;
use oooi_plan::Mistake;
use serde_json::{Value, json};

use crate::condition::Finding;
use crate::context::Images;
use crate::identity::Role;
use crate::server::{Addresses, Applied, POD_IP, Probe, Server, Wants, attachment, config_map_name};

impl Server for ProxyServer {
    const ROLE: Role = Role::Proxy;
    const MANAGER: &'static str = "oooi-proxy-server";

    fn wants(&self, images: &Images) -> Result<Wants, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let (spec, network) = (&self.spec, &self.spec.network_config);
        let addresses = Addresses {
            first: &network.server_ip,
            others: &network.additional_server_ips,
            network: None,
            replicas: spec.replicas,
        };
        if spec.engine.unwrap_or_default() == ProxyEngine::Envoy {
            mistakes.push(Mistake {
                path: "spec.engine".into(),
                message: "the operator runs the built-in engine only so far: set it to Native".into(),
            });
        }
        let mut published = Vec::new();
        for text in &spec.published_ips {
            match text.parse() {
                Ok(address) => published.push(address),
                Err(_) => mistakes.push(Mistake {
                    path: "spec.publishedIPs".into(),
                    message: format!("`{text}` is no IPv4 address: write one such as 203.0.113.10"),
                }),
            }
        }
        let wants = Wants {
            attachment: attachment(network.attachment(), &mut mistakes),
            attachment_namespace: network.attachment_namespace().map(str::to_owned),
            addresses: addresses.read(&mut mistakes),
            published,
            image: images.choose(spec.manager_image.as_deref()),
            resources: spec.resources.clone(),
            arguments: vec!["--engine=native".to_owned(), format!("--listen={POD_IP}")],
            ports: ports(self),
            readiness: Probe {
                path: "/readyz",
                port: 9090,
            },
            claim: None,
            raw_sockets: false,
        };
        if mistakes.is_empty() {
            Ok(wants)
        } else {
            Err(mistakes)
        }
    }

    fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map_or(&[], |status| &status.conditions)
    }

    fn reports(&self) -> &[ServerReport] {
        self.status.as_ref().map_or(&[], |status| &status.servers)
    }

    fn status(&self) -> Value {
        json!(self.status.clone().unwrap_or_default())
    }

    fn further(&self, applied: &Applied) -> (Value, Vec<Finding>) {
        let mut fields = json!({
            "backendCount": self.spec.backends.len(),
            "configMapName": config_map_name(self),
            "deploymentName": self.name_any(),
            "serviceName": self.name_any(),
        });
        if let Some(address) = &applied.service_address {
            fields["serviceIP"] = json!(address);
        }
        (fields, Vec::new())
    }
}

/// What the Service offers: every port that a backend is published on, once a protocol.
fn ports(server: &ProxyServer) -> Vec<ServicePort> {
    let distinct: BTreeSet<(i32, &str)> = server
        .spec
        .backends
        .iter()
        .map(|backend| match backend.protocol {
            Protocol::Udp => (backend.port, "UDP"),
            Protocol::Tcp | Protocol::Tls | Protocol::Https => (backend.port, "TCP"),
        })
        .collect();
    distinct
        .into_iter()
        .map(|(port, protocol)| ServicePort {
            name: Some(format!("{}-{port}", protocol.to_lowercase())),
            port,
            protocol: Some(protocol.into()),
            target_port: Some(IntOrString::Int(port)),
            ..ServicePort::default()
        })
        .collect()
}
