//! Who listens on the management side and in the networks of pods, by the word of the kernel and the API server: what a
//! scan cannot tell.

use oooi_testkit::Node;
use serde_json::Value;

use crate::{Hosted, Result};

/// Where every interface is meant.
const ANY: [&str; 3] = ["0.0.0.0", "*", "[::]"];

/// The UDP ports on which the pods of a server (`dhcp`, `dns` or `proxy`) hear whoever is on the VLAN: all but those of
/// their address at the management side alone. A socket that asks others hears those whom it asks: it is connected, and
/// does not count.
pub async fn hears_datagrams(node: &Node, hosted: &Hosted<'_>, server: &str) -> Result<Vec<u16>> {
    let selector = hosted.pods_of(server);
    let pods = pods(node, &["--namespace", Hosted::NAMESPACE, "--selector", &selector]).await?;
    let mut ports = Vec::new();
    for (own, process) in pods {
        let sockets = sockets(node, &["nsenter", "--target", &process, "--net", "ss", "-lunH"])?;
        let reached = sockets
            .into_iter()
            .filter(|(at, _)| *at != own && !at.starts_with("127.") && at != "[::1]");
        ports.extend(reached.filter_map(|(_, port)| port.parse::<u16>().ok()));
    }
    ports.sort_unstable();
    // One on each address or core is one to those who send.
    ports.dedup();
    Ok(ports)
}

/// Every place of the management side that takes TCP connections, `ADDRESS:PORT` each: of every Service, of every pod of
/// every namespace, and of the node itself. What a pod has on the VLAN alone is not among them.
pub async fn takes_connections(node: &Node) -> Result<Vec<String>> {
    let mut places = services(node).await?;
    let mut listen = |own: &str, command: &[&str]| -> Result<()> {
        let sockets = sockets(node, command)?.into_iter();
        let reached = sockets.filter(|(at, _)| at == own || ANY.contains(&at.as_str()));
        places.extend(reached.map(|(_, port)| format!("{own}:{port}")));
        Ok(())
    };
    for (own, process) in pods(node, &["--all-namespaces"]).await? {
        listen(&own, &["nsenter", "--target", &process, "--net", "ss", "-ltnH"])?;
    }
    let address = "--output=jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    let address = node.kubectl(&["get", "node", Node::NAME, address]).await?;
    listen(&address, &["ss", "-ltnH"])?;
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// The TCP ports of every Service that has an address.
async fn services(node: &Node) -> Result<Vec<String>> {
    let path = "--output=jsonpath={range .items[*]}{.spec.clusterIP}\
                {range .spec.ports[?(@.protocol==\"TCP\")]} {.port}{end}\n{end}";
    let services = node
        .kubectl(&["get", "services", "--all-namespaces", path])
        .await?;
    let places = services.lines().filter_map(|service| service.split_once(' '));
    let places = places.filter(|(address, _)| *address != "None");
    Ok(places
        .flat_map(|(address, ports)| ports.split(' ').map(move |port| format!("{address}:{port}")))
        .collect())
}

/// The chosen pods of this node that run and are to stay: the address of each, and a process in its network.
async fn pods(node: &Node, which: &[&str]) -> Result<Vec<(String, String)>> {
    let here = format!(
        "--field-selector=status.phase=Running,spec.nodeName={}",
        Node::NAME
    );
    let look = ["get", "pods", "--output=json", &here];
    let pods = node.kubectl(&[&look[..], which].concat()).await?;
    let pods: Value = serde_json::from_str(&pods).unwrap_or_default();
    let tasks = node.run("ctr", &["--namespace", "k8s.io", "tasks", "list"])?;
    let process_of = |pod: &Value| {
        let container = pod["status"]["containerStatuses"][0]["containerID"].as_str()?;
        let container = container.strip_prefix("containerd://")?;
        let task = tasks.lines().find(|task| task.starts_with(container))?;
        task.split_whitespace().nth(1).map(str::to_owned)
    };
    let pods = pods["items"].as_array().map_or(&[][..], Vec::as_slice);
    let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    Ok(pods
        .iter()
        .filter(stays)
        .filter_map(|pod| Some((pod["status"]["podIP"].as_str()?.to_owned(), process_of(pod)?)))
        .collect())
}

/// The addresses and ports that `ss` lists.
fn sockets(node: &Node, command: &[&str]) -> Result<Vec<(String, String)>> {
    let sockets = node.run(command[0], &command[1..])?;
    let sockets = sockets
        .lines()
        .filter_map(|socket| socket.split_whitespace().nth(3)?.rsplit_once(':'));
    Ok(sockets
        .map(|(at, port)| (at.to_owned(), port.to_owned()))
        .collect())
}
