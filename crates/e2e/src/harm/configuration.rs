//! Changes of what the servers are told.

use std::{
    process::Child,
    sync::atomic::{AtomicU8, Ordering},
};

use oooi_testkit::{Error, Node, Tenant, until};
use serde_json::{Value, json};

use super::wrong;
use crate::{Hosted, PATIENCE, Result};

/// HyperShift's Service for the applications of the cluster of the scene.
const APPLICATIONS: &str = "default-ingress-passthrough-service-x7k2p";

/// Shows what a DHCP client is given that asks for an address, and gives it back.
const SHOW_OPTIONS: &str = "\
printf '#!/bin/sh\\nenv\\n' > /run/show; chmod +x /run/show
udhcpc -n -q -R -f -i eth0 -O tftp -O mtu -r \"$0\" -s /run/show
";

/// A resolver at an address and a port of the node that knows every name by one address, whose last byte is given.
const UPSTREAM: &str = r#"
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind((sys.argv[1], int(sys.argv[2])))
while True:
    query, client = server.recvfrom(1500)
    question = query[12 : query.index(0, 12) + 5]
    head = query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\x1e\0\4\xc0\0\2" + bytes([int(sys.argv[3])])
    server.sendto(head + question + answer, client)
"#;

/// Changes something of each kind that is taken over while the servers run, one after another. A machine that boots
/// afterwards sees all of it; then everything is taken back.
pub async fn change_configuration(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let mut booted = hosted.tenant("changed").await?;
    narrow_the_range(node, hosted, &booted).await?;
    let network = hosted.address_of("dns").await?;
    // Far from what servers and other machines are given.
    let own = format!("{}.254", network.rsplit_once('.').unwrap_or_default().0);
    let reservation = json!([{"mac": booted.hardware_address()?, "address": own}]);
    let address = "--output=jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
    let upstream = node.kubectl(&["get", "node", Node::NAME, address]).await?;
    let resolvers = [
        resolver(node, &upstream, "53", "7")?,
        resolver(node, &upstream, "5300", "8")?,
    ];
    let zone = json!({"zone": "zone.test", "upstreams": [format!("{upstream}:5300")]});
    publish_applications(hosted).await?;
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
        ("dns", json!({"forwardZones": [zone]})),
        ("proxy", json!({"idleTimeout": "12h"})),
        ("proxy", json!({"logLevel": "debug"})),
    ] {
        hosted.change(&json!({"infraComponents": {part: fields}})).await?;
        hosted.ready().await?;
    }
    for fields in [json!({"dnsServers": [upstream]}), json!({"mtu": 1400})] {
        hosted.change(&json!({"networkConfig": fields})).await?;
        hosted.ready().await?;
    }

    let options = booted.run("sh", &["-ec", SHOW_OPTIONS, &own])?;
    booted.boot().await?;
    let find = |name: &str| booted.run("getent", &["ahostsv4", name]);
    let names = ["added.example.com", "name.elsewhere.test", "name.zone.test"];
    let [added, elsewhere, forwarded] =
        names.map(|name| find(name).unwrap_or_else(|error| error.to_string()));
    let given = ["boot.example.com", "lease=1800", "mtu=1400", &format!("ip={own}")];
    let known = [
        (&added, "192.0.2.1 "),
        (&elsewhere, "192.0.2.7 "),
        (&forwarded, "192.0.2.8 "),
    ];
    if !given.iter().all(|one| options.contains(one))
        || !known.iter().all(|(found, one)| found.starts_with(one))
    {
        return Err(wrong(
            "the configuration says that it is served, and is not",
            format!(
                "options:\n{options}\nadded:\n{added}\nfrom upstream:\n{elsewhere}\nof the zone:\n{forwarded}"
            ),
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
    until("the gateway to say more", PATIENCE, async || {
        let own = format!("--selector={}", hosted.pods_of("proxy"));
        let look = [
            "logs",
            "--namespace",
            Hosted::NAMESPACE,
            &own,
            "--all-containers",
            "--tail=1000",
        ];
        let said = node.kubectl(&look).await.map_err(|error| error.to_string())?;
        // The native engine and Envoy.
        match said.contains("\"DEBUG\"") || said.contains("[debug]") {
            true => Ok(()),
            false => Err(format!("{} lines", said.lines().count())),
        }
    })
    .await?;

    let before = json!({
        "networkConfig": {"dnsServers": null, "mtu": null},
        "infraComponents": {
            "dhcp": {"options": null, "leaseTime": null, "reservations": null, "rangeStart": null, "rangeEnd": null},
            "dns": {"staticEntries": null, "forwardZones": null},
            "proxy": {"idleTimeout": null, "logLevel": null},
        },
    });
    hosted.change(&before).await?;
    hosted.ready().await?;
    withdraw_applications(hosted).await?;
    until("no application to be known", PATIENCE, async || {
        match find(&hosted.published("console.apps")) {
            Ok(found) => Err(found),
            Err(_) => Ok(()),
        }
    })
    .await?;
    for mut resolver in resolvers {
        // Both fail only for what is gone already.
        let _ = resolver.kill();
        let _ = resolver.wait();
    }
    Ok(())
}

/// Takes an address at its end from the range: a machine that asks for it gets it before, and another one afterwards. Then
/// the range is as it was, by hand: one that was chosen is kept.
async fn narrow_the_range(node: &Node, hosted: &Hosted<'_>, machine: &Tenant) -> Result<()> {
    // What a machine had is kept for it: the next one asks for another address.
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let server = format!("dhcpserver/{}-dhcp", hosted.name());
    let path = "--output=jsonpath={.spec.leaseConfig.rangeStart} {.spec.leaseConfig.rangeEnd}";
    let look = ["get", &server, "--namespace", Hosted::NAMESPACE, path];
    let range = node.kubectl(&look).await?;
    let (first, last) = range.split_once(' ').unwrap_or_default();
    let (network, host) = last.rsplit_once('.').unwrap_or_default();
    let host: u8 = host.parse().unwrap_or_default();
    let host = host.saturating_sub(COUNT.fetch_add(1, Ordering::Relaxed));
    let wish = format!("{network}.{host}");
    let narrower = format!("{network}.{}", host.saturating_sub(1));
    for (last, is_given) in [(last, true), (&narrower, false)] {
        set_range(hosted, first, last).await?;
        let options = machine.run("sh", &["-ec", SHOW_OPTIONS, &wish])?;
        if options.contains(&format!("ip={wish}\n")) != is_given {
            return Err(wrong(
                "the range says that it is served, and is not",
                format!("{first} to {last}, asked for {wish}:\n{options}"),
            ));
        }
    }
    set_range(hosted, first, last).await
}

async fn set_range(hosted: &Hosted<'_>, first: &str, last: &str) -> Result<()> {
    let range = json!({"rangeStart": first, "rangeEnd": last});
    hosted
        .change(&json!({"infraComponents": {"dhcp": range}}))
        .await?;
    hosted.ready().await
}

/// Starts a resolver.
fn resolver(node: &Node, address: &str, port: &str, last: &str) -> Result<Child> {
    let mut resolver = node.command("python3");
    resolver.args(["-c", UPSTREAM, address, port, last]);
    oooi_testkit::spawn(resolver).map_err(|source| Error::Io {
        what: "cannot start a resolver".to_owned(),
        source,
    })
}

/// Adds a backend to the gateway: the applications of the cluster, as HyperShift publishes them. What answers here is
/// another server of the control plane.
async fn publish_applications(hosted: &Hosted<'_>) -> Result<()> {
    let expose = ["expose", "deployment", "ignition-server-proxy", "--port=443"];
    let expose = [&expose[..], &["--target-port=8443", "--name", APPLICATIONS]].concat();
    hosted.within(&expose).await?;
    pass_through(hosted, json!(true)).await
}

/// Takes it back.
async fn withdraw_applications(hosted: &Hosted<'_>) -> Result<()> {
    pass_through(hosted, Value::Null).await?;
    hosted
        .within(&["delete", "service", APPLICATIONS])
        .await
        .map(drop)
}

async fn pass_through(hosted: &Hosted<'_>, passes: Value) -> Result<()> {
    let spec = json!({"platform": {"kubevirt": {"baseDomainPassthrough": passes}}});
    hosted.patch("hostedcluster", &spec).await
}
