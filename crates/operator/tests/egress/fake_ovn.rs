//! Stands in for OVN-Kubernetes' allocator, by its rules: an address goes to a labelled and ready node whose subnet
//! holds it and that has no other address of the same object; a valid placement never moves.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use oooi_api::foreign::{EgressIP, EgressIPItem};
use serde_json::json;

pub(super) async fn run(client: Client) {
    let nodes = Api::<Node>::all(client.clone());
    let egress_ips = Api::<EgressIP>::all(client);
    loop {
        // An API server that is busy is asked again: so would the real one.
        if let (Ok(nodes), Ok(list)) = (
            nodes.list(&ListParams::default()).await,
            egress_ips.list(&ListParams::default()).await,
        ) {
            allocate(&egress_ips, &nodes.items, list.items).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn allocate(api: &Api<EgressIP>, nodes: &[Node], list: Vec<EgressIP>) {
    let mut load: BTreeMap<String, usize> = BTreeMap::new();
    for item in list
        .iter()
        .flat_map(|one| one.status.iter())
        .flat_map(|status| &status.items)
    {
        *load.entry(item.node.clone()).or_default() += 1;
    }
    for egress_ip in list {
        let before = egress_ip.status.clone().unwrap_or_default().items;
        let mut items: Vec<EgressIPItem> = Vec::new();
        for address in &egress_ip.spec.egress_ips {
            let carries =
                |node: &&Node| can_carry(node, address) && items.iter().all(|i| i.node != node.name_any());
            let stays = before
                .iter()
                .find(|item| item.egress_ip == *address)
                .filter(|item| {
                    nodes
                        .iter()
                        .filter(carries)
                        .any(|node| node.name_any() == item.node)
                });
            let least = || {
                nodes
                    .iter()
                    .filter(carries)
                    .map(ResourceExt::name_any)
                    .min_by_key(|name| load.get(name).copied())
            };
            if let Some(node) = stays.map(|item| item.node.clone()).or_else(least) {
                *load.entry(node.clone()).or_default() += 1;
                items.push(EgressIPItem {
                    node,
                    egress_ip: address.clone(),
                });
            }
        }
        if items != before || egress_ip.status.is_none() {
            let patch = Patch::Merge(json!({"status": {"items": items}}));
            // The object may be gone by now.
            let _ = api
                .patch(&egress_ip.name_any(), &PatchParams::default(), &patch)
                .await;
        }
    }
}

fn can_carry(node: &Node, address: &str) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions
        .into_iter()
        .any(|c| c.type_ == "Ready" && c.status == "True");
    let subnet = node
        .annotations()
        .get("k8s.ovn.org/node-primary-ifaddr")
        .and_then(|text| {
            let pair: serde_json::Value = serde_json::from_str(text).ok()?;
            pair["ipv4"].as_str()?.parse::<Ipv4Net>().ok()
        });
    let inside = subnet
        .zip(address.parse().ok())
        .is_some_and(|(net, address): (Ipv4Net, std::net::Ipv4Addr)| net.contains(&address));
    ready && inside && node.labels().contains_key("k8s.ovn.org/egress-assignable")
}
