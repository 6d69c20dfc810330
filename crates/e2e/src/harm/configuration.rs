//! Changes of what the servers are told.

use oooi_testkit::{Error, Node, until};
use serde_json::{Value, json};

use super::wrong;
use crate::{Hosted, PATIENCE, Result};

/// HyperShift's Service for the applications of the cluster of the scene.
const APPLICATIONS: &str = "default-ingress-passthrough-service-x7k2p";

/// Shows what a DHCP client is given.
const SHOW_OPTIONS: &str = "\
printf '#!/bin/sh\\nenv\\n' > /run/show; chmod +x /run/show
udhcpc -n -q -f -i eth0 -O tftp -s /run/show
";

/// A resolver at an address of the node that knows every name by one address.
const UPSTREAM: &str = r#"
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], 53))
while True:
    query, client = server.recvfrom(1500)
    question = query[12 : query.index(0, 12) + 5]
    head = query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0"
    server.sendto(head + question + b"\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\xc0\0\2\7", client)
"#;

/// Changes something of each kind that is taken over while the servers run, one after another. A machine that boots
/// afterwards sees all of it; then everything is taken back.
pub async fn change_configuration(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let mut booted = hosted.tenant("changed").await?;
    let network = hosted.address_of("dns").await?;
    // Far from what servers and other machines are given.
    let own = format!("{}.254", network.rsplit_once('.').unwrap_or_default().0);
    let reservation = json!([{"mac": booted.hardware_address()?, "address": own}]);
    let address = "--output=jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    let upstream = node.kubectl(&["get", "node", Node::NAME, address]).await?;
    let mut resolver = node.command("python3");
    resolver.args(["-c", UPSTREAM, &upstream]);
    let mut resolver = oooi_testkit::spawn(resolver).map_err(|source| Error::Io {
        what: "cannot start a resolver".to_owned(),
        source,
    })?;
    publish_applications(node, hosted).await?;
    for (part, fields) in [
        (
            "dhcp",
            json!({"options": [{"code": 66, "value": "boot.example.com"}]}),
        ),
        ("dhcp", json!({"leaseTime": "30m"})),
        ("dhcp", json!({"reservations": reservation})),
        (
            "dns",
            json!({"staticEntries": [{"hostname": "added.example.com", "ip": "192.0.2.1"}]}),
        ),
        ("proxy", json!({"idleTimeout": "12h"})),
    ] {
        change(node, hosted, &json!({"infraComponents": {part: fields}})).await?;
        hosted.ready().await?;
    }
    change(
        node,
        hosted,
        &json!({"networkConfig": {"dnsServers": [upstream]}}),
    )
    .await?;
    hosted.ready().await?;

    let options = booted.run("sh", &["-ec", SHOW_OPTIONS])?;
    booted.boot().await?;
    let find = |name: &str| booted.run("getent", &["ahostsv4", name]);
    let (added, elsewhere) = (find("added.example.com")?, find("name.elsewhere.test")?);
    let given = ["boot.example.com", "lease=1800", &format!("ip={own}")].map(|one| options.contains(one));
    if given != [true; 3] || !added.starts_with("192.0.2.1 ") || !elsewhere.starts_with("192.0.2.7 ") {
        return Err(wrong(
            "the configuration says that it is served, and is not",
            format!("options:\n{options}\nadded:\n{added}\nfrom upstream:\n{elsewhere}"),
        ));
    }
    let application = format!("https://{}/", hosted.published("console.apps"));
    until("an application to be served", PATIENCE, async || {
        let ask = ["--insecure", "--silent", "--max-time", "5", &application];
        match booted.run("curl", &ask) {
            Ok(answer) if answer.contains("ignition-server-proxy of") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;

    let before = json!({
        "networkConfig": {"dnsServers": null},
        "infraComponents": {
            "dhcp": {"options": null, "leaseTime": null, "reservations": null},
            "dns": {"staticEntries": null},
            "proxy": {"idleTimeout": null},
        },
    });
    change(node, hosted, &before).await?;
    hosted.ready().await?;
    withdraw_applications(node, hosted).await?;
    until("no application to be known", PATIENCE, async || {
        match find(&hosted.published("console.apps")) {
            Ok(found) => Err(found),
            Err(_) => Ok(()),
        }
    })
    .await?;
    // Both fail only for what is gone already.
    let _ = resolver.kill();
    let _ = resolver.wait();
    Ok(())
}

/// Changes fields of the Infra that belong to people.
pub(super) async fn change(node: &Node, hosted: &Hosted<'_>, spec: &Value) -> Result<()> {
    patch(node, &format!("infra/{}", hosted.name()), spec).await
}

/// Adds a backend to the gateway: the applications of the cluster, as HyperShift publishes them. What answers here is
/// another server of the control plane.
async fn publish_applications(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let expose = ["expose", "deployment", "ignition-server-proxy", "--port=443"];
    let expose = [&expose[..], &["--target-port=8443", "--name", APPLICATIONS]].concat();
    hosted.within(&expose).await?;
    pass_through(node, hosted, json!(true)).await
}

/// Takes it back.
async fn withdraw_applications(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    pass_through(node, hosted, Value::Null).await?;
    hosted
        .within(&["delete", "service", APPLICATIONS])
        .await
        .map(drop)
}

async fn pass_through(node: &Node, hosted: &Hosted<'_>, passes: Value) -> Result<()> {
    let spec = json!({"platform": {"kubevirt": {"baseDomainPassthrough": passes}}});
    patch(node, &format!("hostedcluster/{}", hosted.name()), &spec).await
}

async fn patch(node: &Node, object: &str, spec: &Value) -> Result<()> {
    let patch = json!({"spec": spec}).to_string();
    let arguments = ["patch", object, "--type=merge", "--patch", &patch];
    let namespace = ["--namespace", Hosted::NAMESPACE];
    node.kubectl(&[&arguments[..], &namespace].concat())
        .await
        .map(drop)
}
