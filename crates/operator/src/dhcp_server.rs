//! DHCPServer → what runs it.

use oooi_api::DhcpServer;
use oooi_api::dhcp_server::LeaseStorage;
use oooi_plan::Mistake;
use serde_json::{Value, json};

use crate::condition::Finding;
use crate::context::Images;
use crate::identity::Role;
use crate::server::{
    Addresses, Applied, Grant, INTERFACE, LeaseClaim, Probe, Server, Wants, attachment, machine_namespace,
    machines,
};

/// Enough for the leases of a /16.
const LEASES_SIZE: &str = "25Mi";

impl Server for DhcpServer {
    const ROLE: Role = Role::Dhcp;
    const MANAGER: &'static str = "oooi-dhcp-server";

    fn wants(&self, images: &Images, mistakes: &mut Vec<Mistake>) -> Wants {
        let (spec, network) = (&self.spec, &self.spec.network_config);
        let addresses = Addresses {
            first: &network.server_ip,
            others: &network.additional_server_ips,
            network: Some(&network.cidr),
            replicas: spec.replicas,
        };
        let embedded = spec.lease_config.storage.unwrap_or_default() == LeaseStorage::Embedded;
        let addresses = addresses.read(mistakes);
        if embedded && addresses.len() > 1 {
            mistakes.push(Mistake {
                path: "spec.leaseConfig.storage".into(),
                message:
                    "several replicas share their leases through the API server: set it to Kubernetes, or \
                          leave one replica"
                        .into(),
            });
        }
        let mut arguments = vec![
            format!("--interface={INTERFACE}"),
            format!("--machine-namespace={}", machine_namespace(&self.metadata)),
        ];
        if embedded {
            arguments.push("--state-dir=/var/lib/oooi".to_owned());
        }
        let volume = spec.storage.clone().unwrap_or_default();
        Wants {
            attachment: attachment(network.network_attachment_name.as_deref(), mistakes),
            attachment_namespace: network.network_attachment_namespace.clone(),
            addresses,
            published: Vec::new(),
            image: images.choose(spec.image.as_deref()),
            resources: spec.resources.clone(),
            arguments,
            ports: Vec::new(),
            readiness: Probe::READYZ,
            envoy: None,
            claim: embedded.then(|| LeaseClaim {
                size: volume.size.unwrap_or_else(|| LEASES_SIZE.into()),
                class: volume.storage_class_name,
            }),
            raw_sockets: true,
        }
    }

    fn grants(&self) -> Vec<Grant> {
        machines(self)
    }

    fn further(&self, _: &Applied) -> (Value, Vec<Finding>) {
        // Replicas share their leases, so the largest count is that of all.
        let largest = |name: &str| {
            self.reports()
                .iter()
                .filter_map(|report| report.counts.get(name))
                .max()
        };
        let mut fields = json!({});
        for name in ["activeLeases", "totalLeases"] {
            if let Some(count) = largest(name) {
                fields[name] = json!(count);
            }
        }
        let changed =
            largest("lastLeaseChange").and_then(|second| jiff::Timestamp::from_second(*second).ok());
        if let Some(changed) = changed {
            fields["lastLeaseChange"] = json!(changed.to_string());
        }
        let pool = match largest("poolExhausted") {
            Some(1..) => Finding::fails(
                "PoolAvailable",
                "PoolExhausted",
                "no address is free: enlarge the range, shorten leaseTime, or remove reservations",
            ),
            _ => Finding::holds("PoolAvailable", "AddressesFree", "addresses are free"),
        };
        let rogue = match largest("rogueServers") {
            Some(count @ 1..) => Finding::fails(
                "NoRogueServer",
                "RogueServerSeen",
                format!(
                    "{count} other DHCP servers answer on this VLAN: find them in the log and remove them"
                ),
            ),
            _ => Finding::holds(
                "NoRogueServer",
                "NoneSeen",
                "no other DHCP server answers on this VLAN",
            ),
        };
        (fields, vec![pool, rogue])
    }
}
