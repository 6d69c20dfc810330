//! Which VLAN the nodes are on.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use oooi_api::foreign::{HostedCluster, NodePool};
use oooi_ipam::hosts;

use super::Gaps;
use super::annotations::{Annotations, PREFIX, attachment};
use crate::infra::Attachment;

/// The VLAN.
pub(super) struct Found {
    pub(super) cidr: Ipv4Net,
    pub(super) gateway: Ipv4Addr,
    pub(super) attachment: Attachment,
}

/// Finds the VLAN; what is annotated goes before what is derived.
pub(super) fn network(
    cluster: &HostedCluster,
    pools: &[NodePool],
    annotations: &Annotations,
    gaps: &mut Gaps,
) -> Option<Found> {
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or("default");
    let attachment = match &annotations.network_attachment {
        Some((written, name)) => Some(Attachment {
            namespace: written.clone().unwrap_or_else(|| namespace.to_owned()),
            name: name.clone(),
        }),
        None => of_node_pools(cluster, pools, namespace, gaps),
    };
    let cidr = annotations.cidr.or_else(|| machine_network(cluster, gaps));
    let gateway = cidr.map(|cidr| annotations.gateway.unwrap_or_else(|| hosts(cidr).first()));
    if let (Some(cidr), Some(gateway)) = (cidr, gateway)
        && !hosts(cidr).contains(gateway)
    {
        gaps.block(
            "BadAnnotation",
            format!(
                "the annotation {PREFIX}gateway is {gateway}, which is no host of {cidr}: write one of {}",
                hosts(cidr)
            ),
        );
    }
    if let (Some(cidr), Some(range)) = (cidr, annotations.dhcp_range)
        && !hosts(cidr).covers(range)
    {
        gaps.block(
            "BadAnnotation",
            format!(
                "the annotation {PREFIX}dhcp-range is {range}, which is not in {cidr}: write a part of {}",
                hosts(cidr)
            ),
        );
    }
    Some(Found {
        cidr: cidr?,
        gateway: gateway?,
        attachment: attachment?,
    })
}

/// The one network that all NodePools of the cluster are on.
fn of_node_pools(
    cluster: &HostedCluster,
    pools: &[NodePool],
    namespace: &str,
    gaps: &mut Gaps,
) -> Option<Attachment> {
    let annotate = format!("annotate the HostedCluster with {PREFIX}network-attachment: namespace/name");
    let own = pools
        .iter()
        .filter(|pool| pool.spec.cluster_name == cluster.metadata.name);
    let names: BTreeSet<&str> = own
        .filter_map(|pool| pool.spec.platform.as_ref()?.kubevirt.as_ref())
        .flat_map(|kubevirt| &kubevirt.additional_networks)
        .filter_map(|network| network.name.as_deref())
        .collect();
    let mut names = names.into_iter();
    match (names.next(), names.next()) {
        (None, _) => {
            gaps.block(
                "NoNetworkAttachment",
                format!("no NodePool of the cluster names a network in additionalNetworks: add it there, or {annotate}"),
            );
            None
        }
        (Some(only), None) => match attachment(only) {
            Some((written, name)) => Some(Attachment {
                namespace: written.unwrap_or_else(|| namespace.to_owned()),
                name,
            }),
            None => {
                gaps.block(
                    "BadNetworkAttachment",
                    format!("a NodePool names the network `{only}`, which is not namespace/name: mend it, or {annotate}"),
                );
                None
            }
        },
        (Some(first), Some(second)) => {
            let all: Vec<&str> = [first, second].into_iter().chain(names).collect();
            gaps.block(
                "SeveralNetworks",
                format!(
                    "the NodePools name several networks ({}), of which one is the VLAN: {annotate}",
                    all.join(", ")
                ),
            );
            None
        }
    }
}

/// The IPv4 network of the nodes.
fn machine_network(cluster: &HostedCluster, gaps: &mut Gaps) -> Option<Ipv4Net> {
    let annotate = format!("annotate the HostedCluster with {PREFIX}cidr, such as 192.168.100.0/24");
    let entries = cluster
        .spec
        .networking
        .as_ref()
        .map(|networking| &*networking.machine_network);
    let texts: Vec<&str> = entries
        .unwrap_or_default()
        .iter()
        .filter_map(|entry| entry.cidr.as_deref())
        .collect();
    if texts.is_empty() {
        gaps.block(
            "NoMachineNetwork",
            format!("the HostedCluster has no spec.networking.machineNetwork: {annotate}"),
        );
        return None;
    }
    let mut six = false;
    for text in &texts {
        match text.parse::<IpNet>() {
            Ok(IpNet::V4(net)) if (8..=30).contains(&net.prefix_len()) => return Some(net.trunc()),
            Ok(IpNet::V4(net)) => {
                gaps.block(
                    "BadMachineNetwork",
                    format!(
                        "the machineNetwork {net} cannot be served, a network from /8 to /30 can: {annotate}"
                    ),
                );
                return None;
            }
            Ok(IpNet::V6(_)) => six = true,
            Err(_) => {
                gaps.block(
                    "BadMachineNetwork",
                    format!("the machineNetwork `{text}` is no network: {annotate}"),
                );
                return None;
            }
        }
    }
    if six {
        gaps.block(
            "OnlyIPv6",
            format!("the machineNetwork has IPv6 only, and nodes are served over IPv4: {annotate}"),
        );
    }
    None
}
