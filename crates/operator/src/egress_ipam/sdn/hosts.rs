//! The addresses and networks on nodes: recorded, then taken away, then put there.
//!
//! All that goes is gone before anything comes, so that no address is on two nodes. Whatever write or call is the last
//! one before an end, what we put on a node and its machine stands in the node's record: it is written before the
//! first of the two is changed, and cleared after the last.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Node;
use oooi_api::foreign::HostSubnet;
use oooi_egress::{PLACED, Record};
use serde_json::{Value, json};

use super::super::backend::{Scene, SeenNode};
use super::super::faults::Faults;
use super::interfaces::{Trouble, give, take};
use super::machines::Machines;
use super::plan::{Host, Plan};
use crate::apply::{Error, Writer};

/// Makes nodes and machines carry what is planned. What the cloud would not do is given back.
pub(super) async fn carry_out(
    writer: &Writer,
    scene: &Scene<'_>,
    plan: &Plan,
    machines: Option<&Machines>,
    faults: &mut Faults,
) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    // Addresses that could not be taken from a node must not be put on another.
    let mut stuck: BTreeSet<Ipv4Addr> = BTreeSet::new();
    let mut failed: BTreeSet<&str> = BTreeSet::new();
    for (name, host) in &plan.hosts {
        let left = host.after_losses();
        if left != host.present
            && let Err(error) = writer.change::<HostSubnet>(&*host.object, fields(&left)).await
        {
            stuck.extend(host.present.addresses.difference(&left.addresses));
            failed.insert(name);
            note(faults, scene, &error);
            continue;
        }
        let losses = host.machine_losses();
        if let (Some(machines), Some(machine)) = (machines, &host.machine)
            && !losses.is_empty()
            && let Err(trouble) = take(machines, name, machine, losses).await
        {
            stuck.extend(&trouble.addresses);
            failed.insert(name);
            troubles.push(trouble);
        }
    }
    for (name, host) in plan
        .hosts
        .iter()
        .filter(|(name, _)| !failed.contains(name.as_str()))
    {
        let Some(node) = scene.nodes.iter().find(|node| node.facts.name == *name) else {
            continue;
        };
        let mut wanted = host.wanted.clone();
        wanted.addresses.retain(|address| !stuck.contains(address));
        match settle(writer, host, node, wanted, machines).await {
            Ok(more) => troubles.extend(more),
            Err(error) => note(faults, scene, &error),
        }
    }
    troubles
}

/// Puts what is wanted on one node: the record first, then the machine, then the node, then the record of what is
/// left.
async fn settle(
    writer: &Writer,
    host: &Host,
    node: &SeenNode,
    mut wanted: Record,
    machines: Option<&Machines>,
) -> Result<Vec<Trouble>, Error> {
    let recorded = &node.facts.placed;
    let left = host.after_losses();
    let gains = host.machine_gains(&wanted.addresses);
    let mut written = recorded.clone();
    let mut troubles = Vec::new();
    // What may have come to the machine all the same stays in the record.
    let mut doubted = BTreeSet::new();
    if left.with(&wanted) != left || !gains.is_empty() {
        let before = recorded.with(&wanted);
        if before != written {
            record(writer, node, &before).await?;
            written = before;
        }
        if let (Some(machines), Some(machine)) = (machines, &host.machine)
            && !gains.is_empty()
        {
            troubles = give(machines, &node.facts.name, machine, &gains).await;
            for trouble in &troubles {
                wanted
                    .addresses
                    .retain(|address| !trouble.addresses.contains(address));
                if trouble.error.is_unknown() {
                    doubted.extend(trouble.addresses.iter().copied());
                }
            }
        }
        let all = left.with(&wanted);
        if all != left {
            writer.change::<HostSubnet>(&*host.object, fields(&all)).await?;
        }
    }
    // What stays for others' sake stays in the record too.
    let kept = recorded.addresses.difference(&host.ours.addresses).copied();
    let kept_networks = recorded.networks.difference(&host.ours.networks).copied();
    let after = wanted.with(&Record {
        addresses: kept.chain(doubted).collect(),
        networks: kept_networks.collect(),
    });
    if after != written {
        record(writer, node, &after).await?;
    }
    Ok(troubles)
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
    faults.again();
    let layouts = scene.decision.layouts.iter().map(|layout| &layout.name);
    for ipam in layouts.chain(&scene.decision.leaving) {
        faults.note(ipam, None, error);
    }
}
