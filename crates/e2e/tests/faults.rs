//! What breaks, and what of the traffic is lost by it: the table of allowed losses is here. Needs root, the testbed
//! and the image. The table that was measured is printed, and written to the file that `RELIABILITY` names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use oooi_e2e::{Allowed, EVERYTHING, GATEWAY, Hosted, REPLACED, Result, Run, deploy, harm, join, traffic};
use oooi_testkit::{Node, SecondNode};

/// What stands above the table in the documentation.
const PAGE: &str = include_str!("../scene/reliability.md");

/// How many seconds the kubelet may take to start a container again.
const RESTARTED: u64 = 20;
/// How many seconds a node may take from its start until everything on it serves, the hosted control plane included.
const BOOTED: u64 = 120;
/// How many seconds a client may take to notice that nobody answers on a connection, and to open another.
const NOTICED: u64 = 20;
/// Connections that stood when their pod died. A new one is taken by the other pod.
const STOOD: Allowed = &[("held", 10), ("watch", 10), ("bulk", 10)];

/// One of each server, and the native engine.
async fn alone(run: &mut Run<'_>, leases: &str) -> Result<()> {
    run.fault("nothing", &[], async |_, _| Ok(())).await?;
    run.around_the_servers(Duration::from_secs(60)).await?;
    run.fault("two managers that lead at once", &[], harm::two_leaders)
        .await?;
    run.fault(
        "configuration of each server changed",
        &[],
        harm::change_configuration,
    )
    .await?;
    run.fault("gateway pod killed", GATEWAY, async |node, hosted| {
        harm::kill(node, hosted, "proxy").await
    })
    .await?;
    let names: Allowed = &[("names", REPLACED), ("connections", REPLACED)];
    run.fault("DNS pod killed", names, async |node, hosted| {
        harm::kill(node, hosted, "dns").await
    })
    .await?;
    run.fault(
        "DHCP pod killed, its leases on a volume",
        &[("leases", REPLACED)],
        harm::move_dhcp,
    )
    .await?;
    run.fault(
        "volume of the leases full for 15 s",
        &[("leases", RESTARTED)],
        async |node, _| harm::fill(node, leases).await,
    )
    .await?;
    run.fault(
        "DHCP's wall clock a day ahead, then behind",
        &[],
        async |node, _| harm::jump(node, leases).await,
    )
    .await?;
    run.fault(
        "DHCP pod replaced by one a day ahead, then by one in time",
        &[("leases", REPLACED)],
        async |node, hosted| harm::restart_tomorrow(node, hosted, leases).await,
    )
    .await?;
    let booted: Allowed = &[
        ("connections", BOOTED),
        ("held", BOOTED),
        ("watch", BOOTED),
        ("bulk", BOOTED),
        ("names", BOOTED),
        ("leases", BOOTED),
    ];
    run.fault("the node rebooted", booted, harm::reboot).await
}

/// The same gateway with Envoy.
async fn with_envoy(run: &mut Run<'_>) -> Result<()> {
    run.fault(
        "gateway moved from the native engine to Envoy",
        GATEWAY,
        async |_, hosted| {
            hosted.choose_engine("Envoy").await?;
            hosted.ready().await
        },
    )
    .await?;
    run.fault("xDS manager killed", &[], async |node, hosted| {
        harm::kill_in_gateway(node, hosted, "proxy").await?;
        hosted.ready().await
    })
    .await?;
    let restarted: Allowed = &[
        ("connections", RESTARTED),
        ("held", RESTARTED),
        ("watch", RESTARTED),
        ("bulk", RESTARTED),
    ];
    run.fault("Envoy killed", restarted, async |node, hosted| {
        harm::kill_in_gateway(node, hosted, "envoy").await
    })
    .await
}

/// Two of each server, with Envoy.
async fn two_of_each(run: &mut Run<'_>) -> Result<()> {
    run.fault("one of two gateway pods killed", STOOD, async |node, hosted| {
        harm::kill_first(node, hosted, "proxy").await
    })
    .await?;
    run.fault("one of two DNS pods killed", &[], async |node, hosted| {
        harm::kill_first(node, hosted, "dns").await
    })
    .await?;
    // A client renews with the server that it knows, and asks all of them later.
    run.fault(
        "one of two DHCP pods killed",
        &[("leases", REPLACED)],
        async |node, hosted| harm::kill_first(node, hosted, "dhcp").await,
    )
    .await?;
    let upgraded: Allowed = &[("held", 10), ("watch", 10), ("bulk", 10), ("leases", REPLACED)];
    run.fault("another image for two of each", upgraded, async |node, hosted| {
        harm::upgrade(node, hosted, "localhost/oooi:next").await
    })
    .await
}

/// The second of two nodes, with one of each server on it, goes without a word and does not come back.
async fn one_of_two_nodes(run: &mut Run<'_>, second: SecondNode) -> Result<()> {
    let lost: Allowed = &[
        ("held", NOTICED),
        ("watch", NOTICED),
        ("bulk", NOTICED),
        ("leases", REPLACED),
    ];
    run.fault("one of two nodes lost", lost, async |node, hosted| {
        harm::lose(node, hosted, second).await
    })
    .await?;
    run.fault("its pods come back on the other node", &[], harm::forget)
        .await
}

#[tokio::test]
async fn what_worked_goes_on_when_something_breaks() {
    let node = Node::shared().await.unwrap();
    let leases = node.volume("gamma-leases").await.unwrap();
    // Of a size that can be filled.
    node.run("mount", &["-t", "tmpfs", "-o", "size=8m", "leases", &leases])
        .unwrap();
    let (deployed, hosted) = tokio::join!(deploy(node), Hosted::start(node, "gamma", node.vlan()));
    deployed.unwrap();
    let hosted = hosted.unwrap();
    hosted.annotate("192.168.102.0/24", "Native").await.unwrap();
    hosted.ready().await.unwrap();
    let worker = join(node, &hosted, "gamma-workers-1").await.unwrap();
    let leasing = hosted.tenant("leasing").await.unwrap();
    let watched = traffic(&hosted, worker.tenant(), &leasing).unwrap();
    let mut run = Run::new(node, &hosted, watched);
    alone(&mut run, &leases).await.unwrap();
    with_envoy(&mut run).await.unwrap();

    let second = SecondNode::start(node).await.unwrap();
    second.import_own_image("localhost/oooi:next").unwrap();
    run.fault("two of each instead of one", EVERYTHING, harm::double)
        .await
        .unwrap();
    // Who boots now knows both of each.
    let mut booted = hosted.tenant("booted").await.unwrap();
    booted.boot().await.unwrap();
    let leasing = hosted.tenant("leasing-too").await.unwrap();
    run.go_on_with(traffic(&hosted, &booted, &leasing).unwrap());
    two_of_each(&mut run).await.unwrap();
    one_of_two_nodes(&mut run, second).await.unwrap();

    let (table, broken) = run.end();
    if let Some(path) = std::env::var_os("RELIABILITY") {
        std::fs::write(path, format!("{PAGE}{table}")).unwrap();
    }
    drop(worker);
    hosted.delete().await.unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
