//! Who hears datagrams in the network of a pod.

use oooi_testkit::Node;

use crate::{Hosted, Result};

/// The UDP ports on which the pods of a server (`dhcp`, `dns` or `proxy`) hear whoever is on the VLAN: all but those of
/// their address at the management side alone. A socket that asks others hears those whom it asks: it is connected, and
/// does not count.
pub async fn hears_datagrams(node: &Node, hosted: &Hosted<'_>, server: &str) -> Result<Vec<u16>> {
    let path = "--output=jsonpath={range .items[*]}{.status.podIP} {.status.containerStatuses[0].containerID}\n{end}";
    let look = ["get", "pods", "--namespace", Hosted::NAMESPACE, "--selector"];
    let pods = node
        .kubectl(&[&look[..], &[&hosted.pods_of(server), path]].concat())
        .await?;
    let tasks = node.run("ctr", &["--namespace", "k8s.io", "tasks", "list"])?;
    let mut ports = Vec::new();
    for (own, container) in pods.lines().filter_map(|pod| pod.split_once(" containerd://")) {
        let task = tasks.lines().find(|task| task.starts_with(container));
        let process = task
            .and_then(|task| task.split_whitespace().nth(1))
            .unwrap_or_default();
        let sockets = node.run("nsenter", &["--target", process, "--net", "ss", "-lunH"])?;
        let sockets = sockets
            .lines()
            .filter_map(|socket| socket.split_whitespace().nth(3)?.rsplit_once(':'));
        let reached = sockets.filter(|(at, _)| *at != own && !at.starts_with("127.") && *at != "[::1]");
        ports.extend(reached.filter_map(|(_, port)| port.parse::<u16>().ok()));
    }
    ports.sort_unstable();
    // One on each address or core is one to those who send.
    ports.dedup();
    Ok(ports)
}
