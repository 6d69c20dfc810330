//! ProxyServer → what runs it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use oooi_api::ProxyServer;
use oooi_api::proxy_server::{Protocol, ProxyBackend, ProxyEngine};
use oooi_api::report::ServerReport;
use oooi_plan::Mistake;
use serde_json::{Value, json};

use crate::condition::{Finding, PENDING};
use crate::context::Images;
use crate::identity::Role;
use crate::server::{
    Addresses, Applied, Envoy, Grant, POD_IP, Probe, Reading, Server, Target, Wants, attachment,
    config_map_name, time_to_end,
};

impl Server for ProxyServer {
    const ROLE: Role = Role::Proxy;
    const MANAGER: &'static str = "oooi-proxy-server";

    fn wants(&self, images: &Images, mistakes: &mut Vec<Mistake>) -> Wants {
        let (spec, network) = (&self.spec, &self.spec.network_config);
        let addresses = Addresses {
            first: &network.server_ip,
            others: &network.additional_server_ips,
            network: None,
            replicas: spec.replicas,
        };
        let addresses = addresses.read(mistakes);
        let envoy =
            (spec.engine.unwrap_or_default() == ProxyEngine::Envoy).then(|| envoy(self, images, mistakes));
        let mut arguments = vec![format!("--listen={POD_IP}")];
        match &envoy {
            Some(envoy) => arguments.extend([
                "--engine=envoy".to_owned(),
                "--external-envoy".to_owned(),
                format!("--xds-port={}", envoy.xds_port),
            ]),
            None => arguments.extend([
                "--engine=native".to_owned(),
                format!("--drain-time={}", time_to_end(addresses.len())),
            ]),
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
        Wants {
            attachment: attachment(network.attachment(), mistakes),
            attachment_namespace: network.attachment_namespace().map(str::to_owned),
            route_via: network.route_via.clone(),
            addresses,
            published,
            image: images.choose(spec.manager_image.as_deref()),
            // They are those of the data plane.
            resources: spec.resources.clone().filter(|_| envoy.is_none()),
            arguments,
            ports: ports(self),
            liveness: Probe::HEALTHZ,
            readiness: Probe::READYZ,
            envoy,
            claim: None,
            raw_sockets: false,
        }
    }

    fn image(&self) -> Option<&str> {
        self.spec.manager_image.as_deref()
    }

    fn grants(&self) -> Vec<Grant> {
        let namespaces: BTreeSet<&str> = self
            .spec
            .backends
            .iter()
            .map(|backend| backend.target_namespace.as_str())
            .collect();
        let grant = |namespace: &str| Grant {
            namespace: namespace.to_owned(),
            reading: Reading::Backends,
        };
        namespaces.into_iter().map(grant).collect()
    }

    fn targets(&self) -> Vec<Target> {
        let target = |backend: &ProxyBackend| Target {
            namespace: backend.target_namespace.clone(),
            service: backend.target_service.clone(),
            port: backend.target_port.clone(),
        };
        self.spec.backends.iter().map(target).collect()
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
        (
            fields,
            vec![endpoints_ready(self, applied), engine_accepted(self)],
        )
    }
}

/// The Envoy of a gateway. That nobody knows an image is a mistake.
fn envoy(server: &ProxyServer, images: &Images, mistakes: &mut Vec<Mistake>) -> Envoy {
    let spec = &server.spec;
    let image = images.choose_envoy(spec.proxy_image.as_deref()).unwrap_or_else(|| {
        mistakes.push(Mistake {
            path: "spec.proxyImage".into(),
            message: "no image of Envoy is known: name one, set RELATED_IMAGE_ENVOY for the manager, or set engine to \
                      Native"
                .into(),
        });
        String::new()
    });
    Envoy {
        image,
        resources: spec.resources.clone(),
        xds_port: spec.xds_port,
    }
}

/// Whether there is something behind every backend. The gateways know: they follow the endpoints.
fn endpoints_ready(server: &ProxyServer, applied: &Applied) -> Finding {
    const KIND: &str = "EndpointsReady";
    let missing: Vec<&str> = applied.missing.iter().map(String::as_str).collect();
    if !missing.is_empty() {
        let message = format!(
            "namespace {} does not exist: create the control plane, or correct targetNamespace of the backends",
            missing.join(", ")
        );
        return Finding::fails(KIND, "NamespaceMissing", message);
    }
    match lacking(server, "backendsWithoutEndpoints") {
        Some(message) => Finding::fails(KIND, "NoEndpoints", message),
        None if server.reports().is_empty() => {
            Finding::fails(KIND, PENDING, "no gateway has said anything yet")
        }
        None => Finding::holds(KIND, "EndpointsFound", "every backend has endpoints"),
    }
}

/// Whether the data plane took what it was given.
fn engine_accepted(server: &ProxyServer) -> Finding {
    const KIND: &str = "EngineAccepted";
    match lacking(server, "engineRefusals") {
        Some(message) => Finding::fails(KIND, "EngineRefused", message),
        None if server.reports().is_empty() => {
            Finding::fails(KIND, PENDING, "no gateway has said anything yet")
        }
        None => Finding::holds(KIND, "ConfigApplied", "the data plane took the configuration"),
    }
}

/// What a gateway says that counts something which there should be none of.
fn lacking(server: &ProxyServer, count: &str) -> Option<String> {
    let counts = |report: &&ServerReport| report.counts.get(count).is_some_and(|count| *count > 0);
    let report = server.reports().iter().find(counts)?;
    let said = report.message.as_deref().unwrap_or("look at its log");
    Some(format!("pod {}: {said}", report.pod))
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
