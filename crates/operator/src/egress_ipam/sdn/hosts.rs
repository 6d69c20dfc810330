//! The addresses and networks on nodes: recorded, then taken away, then put there.
//!
//! All that goes is gone before anything comes, so that no address is on two nodes. Whatever write is the last one
//! before an end, what we put on a node stands in its record.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Node;
use oooi_api::foreign::HostSubnet;
use oooi_egress::{PLACED, Record};
use serde_json::{Value, json};

use super::super::backend::{Scene, SeenNode};
use super::super::faults::Faults;
use super::plan::{Host, Plan};
use crate::apply::{Error, Writer};

pub(super) async fn carry_out(writer: &Writer, scene: &Scene<'_>, plan: &Plan, faults: &mut Faults) {
    // Addresses that could not be taken from a node must not be put on another.
    let mut stuck: BTreeSet<Ipv4Addr> = BTreeSet::new();
    let mut failed: BTreeSet<&str> = BTreeSet::new();
    for (name, host) in &plan.hosts {
        let left = host.after_losses();
        if left == host.present {
            continue;
        }
        if let Err(error) = writer.change::<HostSubnet>(&*host.object, fields(&left)).await {
            stuck.extend(host.present.addresses.difference(&left.addresses));
            failed.insert(name);
            note(faults, scene, &error);
        }
    }
    for (name, host) in plan
        .hosts
        .iter()
        .filter(|(name, _)| !failed.contains(name.as_str()))
    {
        let node = scene.nodes.iter().find(|node| node.facts.name == *name);
        let mut wanted = host.wanted.clone();
        wanted.addresses.retain(|address| !stuck.contains(address));
        let left = host.after_losses();
        let all = left.with(&wanted);
        if let Some(node) = node
            && let Err(error) = settle(writer, host, node, &left, &all, &wanted).await
        {
            note(faults, scene, &error);
        }
    }
}

/// Puts what is wanted on one node: the record first, then the thing itself, then the record of what is left.
async fn settle(
    writer: &Writer,
    host: &Host,
    node: &SeenNode,
    left: &Record,
    all: &Record,
    wanted: &Record,
) -> Result<(), Error> {
    let recorded = &node.facts.placed;
    let mut written = recorded.clone();
    if all != left {
        let before = recorded.with(wanted);
        if before != written {
            record(writer, node, &before).await?;
            written = before;
        }
        writer.change::<HostSubnet>(&*host.object, fields(all)).await?;
    }
    // What stays for others' sake stays in the record too.
    let kept = recorded.addresses.difference(&host.ours.addresses).copied();
    let kept_networks = recorded.networks.difference(&host.ours.networks).copied();
    let after = wanted.with(&Record {
        addresses: kept.collect(),
        networks: kept_networks.collect(),
    });
    if after != written {
        record(writer, node, &after).await?;
    }
    Ok(())
}

async fn record(writer: &Writer, node: &SeenNode, record: &Record) -> Result<(), Error> {
    let text = if record.is_empty() {
        Value::Null
    } else {
        json!(record.to_string())
    };
    let fields = json!({"metadata": {"annotations": {PLACED: text}}});
    writer.change::<Node>(&*node.object, fields).await
}

fn fields(record: &Record) -> Value {
    json!({"egressIPs": record.addresses, "egressCIDRs": record.networks})
}

/// A node concerns every EgressIPAM: those that are carried out, and those that are being undone.
fn note(faults: &mut Faults, scene: &Scene<'_>, error: &Error) {
    let layouts = scene.decision.layouts.iter().map(|layout| &layout.name);
    for ipam in layouts.chain(&scene.decision.leaving) {
        faults.note(ipam, None, error);
    }
}
