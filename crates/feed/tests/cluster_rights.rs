//! The rights of each server: a story in which it does everything that it ever does with a cluster, so that a right
//! that it lacks is found, and one that it is given and never uses. Needs the testbed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::{Api, Client};
use oooi_api::report::{Event, Report, ServerReport};
use oooi_api::{DhcpServer, DnsServer, ProxyServer};
use oooi_dhcp::lease::State;
use oooi_dhcp::store::LeaseStore;
use oooi_dhcp::testing::battery::lease;
use oooi_feed::cluster::{Kind, Own};
use oooi_feed::leases::ClusterStore;
use oooi_feed::status::ClusterReport;
use oooi_feed::{endpoints, live, machines, names, servers};
use oooi_testkit::rights::{self, Calls};
use serde_json::{Value, json};
use support::{Bed, LONG};
use tokio::sync::watch;

/// A server with the rights of its roles and no others, whose calls are noted.
struct Server<'a> {
    bed: &'a Bed,
    roles: &'static [&'static str],
    client: Client,
    calls: Calls,
}

impl<'a> Server<'a> {
    /// One that has the account of its first role.
    async fn of(bed: &'a Bed, roles: &'static [&'static str]) -> Self {
        bed.cluster.define_neighbours().await.unwrap();
        let calls = Calls::default();
        let client = rights::noted(bed.cluster, bed.namespace.name(), roles[0], &calls);
        Server {
            bed,
            roles,
            client: client.await.unwrap(),
            calls,
        }
    }

    /// Follows its own resource for as long as what is given lives, and says how it is and the same thing twice.
    async fn follow<K: Kind>(&self, manifest: Value) -> (Arc<ClusterReport>, watch::Receiver<Arc<()>>) {
        let name = manifest["metadata"]["name"].as_str().unwrap().to_owned();
        self.bed.namespace.apply(&manifest.to_string()).await.unwrap();
        let own = Own::new::<K>(self.client.clone(), self.bed.namespace.name(), name);
        let report = ClusterReport::start(own.clone(), "pod-a");
        let verdicts = report.clone();
        let config = live::follow(None, own, |_| Ok(()), move |verdict| verdicts.verdict(verdict));
        let config = config.await.unwrap();
        report.state(ServerReport {
            accepted: true,
            ..ServerReport::default()
        });
        for _ in 0..2 {
            report.event(Event::warning("Twice", "the second time it is counted"));
        }
        (report, config)
    }

    /// Waits until every right was used, and says which were not or are lacking.
    async fn uses_every_right_and_no_other(&self) {
        let roles = Api::<ClusterRole>::all(self.bed.client.clone());
        let mut granted = BTreeSet::new();
        for role in self.roles {
            granted.extend(rights::granted(&roles.get(role).await.unwrap().rules.unwrap()));
        }
        let ended = oooi_testkit::until("every right to be used", LONG, async || {
            let used = self.calls.used();
            let unused: Vec<_> = granted.difference(&used).collect();
            unused.is_empty().then_some(()).ok_or(format!("{unused:#?}"))
        })
        .await;
        let forbidden = self.calls.forbidden();
        assert!(forbidden.is_empty(), "it lacks rights: {forbidden:#?}");
        ended.unwrap();
    }
}

fn resource(kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

#[tokio::test]
async fn a_dhcp_server_uses_every_right_of_its_roles_and_no_other() {
    let bed = Bed::new("dhcp-rights").await;
    let server = Server::of(&bed, &["oooi-dhcp", "oooi-machines"]).await;
    let spec = json!({
        "networkConfig": {"cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "serverIP": "192.168.100.2"},
        "leaseConfig": {"rangeStart": "192.168.100.10", "rangeEnd": "192.168.100.200", "storage": "Kubernetes"},
    });
    let _following = server
        .follow::<DhcpServer>(resource("DHCPServer", "tenant-dhcp", spec))
        .await;
    let namespace = bed.namespace.name();
    let machines = machines::follow(server.client.clone(), Some(namespace));
    let _index = servers::join(server.client.clone(), namespace, machines);
    // Of two that give one address to two clients, the second reads whose it is; a renewal changes what is there.
    let store = || ClusterStore::new(server.client.clone(), namespace, "tenant-dhcp", None);
    let (mut first, mut second) = (store(), store());
    let _first = first.load().await.unwrap().updates;
    let _second = second.load().await.unwrap().updates;
    let mut held = lease(1, 1, State::Bound);
    assert_eq!(first.commit(std::slice::from_ref(&held)).await.unwrap(), []);
    let taken = second.commit(&[lease(1, 2, State::Bound)]).await.unwrap();
    assert_eq!(taken.len(), 1);
    held.expires = held.expires.after(std::time::Duration::from_secs(60));
    assert_eq!(first.commit(&[held]).await.unwrap(), []);
    server.uses_every_right_and_no_other().await;
}

#[tokio::test]
async fn a_dns_server_uses_every_right_of_its_roles_and_no_other() {
    let bed = Bed::new("dns-rights").await;
    let server = Server::of(&bed, &["oooi-dns", "oooi-machines"]).await;
    let spec = json!({
        "networkConfig": {"serverIP": "192.168.100.3", "proxyIP": "192.168.100.4"},
        "hostedClusterDomain": "tenant.example.com",
    });
    let _following = server
        .follow::<DnsServer>(resource("DNSServer", "tenant-dns", spec))
        .await;
    let namespace = bed.namespace.name();
    let machines = machines::follow(server.client.clone(), Some(namespace));
    let _names = names::follow(server.client.clone(), namespace, "tenant-dhcp", machines);
    server.uses_every_right_and_no_other().await;
}

#[tokio::test]
async fn a_gateway_uses_every_right_of_its_roles_and_no_other() {
    let bed = Bed::new("proxy-rights").await;
    let server = Server::of(&bed, &["oooi-proxy", "oooi-backends"]).await;
    let backend = json!({
        "name": "api", "hostname": "api.example.com", "port": 6443, "targetService": "api",
        "targetNamespace": bed.namespace.name(), "targetPort": 6443, "protocol": "TCP",
    });
    let spec = json!({"networkConfig": {"serverIP": "192.168.100.4"}, "backends": [backend]});
    let manifest = resource("ProxyServer", "tenant-proxy", spec);
    let _following = server.follow::<ProxyServer>(manifest.clone()).await;
    let resource: ProxyServer = serde_json::from_value(manifest).unwrap();
    let (_resources, receiver) = watch::channel(Arc::new(resource));
    let _endpoints = endpoints::follow(server.client.clone(), receiver, |resource| resource).await;
    server.uses_every_right_and_no_other().await;
}
