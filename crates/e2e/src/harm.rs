//! What is done to the cluster.

mod configuration;
mod replicas;

use std::time::Duration;

use oooi_testkit::{Error, Node, Tenant, until};
use serde_json::{Value, json};

pub use self::configuration::change_configuration;
pub use self::replicas::{address_on, double, forget, kill_one, lose, reboot_one, settled};
use crate::{Hosted, PATIENCE, Result};

/// Drops every packet to the management API server. Those to the hosted one pass through the node.
const SILENCE: &str =
    "table ip fault { chain input { type filter hook input priority -300; tcp dport 6443 drop; }; }";

/// More machines than leases fit into a block.
const NEWCOMERS: usize = 60;

/// How long a wall clock is wrong.
const WRONG: Duration = Duration::from_secs(5);

/// Longer than any lease, in seconds.
const DAY: i64 = 24 * 3600;

/// What a cluster has on its VLAN.
const SERVERS: [&str; 3] = ["dhcp", "dns", "proxy"];

/// The management API server answers nobody for a while.
pub async fn silence_the_api_server(node: &Node, time: Duration) -> Result<()> {
    node.run("nft", &[SILENCE])?;
    tokio::time::sleep(time).await;
    node.run("nft", &["delete table ip fault"]).map(drop)
}

/// Ends pods within a second, and waits until they are gone.
async fn kill_pods(node: &Node, namespace: &str, which: &[&str]) -> Result<()> {
    let delete = ["delete", "pod", "--grace-period=1", "--namespace", namespace];
    node.kubectl(&[&delete[..], which].concat()).await.map(drop)
}

/// Ends every manager.
pub async fn kill_managers(node: &Node) -> Result<()> {
    let managers = "--selector=app.kubernetes.io/component=manager";
    kill_pods(node, "oooi-system", &[managers]).await
}

