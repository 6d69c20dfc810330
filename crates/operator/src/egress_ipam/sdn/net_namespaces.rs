//! The addresses that namespaces leave with.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use kube::ResourceExt;
use oooi_api::foreign::NetNamespace;
use serde_json::json;

use super::super::decide::{Carry, Decision};
use super::super::faults::Faults;
use super::super::pass::AT_ONCE;
use crate::apply::Writer;

/// The EgressIPAM that gave a `NetNamespace` its addresses. Only with it are they ever taken away.
const ASSIGNED_BY: &str = "egressip-ipam-operator.redhat-cop.io/assigned-by";

/// Whether we gave it its addresses.
pub(super) fn is_ours(net_namespace: &NetNamespace) -> bool {
    net_namespace.annotations().contains_key(ASSIGNED_BY)
}

/// Takes addresses from namespaces that should have none.
pub(super) async fn release(
    writer: &Writer,
    decision: &Decision,
    known: &BTreeMap<String, Arc<NetNamespace>>,
    faults: &mut Faults,
) {
    for (name, net_namespace) in known {
        let Some(by) = net_namespace.annotations().get(ASSIGNED_BY) else {
            continue;
        };
        if decision.carry(name) != Carry::Drop || decision.is_hands_off(by) {
            continue;
        }
        let fields = json!({"egressIPs": [], "metadata": {"annotations": {ASSIGNED_BY: null}}});
        if let Err(error) = writer
            .change_as_seen::<NetNamespace>(&**net_namespace, fields)
            .await
        {
            faults.note(by, Some(name), &error);
        }
    }
}

/// Gives namespaces the addresses that they should have.
pub(super) async fn assign(
    writer: &Writer,
    decision: &Decision,
    known: &BTreeMap<String, Arc<NetNamespace>>,
    faults: &mut Faults,
) {
    let mut writes = Vec::new();
    for name in decision.claims.keys() {
        let Carry::Want(ipam, addresses) = decision.carry(name) else {
            continue;
        };
        let Some(net_namespace) = known.get(name) else {
            let message = format!("there is no NetNamespace {name} yet: OpenShift SDN makes it");
            faults.say(ipam, Some(name), message);
            continue;
        };
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let recorded = net_namespace.annotations().get(ASSIGNED_BY);
        if net_namespace.spec.egress_ips == texts && recorded.is_some_and(|by| by == ipam) {
            continue;
        }
        let fields = json!({"egressIPs": texts, "metadata": {"annotations": {ASSIGNED_BY: ipam}}});
        writes.push(async move {
            let written = writer.change_as_seen::<NetNamespace>(&**net_namespace, fields);
            (ipam, name, written.await)
        });
    }
    let written: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
    for (ipam, name, written) in written {
        if let Err(error) = written {
            faults.note(ipam, Some(name), &error);
        }
    }
}
