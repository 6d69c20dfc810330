//! What breaks, and what of the traffic is lost by it: the table of allowed losses is here. Needs root, the testbed
//! and the image. The table that was measured is printed, and its page written to the file that `RELIABILITY` names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use oooi_e2e::{
    Allowed, Api, EVERYTHING, GATEWAY, Hosted, REPLACED, Result, Run, deploy, harm, is_whole, join,
    run_probe, traffic,
};
use oooi_testkit::{Node, SecondNode, Tenant};

/// How long the management API server answers nobody.
const SILENT: Duration = Duration::from_secs(60);
/// How many seconds the kubelet may take to start a container again.
const RESTARTED: u64 = 20;
/// How many seconds a node may take from its start until everything on it serves, the hosted control plane included.
const BOOTED: u64 = 120;
/// How many seconds a client may take to notice that nobody answers on a connection, and to open another: ten, five to
/// ask the next resolver, two to try the next address, and what a busy machine adds.
const NOTICED: u64 = 25;
/// Connections that stood when their pod died. A new one is taken by the other pod.
const STOOD: Allowed = &[("held", 10), ("watch", 10), ("bulk", 10)];
/// The change of everything that is taken over while servers run.
const CHANGED: &str = "configuration of each kind changed and taken back";
/// How long a resolver is waited for before the next one is asked.
const NEXT_RESOLVER: Duration = Duration::from_secs(1);

/// One of each server, and the native engine.
async fn alone(run: &mut Run<'_>, leases: &str) -> Result<()> {
    run.fault("nothing", &[], async |_, _| Ok(())).await?;
    run.around_the_servers(SILENT).await?;
    run.fault("two managers that lead at once", &[], harm::two_leaders)
        .await?;
    run.fault(CHANGED, &[], harm::change_configuration).await?;
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
        "volume of the leases full",
        &[("leases", RESTARTED)],
        async |node, hosted| harm::fill(node, hosted, leases).await,
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
    .await?;
    run.fault(
        "another image for one of each",
        EVERYTHING,
        async |node, hosted| harm::upgrade(node, hosted, "localhost/oooi:next").await,
    )
    .await
}

/// Two of each server on two nodes, and a machine that knows both.
struct Two<'a, 'b> {
    run: &'a mut Run<'b>,
    booted: Tenant,
    leasing: Tenant,
}

impl<'a, 'b> Two<'a, 'b> {
    async fn boot(run: &'a mut Run<'b>, hosted: &Hosted<'_>) -> Result<Self> {
        let mut booted = hosted.tenant("booted").await?;
        booted.boot().await?;
        let leasing = hosted.tenant("leasing-too").await?;
        run.go_on_through(Node::NAME, &booted, &leasing).await?;
        Ok(Self { run, booted, leasing })
    }

