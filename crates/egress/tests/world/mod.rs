//! EgressIPAMs, namespaces and nodes in a line each.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test fails by panicking, and each uses some of these"
)]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use oooi_egress::{Allocation, Claim, Layout, Node, Outcome, Used, allocate, read};
use serde_json::{Value, json};

/// An EgressIPAM with networks such as `10.0.0.0/29=a`, the nodes' label value after the sign.
pub(crate) fn manifest(name: &str, networks: &[&str]) -> Value {
    let assignments = networks.iter().map(|text| {
        let (cidr, value) = text.split_once('=').unwrap_or((text, ""));
        json!({"CIDR": cidr, "labelValue": value})
    });
    json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "EgressIPAM", "metadata": {"name": name},
        "spec": {"topologyLabel": "zone", "cidrAssignments": assignments.collect::<Vec<_>>()},
    })
}

pub(crate) fn layout_of(manifest: Value) -> Layout {
    read(&serde_json::from_value(manifest).unwrap()).unwrap()
}

pub(crate) fn layout(name: &str, networks: &[&str]) -> Layout {
    layout_of(manifest(name, networks))
}

/// A namespace that asks `ipam`, the older the smaller `created`.
pub(crate) fn claim(namespace: &str, ipam: &str, created: i64, given: &str) -> Claim {
    Claim {
        namespace: namespace.into(),
        created,
        ipam: ipam.into(),
        given: (!given.is_empty()).then(|| given.into()),
        ..Claim::default()
    }
}

pub(crate) fn decide(layouts: &[Layout], claims: &[Claim], used: &Used) -> Allocation {
    allocate(layouts, &BTreeSet::new(), claims, used, &mut |_| 0)
}

/// What a namespace has, as its annotation would be written.
pub(crate) fn got(allocation: &Allocation, namespace: &str) -> String {
    let addresses = allocation.outcomes[namespace].addresses().unwrap_or_default();
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// One word for what is wrong with a namespace.
pub(crate) fn reason<'a>(allocation: &'a Allocation, namespace: &str) -> &'a str {
    allocation.outcomes[namespace]
        .problem()
        .map_or("", |problem| problem.reason())
}

pub(crate) fn message(allocation: &Allocation, namespace: &str) -> String {
    allocation.outcomes[namespace]
        .problem()
        .map(ToString::to_string)
        .unwrap_or_default()
}

pub(crate) fn is_fresh(allocation: &Allocation, namespace: &str) -> bool {
    matches!(
        allocation.outcomes[namespace],
        Outcome::Complete { fresh: true, .. }
    )
}

pub(crate) fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

pub(crate) fn node(name: &str, zone: &str, subnet: &str) -> Node {
    Node {
        name: name.into(),
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        healthy: true,
        subnets: if subnet.is_empty() {
            vec![]
        } else {
            vec![subnet.parse().unwrap()]
        },
        ..Node::default()
    }
}
