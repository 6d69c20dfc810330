//! DNSServer → what runs it.

use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use oooi_api::DnsServer;
use oooi_plan::Mistake;
use serde_json::{Value, json};

use crate::condition::Finding;
use crate::context::Images;
use crate::identity::Role;
use crate::server::{
    Addresses, Applied, Grant, POD_IP, Probe, Server, Wants, attachment, config_map_name, machine_namespace,
    machines,
};

const HEALTH_PORT: i32 = 8080;
const READY_PORT: i32 = 8181;

impl Server for DnsServer {
    const ROLE: Role = Role::Dns;
    const MANAGER: &'static str = "oooi-dns-server";

    fn wants(&self, images: &Images, mistakes: &mut Vec<Mistake>) -> Wants {
        let (spec, network) = (&self.spec, &self.spec.network_config);
        let addresses = Addresses {
            first: &network.server_ip,
            others: &network.additional_server_ips,
            network: network.secondary_network_cidr.as_deref(),
            replicas: spec.replicas,
        };
        let port = |protocol: &str| ServicePort {
            name: Some(format!("dns-{}", protocol.to_lowercase())),
            port: network.dns_port,
            protocol: Some(protocol.into()),
            target_port: Some(IntOrString::Int(network.dns_port)),
            ..ServicePort::default()
        };
        Wants {
            attachment: attachment(network.network_attachment_name.as_deref(), mistakes),
            attachment_namespace: network.network_attachment_namespace.clone(),
            route_via: network.route_via.clone(),
            addresses: addresses.read(mistakes),
            published: Vec::new(),
            image: images.choose(spec.image.as_deref()),
            resources: spec.resources.clone(),
            arguments: vec![
                format!("--listen={POD_IP}"),
                format!("--machine-namespace={}", machine_namespace(&self.metadata)),
                format!("--health-bind-address={POD_IP}:{HEALTH_PORT}"),
                format!("--ready-bind-address={POD_IP}:{READY_PORT}"),
            ],
            ports: vec![port("UDP"), port("TCP")],
            // Every core answers for itself: one that is stuck is noticed.
            liveness: Probe {
                path: "/health",
                port: HEALTH_PORT,
            },
            readiness: Probe {
                path: "/ready",
                port: READY_PORT,
            },
            envoy: None,
            claim: None,
            raw_sockets: false,
        }
    }

    fn image(&self) -> Option<&str> {
        self.spec.image.as_deref()
    }

    fn grants(&self) -> Vec<Grant> {
        machines(self)
    }

    fn further(&self, applied: &Applied) -> (Value, Vec<Finding>) {
        let mut fields = json!({
            "configMapName": config_map_name(self),
            "deploymentName": self.name_any(),
            "serviceName": self.name_any(),
        });
        if let Some(address) = &applied.service_address {
            fields["serviceClusterIP"] = json!(address);
        }
        (fields, Vec::new())
    }
}