    /// Harms a gateway on a node while all traffic goes through it, so that connections which stood must be lost.
    async fn harm_on(
        &mut self,
        member: &str,
        what: &str,
        allowed: Allowed,
        act: impl AsyncFnOnce(&Node, &Hosted<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { run, booted, leasing } = self;
        run.go_on_through(member, booted, leasing).await?;
        run.fault(what, allowed, act).await?;
        run.must_have_seen(&["held", "watch", "bulk"], |seen| seen.failed > 0);
        Ok(())
    }

    /// Everything but the loss of a node, with Envoy first.
    async fn faults(&mut self) -> Result<()> {
        // While every manager is on the first node, where it can be stopped.
        self.run
            .fault("two managers that lead at once", &[], harm::two_leaders)
            .await?;
        self.run.around_the_servers(SILENT).await?;
        self.run.fault(CHANGED, &[], harm::change_configuration).await?;
        self.run
            .fault(
                "xDS manager of one of two gateways killed",
                &[],
                async |node, hosted| {
                    harm::kill_in_gateway(node, hosted, "proxy").await?;
                    hosted.ready().await
                },
            )
            .await?;
        let kill = async |node: &Node, hosted: &Hosted<'_>| harm::kill_one(node, hosted, "proxy").await;
        self.harm_on(
            Node::NAME,
            "Envoy of one of two gateways killed",
            STOOD,
            async |node, hosted| harm::kill_in_gateway(node, hosted, "envoy").await,
        )
        .await?;
        self.harm_on(Node::NAME, "one of two gateway pods killed", STOOD, kill)
            .await?;
        self.run
            .fault("one of two DNS pods killed", &[], async |node, hosted| {
                harm::kill_one(node, hosted, "dns").await
            })
            .await?;
        // A client renews with the server that it knows, and asks all of them later.
        self.run
            .fault(
                "one of two DHCP pods killed",
                &[("leases", REPLACED)],
                async |node, hosted| harm::kill_one(node, hosted, "dhcp").await,
            )
            .await?;
        self.run
            .fault(
                "wall clock of one of two DHCP servers a day ahead, then behind",
                &[],
                harm::jump_of_one,
            )
            .await?;
        let replaced: Allowed = &[("held", 10), ("watch", 10), ("bulk", 10), ("leases", REPLACED)];
        self.harm_on(
            Node::NAME,
            "another image for two of each",
            replaced,
            async |node, hosted| harm::upgrade(node, hosted, "localhost/oooi:later").await,
        )
        .await?;
        self.harm_on(
            Node::NAME,
            "two gateways moved from Envoy to the native engine",
            STOOD,
            async |node, hosted| {
                hosted.choose_engine("Native").await?;
                harm::settled(node, hosted).await
            },
        )
        .await?;
        self.harm_on(
            Node::NAME,
            "one of two gateway pods killed, native engine",
            STOOD,
            kill,
        )
        .await
    }

    /// The second node, with one of each server on it, reboots; then it goes without a word and does not come back.
    async fn loss_of_a_node(&mut self, second: SecondNode) -> Result<()> {
        let lost: Allowed = &[
            ("held", NOTICED),
            ("watch", NOTICED),
            ("bulk", NOTICED),
            ("leases", REPLACED),
        ];
        self.harm_on(
            SecondNode::NAME,
            "one of two nodes rebooted",
            lost,
            async |node, hosted| harm::reboot_one(node, hosted, &second).await,
        )
        .await?;
        self.harm_on(
            SecondNode::NAME,
            "one of two nodes lost",
            lost,
            async |node, hosted| harm::lose(node, hosted, second).await,
        )
        .await?;
        self.run
            .must_have_seen(&["names"], |seen| seen.slowest >= NEXT_RESOLVER);
        self.run
            .fault("its pods come back on the other node", &[], harm::forget)
            .await
    }
}

#[tokio::test]
async fn what_worked_goes_on_when_something_breaks() {
    let node = Node::shared().await.unwrap();
    let leases = node.volume("gamma-leases").await.unwrap();
    // Of a size that can be filled.
    node.run("mount", &["-t", "tmpfs", "-o", "size=8m", "leases", &leases])
        .unwrap();
    let (deployed, hosted) = tokio::join!(deploy(node), Hosted::start(node, "gamma", node.vlan(), Api::Name));
    deployed.unwrap();
    let hosted = hosted.unwrap();
    hosted.annotate("192.168.102.0/24", "Native").await.unwrap();
    hosted.ready().await.unwrap();
    let mut worker = join(node, &hosted, "gamma-workers-1").await.unwrap();
    run_probe(&hosted, &worker).await.unwrap();
    is_whole(&hosted, &mut worker).await.unwrap();
    let leasing = hosted.tenant("leasing").await.unwrap();
    let watched = traffic(&hosted, worker.tenant(), &leasing, &[]).unwrap();
    let mut run = Run::new(node, &hosted, watched);
    alone(&mut run, &leases).await.unwrap();
    is_whole(&hosted, &mut worker).await.unwrap();
    with_envoy(&mut run).await.unwrap();
    is_whole(&hosted, &mut worker).await.unwrap();

    let second = SecondNode::start(node).await.unwrap();
    for image in ["localhost/oooi:next", "localhost/oooi:later"] {
        second.import_own_image(image).unwrap();
    }
    run.fault("two of each instead of one", EVERYTHING, harm::double)
        .await
        .unwrap();
    let mut two = Two::boot(&mut run, &hosted).await.unwrap();
    two.faults().await.unwrap();
    is_whole(&hosted, &mut worker).await.unwrap();
    two.loss_of_a_node(second).await.unwrap();
    is_whole(&hosted, &mut worker).await.unwrap();

    let (page, broken) = run.end();
    drop(worker);
    hosted.delete().await.unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    // What broke is not what is promised: the page stays as it is.
    if let Some(path) = std::env::var_os("RELIABILITY") {
        std::fs::write(path, page).unwrap();
    }
}
