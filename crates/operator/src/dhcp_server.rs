//! DHCPServer → what runs it.

use std::time::Duration;

use jiff::Timestamp;
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

/// So long it may take from the end of an earlier server to the beginning of ours.
const CHANGEOVER: Duration = Duration::from_secs(120);

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
            route_via: network.route_via.clone(),
            addresses,
            published: Vec::new(),
            image: images.choose(spec.image.as_deref()),
            resources: spec.resources.clone(),
            arguments,
            ports: Vec::new(),
            liveness: Probe::HEALTHZ,
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

    fn image(&self) -> Option<&str> {
        self.spec.image.as_deref()
    }

    /// The leases of an earlier server are in a database that we cannot read, or on a volume that its replicas do not
    /// have: for one lease time its clients keep the addresses that they ask for. Once begun, that time is not made longer.
    fn on_takeover(&self, now: Timestamp) -> Option<Value> {
        let lease = &self.spec.lease_config;
        let set = lease
            .migration_grace
            .as_deref()
            .and_then(|text| text.parse::<Timestamp>().ok());
        if set.is_some_and(|until| until > now) {
            return None;
        }
        let time = oooi_api::duration::parse(&lease.lease_time).ok()?;
        let until = now.checked_add(time + CHANGEOVER).ok()?;
        Some(json!({"spec": {"leaseConfig": {"migrationGrace": until.to_string()}}}))
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
        let changed = largest("lastLeaseChange").and_then(|second| Timestamp::from_second(*second).ok());
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
        let stored = match largest("storeFailing") {
            Some(1..) => Finding::fails(
                "LeasesStored",
                "LeaseStoreFailing",
                "leases cannot be stored, so that clients get no new address: look at the events of this resource, \
                 and mend the volume or the way to the API server",
            ),
            _ => Finding::holds("LeasesStored", "StoreWorks", "leases are stored"),
        };
        (fields, vec![pool, rogue, stored])
    }
}

#[cfg(test)]
mod tests {
    use oooi_api::report::ServerReport;

    use super::*;

    fn server(lease: Value, counts: Value) -> DhcpServer {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "DHCPServer",
            "metadata": {"name": "x-dhcp", "namespace": "clusters"},
            "spec": {
                "networkConfig": {"cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "serverIP": "10.0.0.2"},
                "leaseConfig": lease,
            },
            "status": {"servers": [{"pod": "a", "accepted": true, "counts": counts}]},
        }))
        .unwrap()
    }

    fn lease(grace: Option<&str>) -> Value {
        json!({"rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.99", "leaseTime": "1h", "migrationGrace": grace})
    }

    #[test]
    fn clients_of_an_earlier_server_have_one_lease_time_and_no_more() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let fields = |grace| server(lease(grace), json!({})).on_takeover(now);
        let first = fields(None).unwrap();
        assert_eq!(
            first["spec"]["leaseConfig"]["migrationGrace"],
            "2026-01-01T01:02:00Z"
        );
        assert_eq!(fields(Some("2026-01-01T00:30:00Z")), None, "it was begun already");
        assert!(
            fields(Some("2025-01-01T00:00:00Z")).is_some(),
            "of another takeover"
        );
    }

    fn further(counts: &[Value]) -> (Value, Vec<Finding>) {
        let applied = Applied {
            replicas: Vec::new(),
            service_address: None,
            volume: None,
            stale: Vec::new(),
            missing: Default::default(),
        };
        let mut server = server(lease(None), json!({}));
        let status = server.status.as_mut().unwrap();
        let report = status.servers.remove(0);
        status.servers = counts
            .iter()
            .map(|counts| ServerReport {
                counts: serde_json::from_value(counts.clone()).unwrap(),
                ..report.clone()
            })
            .collect();
        server.further(&applied)
    }

    #[test]
    fn what_one_replica_lacks_is_said() {
        for (count, condition, reason) in [
            ("poolExhausted", "PoolAvailable", "PoolExhausted"),
            ("rogueServers", "NoRogueServer", "RogueServerSeen"),
            ("storeFailing", "LeasesStored", "LeaseStoreFailing"),
        ] {
            for (value, holds) in [(0, true), (1, false)] {
                let (_, findings) = further(&[json!({count: value}), json!({count: 0})]);
                let failing: Vec<_> = findings.iter().filter(|finding| !finding.is_true()).collect();
                assert_eq!(failing.is_empty(), holds, "{count}: {failing:?}");
                for finding in failing {
                    assert_eq!((finding.kind, &*finding.reason), (condition, reason));
                }
            }
        }
        let (_, findings) = further(&[json!({"rogueServers": 2}), json!({"rogueServers": 1})]);
        let said = findings.iter().find(|finding| !finding.is_true()).unwrap();
        assert!(
            said.message.starts_with("2 other DHCP servers"),
            "{}",
            said.message
        );
    }

    #[test]
    fn leases_that_replicas_share_are_counted_once() {
        let (fields, _) = further(&[
            json!({"activeLeases": 3, "totalLeases": 9, "lastLeaseChange": 60}),
            json!({"activeLeases": 4, "totalLeases": 8, "lastLeaseChange": 0}),
        ]);
        let expected =
            json!({"activeLeases": 4, "totalLeases": 9, "lastLeaseChange": "1970-01-01T00:01:00Z"});
        assert_eq!(fields, expected);
        assert_eq!(
            further(&[]).0,
            json!({}),
            "nothing is said of what nobody counted"
        );
    }
}