/// Stops the leading manager until another leads, and lets it go on believing that it leads. Whatever there is stays
/// the same object, and what is asked for meanwhile is served.
pub async fn two_leaders(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let before = hosted.objects().await?;
    let former = leads(node, "").await?;
    node.signal_pod("oooi-system", &former, "SIGSTOP").await?;
    leads(node, &former).await?;
    node.signal_pod("oooi-system", &former, "SIGCONT").await?;
    let entry = json!([{"hostname": "two.example.com", "ip": "192.0.2.2"}]);
    let spec = json!({"infraComponents": {"dns": {"staticEntries": entry}}});
    hosted.change(&spec).await?;
    hosted.ready().await?;
    // Whoever led before ends, and starts again as a candidate.
    let restarted = ["--output=jsonpath={.status.containerStatuses[0].restartCount}"];
    until("the former leader to end", PATIENCE, async || {
        let look = ["get", "pod", &former, "--namespace=oooi-system"];
        match node.kubectl(&[&look[..], &restarted].concat()).await {
            Ok(count) if count != "0" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    let after = hosted.objects().await?;
    if before == after {
        return Ok(());
    }
    Err(wrong(
        "two managers at once changed which objects there are",
        format!("before:\n{before}\nafter:\n{after}"),
    ))
}

/// What a fault must not do.
fn wrong(what: &str, seen: String) -> Error {
    Error::Io {
        what: what.to_owned(),
        source: std::io::Error::other(seen),
    }
}

/// The pod of the manager that leads, once that is there and another one than `former`.
async fn leads(node: &Node, former: &str) -> Result<String> {
    until("a manager to lead", PATIENCE, async || {
        let own = "--namespace=oooi-system";
        let holder = "--output=jsonpath={.spec.holderIdentity}";
        let leader = node.kubectl(&["get", "lease", "oooi-manager", own, holder]).await;
        let leader = leader.map_err(|error| error.to_string())?;
        match node.kubectl(&["get", "pod", &leader, own]).await {
            Ok(_) if leader != former => Ok(leader),
            other => Err(format!("{leader} leads: {other:?}")),
        }
    })
    .await
}

/// Ends the pods of a server.
pub async fn kill(node: &Node, hosted: &Hosted<'_>, server: &str) -> Result<()> {
    let own = format!("--selector={}", hosted.pods_of(server));
    kill_pods(node, Hosted::NAMESPACE, &[&own]).await
}

/// Ends the only pod of the DHCP server, whose leases lie on a volume: the next pod has every one of them.
pub async fn move_dhcp(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let holders = async || -> Result<Vec<String>> {
        let leases = hosted.leases().await?;
        let who = leases.iter();
        Ok(who
            .map(|lease| format!("{} {}", lease["address"], lease["mac"]))
            .collect())
    };
    let before = holders().await?;
    kill(node, hosted, "dhcp").await?;
    rolled_out(node, &format!("{}-dhcp", hosted.name())).await?;
    let after = holders().await?;
    let lost = before.iter().any(|holder| !after.contains(holder));
    if lost || before.is_empty() {
        return Err(wrong(
            "the volume of the leases does not have what it had",
            format!("before: {before:?}, after: {after:?}"),
        ));
    }
    Ok(())
}

/// Sets the wall clock of the DHCP server's pod so many seconds ahead of the real one, in one step. Its volume has the
/// file that `testbed/wall_clock.c` reads.
fn set_clock(node: &Node, volume: &str, seconds: i64) -> Result<()> {
    let file = format!("{volume}/wall-clock");
    let write = "echo \"$0\" > \"$1.new\"; mv \"$1.new\" \"$1\"";
    node.run("sh", &["-ec", write, &seconds.to_string(), &file])
        .map(drop)
}

/// The wall clock of a running DHCP server goes a day ahead, then a day behind, and is right again.
pub async fn jump(node: &Node, volume: &str) -> Result<()> {
    for seconds in [DAY, -DAY, 0] {
        set_clock(node, volume, seconds)?;
        tokio::time::sleep(WRONG).await;
    }
    Ok(())
}

/// The same for that of two DHCP servers which stands on the first node: the other one's clock stays right. It has no
/// volume; what the image lacks can be put where its files lie. Its log shows that its clock jumped, and that it takes over
/// what is changed meanwhile.
pub async fn jump_of_one(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let own = hosted.pods_of("dhcp");
    let files = node.files_of(Hosted::NAMESPACE, &own, "dhcp").await?;
    let folder = format!("{files}/var/lib/oooi");
    node.run("mkdir", &["--parents", &folder])?;
    let here = format!("--field-selector=spec.nodeName={}", Node::NAME);
    let name = "--output=jsonpath={.items[*].metadata.name}";
    let look = [
        "get",
        "pods",
        "--namespace",
        Hosted::NAMESPACE,
        "--selector",
        &own,
    ];
    let pod = node.kubectl(&[&look[..], &[&here, name]].concat()).await?;
    for (seconds, time) in [(DAY, json!("59m")), (-DAY, json!("58m")), (0, Value::Null)] {
        set_clock(node, &folder, seconds)?;
        hosted
            .change(&json!({"infraComponents": {"dhcp": {"leaseTime": time}}}))
            .await?;
        hosted.ready().await?;
        let there = format!("--date={seconds} seconds");
        let date = node.run("date", &["--utc", &there, "+%Y-%m-%d"])?;
        let said = format!("\"timestamp\":\"{}", date.trim());
        until("the server to say its date", PATIENCE, async || {
            let look = ["logs", "--namespace", Hosted::NAMESPACE, &pod, "--tail=1"];
            match node.kubectl(&look).await {
                Ok(log) if log.contains(&said) => Ok(()),
                other => Err(format!("{said}: {other:?}")),
            }
        })
        .await?;
    }
    Ok(())
}

/// The DHCP server's pod is replaced by one whose wall clock is a day ahead, so that every lease is over by it, and that
/// one by a third whose clock is right. Whoever had an address has it still.
pub async fn restart_tomorrow(node: &Node, hosted: &Hosted<'_>, volume: &str) -> Result<()> {
    let tomorrow = node.run("date", &["--utc", "--date=+23 hours", "+%Y-%m-%dT%H:%M:%SZ"])?;
    for seconds in [DAY, 0] {
        set_clock(node, volume, seconds)?;
        move_dhcp(node, hosted).await?;
        // A clock that did not jump would prove nothing. Who was a day ahead stays there: time never goes back.
        until("a renewal of tomorrow", PATIENCE, async || {
            let leases = hosted.leases().await.map_err(|error| error.to_string())?;
            let since = |lease: &Value| lease["since"].as_str().unwrap_or_default().to_owned();
            match leases.iter().any(|lease| since(lease).as_str() > tomorrow.trim()) {
                true => Ok(()),
                false => Err(format!("{leases:?}")),
            }
        })
        .await?;
    }
    Ok(())
}

/// Ends the pods of all servers at once.
pub async fn kill_all(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    let [dhcp, dns, proxy] = SERVERS.map(|server| format!("{}-{server}", hosted.name()));
    let all = format!("--selector=app.kubernetes.io/instance in ({dhcp},{dns},{proxy})");
    kill_pods(node, Hosted::NAMESPACE, &[&all]).await
}

/// Kills the process of a container in the gateway on the first node; the kubelet starts it again.
pub async fn kill_in_gateway(node: &Node, hosted: &Hosted<'_>, container: &str) -> Result<()> {
    node.kill_container(Hosted::NAMESPACE, &hosted.pods_of("proxy"), container)
        .await
}

/// Replaces a backend, as a rollout does.
pub async fn replace_backend(hosted: &Hosted<'_>) -> Result<()> {
    let deployment = "deployment/ignition-server-proxy";
    hosted.within(&["rollout", "restart", deployment]).await?;
    hosted
        .within(&["rollout", "status", deployment, "--timeout=60s"])
        .await
        .map(drop)
}

async fn rolled_out(node: &Node, deployment: &str) -> Result<()> {
    let deployment = format!("deployment/{deployment}");
    let status = [
        "rollout",
        "status",
        &deployment,
        "--namespace",
        Hosted::NAMESPACE,
        "--timeout=120s",
    ];
    node.kubectl(&status).await.map(drop)
}

/// Reboots the node; waits until the hosted control plane and every server are back.
pub async fn reboot(node: &Node, hosted: &Hosted<'_>) -> Result<()> {
    node.reboot()?;
    hosted.stands().await?;
    hosted.ready().await
}

/// Gives the manager another image, and by it every server, as an upgrade does; waits until all run it.
pub async fn upgrade(node: &Node, hosted: &Hosted<'_>, image: &str) -> Result<()> {
    node.tag_own_image(image)?;
    let own = ["--namespace", "oooi-system"];
    let servers = json!([{"name": "RELATED_IMAGE_OOOI", "value": image}]);
    let manager = json!({"containers": [{"name": "manager", "image": image, "env": servers}]});
    let patch = json!({"spec": {"template": {"spec": manager}}}).to_string();
    let patch = ["patch", "deployment/oooi-manager", "--patch", &patch];
    node.kubectl(&[&patch[..], &own].concat()).await?;
    let rolled = ["rollout", "status", "deployment/oooi-manager", "--timeout=120s"];
    node.kubectl(&[&rolled[..], &own[..]].concat()).await?;
    let path = "--output=jsonpath={range .items[*]}{.spec.template.spec.containers[*].image}:\
                {.metadata.generation}={.status.observedGeneration},{.status.availableReplicas}\n{end}";
    let selector = "--selector=app.kubernetes.io/managed-by=oooi";
    until("every server to run the new image", PATIENCE, async || {
        let look = [
            "get",
            "deployments",
            "--namespace",
            Hosted::NAMESPACE,
            selector,
            path,
        ];
        let said = node.kubectl(&look).await.map_err(|error| error.to_string())?;
        let done = |line: &str| {
            let generations = line.rsplit(':').next().and_then(|rest| rest.split_once('='));
            let up = generations.is_some_and(|(wanted, seen)| seen == format!("{wanted},1"));
            line.contains(image) && up
        };
        if said.lines().all(done) { Ok(()) } else { Err(said) }
    })
    .await?;
    hosted.ready().await
}

/// Fills the volume of the leases until machines that come to the VLAN get none. The next one does once there is room.
pub async fn fill(node: &Node, hosted: &Hosted<'_>, volume: &str) -> Result<()> {
    let file = format!("{volume}/full");
    let newcomer = hosted.tenant("newcomer").await?;
    // It ends when nothing fits any more: that is what is wanted.
    node.run("sh", &["-c", "cat /dev/zero > \"$0\" 2>/dev/null || true", &file])?;
    // The last block of the journal has room for some.
    let served = (0..NEWCOMERS)
        .take_while(|number| is_served(&newcomer, *number))
        .count();
    node.run("rm", &[&file])?;
    if served == NEWCOMERS {
        return Err(wrong(
            "leases were given on a full volume",
            format!("all of {NEWCOMERS} got one"),
        ));
    }
    until("a machine to get a lease again", PATIENCE, async || {
        if is_served(&newcomer, NEWCOMERS) {
            Ok(())
        } else {
            Err("it got none")
        }
    })
    .await
}

/// Whether a machine that is new on the VLAN gets a lease. Its identifier is long: the sooner a block is full.
fn is_served(tenant: &Tenant, number: usize) -> bool {
    let hardware = format!("02:00:00:00:77:{number:02x}");
    let identifier = format!("0x3d:00{number:0>200}");
    let client = format!("-f -n -q -i eth0 -s /bin/true -t 2 -T 1 -A 1 -x {identifier}");
    let client: Vec<&str> = client.split(' ').collect();
    tenant
        .run("ip", &["link", "set", "eth0", "address", &hardware])
        .is_ok()
        && tenant.run("udhcpc", &client).is_ok()
}
