//! A worker of a hosted cluster, from its first packet to Ready.

use oooi_testkit::{Node, Worker, until};
use serde_json::json;

use crate::{Hosted, PATIENCE, Result};

/// Boots a virtual machine `name` on the VLAN: an address by DHCP, its configuration from ignition by name, then a
/// kubelet that registers through the gateway and a konnectivity agent. Gives it once its node is ready.
pub async fn join(node: &Node, hosted: &Hosted<'_>, name: &str) -> Result<Worker> {
    let mut tenant = hosted.tenant("booting").await?;
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": hosted.control_plane()},
        "spec": {"domain": {"devices": {"interfaces": [
            {"name": "iface1", "macAddress": tenant.hardware_address()?},
        ]}}},
    });
    node.apply(&machine.to_string()).await?;
    let address = tenant.boot().await?;
    let authority = hosted.authority().certificate();
    let ignition = format!("https://{}/ignition", hosted.published("ignition"));
    let trusted = authority.to_string_lossy();
    tenant.run(
        "curl",
        &[
            "--silent",
            "--show-error",
            "--fail",
            "--cacert",
            &trusted,
            &ignition,
        ],
    )?;

    let mut worker = Worker::start(node, tenant, address, &hosted.bootstrap()?, authority).await?;
    let agent = hosted.authority().client("konnectivity-agent", None)?;
    worker.serve(
        "konnectivity-agent",
        &node.parts().program("konnectivity-agent"),
        &[
            format!("--ca-cert={trusted}"),
            format!("--agent-cert={}", agent.certificate.display()),
            format!("--agent-key={}", agent.key.display()),
            format!("--proxy-server-host={}", hosted.published("konnectivity")),
            "--proxy-server-port=443".to_owned(),
            "--sync-interval=1s".to_owned(),
            "--sync-interval-cap=2s".to_owned(),
            "--probe-interval=1s".to_owned(),
            "--keepalive-time=30s".to_owned(),
        ],
    )?;
    let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    until("the worker to be ready", PATIENCE, async || {
        worker.check().map_err(|error| error.to_string())?;
        match hosted.administer(&["get", "node", name, "--output", ready]).await {
            Ok(answer) if answer == "True" => Ok(()),
            Ok(answer) => Err(format!("Ready is `{answer}`")),
            Err(error) => Err(error.to_string()),
        }
    })
    .await?;
    Ok(worker)
}
