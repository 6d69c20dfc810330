//! Two of each server on two nodes, and what is done to one of the two.

use oooi_testkit::{Node, SecondNode, until};
use serde_json::{Value, json};

use super::{SERVERS, kill_pods, wrong};
use crate::{Hosted, PATIENCE, Result};

/// Has two of each server, and waits until all of them serve.
pub async fn double(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let two = json!({
        "dhcp": {"replicas": 2, "leaseStorage": "Kubernetes"}, "dns": {"replicas": 2}, "proxy": {"replicas": 2},
    });
    hosted.change(&json!({"infraComponents": two})).await?;
    settled(node, hosted).await
}

/// Chooses the pod of a server on a node.
fn pod_on(hosted: &Hosted<'_>, server: &str, member: &str) -> [String; 2] {
    [
        format!("--selector={}", hosted.pods_of(server)),
        format!("--field-selector=spec.nodeName={member}"),
    ]
}

/// The address on the VLAN of the one pod that a server has on a node.
pub async fn address_on(node: &Node, hosted: &Hosted<'_>, server: &str, member: &str) -> Result<String> {
    let [own, there] = pod_on(hosted, server, member);
    let networks = "--output=jsonpath={.items[*].metadata.annotations.k8s\\.v1\\.cni\\.cncf\\.io/networks}";
    let look = ["get", "pods", "--namespace", Hosted::NAMESPACE, &own, &there];
    let networks = node.kubectl(&[&look[..], &[networks]].concat()).await?;
    // With two pods this is no document.
    let attached: Value = serde_json::from_str(&networks).unwrap_or_default();
    let address = attached[0]["ips"][0]
        .as_str()
        .and_then(|address| address.split('/').next());
    address.map(str::to_owned).ok_or_else(|| {
        wrong(
            "the replicas do not stand on both nodes",
            format!("{server} on {member}: `{networks}`"),
        )
    })
}

/// Ends the pod of a server on the first of two nodes, and waits for the one that takes its place: the next fault is
/// another.
pub async fn kill_one(node: &Node, hosted: &Hosted<'_>, server: &str) -> Result<()> {
    let [own, here] = pod_on(hosted, server, Node::NAME);
    kill_pods(node, Hosted::NAMESPACE, &[&own, &here]).await?;
    settled(node, hosted).await
}

/// Reboots the second of two nodes; waits until every pod there runs anew: until then it counts as ready by what was said
/// before.
pub async fn reboot_one(node: &Node, hosted: &Hosted<'_>, second: &SecondNode) -> Result<()> {
    let there = format!("--field-selector=spec.nodeName={}", SecondNode::NAME);
    let containers = async || {
        let path = "--output=jsonpath={.items[*].status.containerStatuses[*].containerID}";
        let look = ["get", "pods", "--namespace", Hosted::NAMESPACE, &there, path];
        node.kubectl(&look).await
    };
    let before = containers().await?;
    second.reboot()?;
    until("every container of the node to run anew", PATIENCE, async || {
        let now = containers().await.map_err(|error| error.to_string())?;
        let old = now.split(' ').any(|container| before.contains(container));
        match old || now.split(' ').count() < before.split(' ').count() {
            true => Err(format!("before: {before}, now: {now}")),
            false => Ok(()),
        }
    })
    .await?;
    settled(node, hosted).await
}

/// The second of two nodes vanishes, with one of each server on it.
pub async fn lose(node: &Node, hosted: &Hosted<'_>, second: SecondNode) -> Result<()> {
    for server in SERVERS {
        for member in [Node::NAME, SecondNode::NAME] {
            address_on(node, hosted, server, member).await?;
        }
    }
    drop(second);
    Ok(())
}

/// Takes a node that is lost out of the cluster, and waits until its pods came back elsewhere.
pub async fn forget(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    node.kubectl(&["delete", "node", SecondNode::NAME]).await?;
    // Until they are collected, pods of a node that is gone count as ready.
    until("no pod to be on the lost node", PATIENCE, async || {
        let lost = format!("--field-selector=spec.nodeName={}", SecondNode::NAME);
        let look = ["get", "pods", "--namespace", Hosted::NAMESPACE];
        let look = [&look[..], &["--output=name", &lost]].concat();
        match node.kubectl(&look).await {
            Ok(pods) if pods.trim().is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    settled(node, hosted).await
}

/// Waits until there are two of each server, both as they are to be: they are changed one after another.
pub async fn settled(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    hosted.ready().await?;
    for server in SERVERS {
        until("both replicas to be alike and to serve", PATIENCE, async || {
            let own = format!("--selector=app.kubernetes.io/instance={}-{server}", hosted.name());
            let look = ["get", "deployments", "--namespace", Hosted::NAMESPACE, &own];
            let found = node.kubectl(&[&look[..], &["--output=json"]].concat()).await;
            let found: Value =
                serde_json::from_str(&found.map_err(|error| error.to_string())?).unwrap_or_default();
            let serves = |one: &Value| {
                let status = &one["status"];
                status["observedGeneration"] == one["metadata"]["generation"]
                    && status["updatedReplicas"] == 1
                    && status["availableReplicas"] == 1
            };
            let pod = |one: &Value| one["spec"]["template"]["spec"].clone();
            match found["items"].as_array().map_or(&[][..], Vec::as_slice) {
                [one, other] if serves(one) && serves(other) && pod(one) == pod(other) => Ok(()),
                others => Err(format!(
                    "{server}: {:?}",
                    others.iter().map(|one| &one["status"]).collect::<Vec<_>>()
                )),
            }
        })
        .await?;
    }
    hosted.ready().await
}
