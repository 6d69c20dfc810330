//! OpenShift SDN for tests: the objects that it makes for nodes and namespaces, and where addresses are.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::ListParams;
use oooi_api::foreign::{HostSubnet, NetNamespace};
use serde_json::json;

use super::{LIMIT, Scene};

pub(crate) const PLACED: &str = "egressip-ipam-operator.redhat-cop.io/placed";

/// A node with the object that the SDN makes for it.
pub(crate) async fn host(scene: &Scene, name: &str, zone: &str, address: &str) {
    scene.node(name, zone, &format!("{address}/24")).await;
    let number = name.trim_start_matches(char::is_alphabetic);
    scene
        .apply(json!({
            "apiVersion": "network.openshift.io/v1", "kind": "HostSubnet", "metadata": {"name": name},
            "host": name, "hostIP": address, "subnet": format!("10.128.{number}.0/24"),
        }))
        .await;
}

/// A namespace with the object that the SDN makes for it.
pub(crate) async fn namespace(scene: &Scene, name: &str, id: u32, ipam: &str, given: &str) {
    scene.namespace(name, ipam, given).await;
    net_namespace(scene, name, id).await;
}

pub(crate) async fn net_namespace(scene: &Scene, name: &str, id: u32) {
    scene
        .apply(json!({
            "apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "metadata": {"name": name},
            "netname": name, "netid": id,
        }))
        .await;
}

/// Where every address is, each on one node and no more.
pub(crate) async fn places(scene: &Scene) -> BTreeMap<String, String> {
    let mut places = BTreeMap::new();
    for host in scene
        .api::<HostSubnet>()
        .list(&ListParams::default())
        .await
        .unwrap()
    {
        for address in &host.spec.egress_ips {
            let before = places.insert(address.clone(), host.name_any());
            assert_eq!(before, None, "{address} is on two nodes");
        }
    }
    places
}

pub(crate) async fn wait_places(
    scene: &Scene,
    what: &str,
    holds: impl Fn(&BTreeMap<String, String>) -> bool,
) {
    oooi_testkit::until(what, LIMIT, async || {
        let places = places(scene).await;
        if holds(&places) {
            Ok(())
        } else {
            Err(format!("{places:?}"))
        }
    })
    .await
    .unwrap();
}

pub(crate) fn has(one: &NetNamespace, addresses: &[&str]) -> bool {
    one.spec.egress_ips == addresses
}
