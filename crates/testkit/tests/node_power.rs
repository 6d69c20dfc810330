//! A node that reboots, and one that is lost. A target of its own: every pod of the node ends. Needs root and the
//! built testbed.
#![allow(clippy::unwrap_used, reason = "the helpers below are parts of tests")]

use std::time::Duration;

use oooi_testkit::{Namespace, Node, SecondNode, Tenant, until};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

/// A pod on a node that answers HTTP requests with its name, under an address on the VLAN.
async fn answer(namespace: &Namespace<'_>, node: &str, name: &str, address: &str) {
    let line = format!("mkdir -p /www; echo {name} > /www/index.html; exec httpd -f -p 8080 -h /www");
    let networks = json!([{"name": "vlan", "ips": [format!("{address}/24")], "interface": "net1"}]);
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"k8s.v1.cni.cncf.io/networks": networks.to_string()}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": "testbed.invalid/busybox:test",
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", line],
            }],
        },
    });
    namespace.apply(&pod.to_string()).await.unwrap();
}

fn ask(tenant: &Tenant, address: &str) -> Result<String, String> {
    let url = format!("http://{address}:8080/");
    tenant
        .run("curl", &["--silent", "--show-error", "--max-time", "2", &url])
        .map_err(|error| error.to_string())
}

async fn answers(tenant: &Tenant, address: &str) {
    until("an answer over the VLAN", PATIENCE, async || ask(tenant, address))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_pod_comes_back_after_a_reboot_and_goes_with_a_node_that_is_lost() {
    let node = Node::shared().await.unwrap();
    let namespace = node.namespace("power").await.unwrap();
    let config = json!({
        "cniVersion": "0.3.1", "type": "bridge", "bridge": node.vlan(),
        "capabilities": {"ips": true}, "ipam": {"type": "static"},
    });
    let definition = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "vlan"}, "spec": {"config": config.to_string()},
    });
    namespace.apply(&definition.to_string()).await.unwrap();
    answer(&namespace, "node", "first", "192.168.103.2").await;
    let early = node.tenant("early").await.unwrap();
    early.address("192.168.103.50/24").unwrap();
    answers(&early, "192.168.103.2").await;
    // Whoever is made now has the pod's network namespace among its mounts.
    let late = node.tenant("late").await.unwrap();
    late.address("192.168.103.51/24").unwrap();

    node.reboot().unwrap();
    ask(&early, "192.168.103.2").unwrap_err();
    for tenant in [&early, &late] {
        answers(tenant, "192.168.103.2").await;
    }
    let restarts = "--output=jsonpath={.status.containerStatuses[0].restartCount}";
    until("the kubelet to say so", PATIENCE, async || {
        match namespace.kubectl(&["get", "pod", "first", restarts]).await {
            Ok(count) if count == "1" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();

    let second = SecondNode::start(node).await.unwrap();
    answer(&namespace, SecondNode::NAME, "second", "192.168.103.3").await;
    answers(&late, "192.168.103.3").await;
    let ready = ["wait", "--for=condition=Ready", "--timeout=60s", "pod/second"];
    namespace.kubectl(&ready).await.unwrap();
    let address = ["get", "pod", "second", "--output=jsonpath={.status.podIP}"];
    let url = format!("http://{}:8080/", namespace.kubectl(&address).await.unwrap());
    // The limit is a program of its own: `wget -T` of a static busybox ends by a fault.
    let look = [
        "exec", "first", "--", "timeout", "5", "wget", "-q", "-O", "-", &url,
    ];
    assert_eq!(namespace.kubectl(&look).await.unwrap(), "second\n", "{url}");
    drop(second);
    ask(&late, "192.168.103.3").unwrap_err();
    answers(&late, "192.168.103.2").await;
    node.kubectl(&["delete", "node", SecondNode::NAME]).await.unwrap();
}
