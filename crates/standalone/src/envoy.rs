//! The gateway by an Envoy: its control plane here, the Envoy beside it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use oooi_proxy::snapshot::Snapshot;
use oooi_xds::ads::ControlPlane;
use oooi_xds::bootstrap::{Bootstrap, DRAIN_TIME, Endpoint};
use oooi_xds::supervisor::Supervisor;
use tokio::sync::watch;

use crate::up::{Failure, Part, Run};

/// Envoy's own port for its administration.
const ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9901);
/// Connections at a time, at most.
const CONNECTIONS: u64 = 10_000;

/// Runs until the part ends.
pub(crate) async fn run(run: Run, part: Part<Snapshot>, binary: PathBuf) -> Result<(), Failure> {
    let metrics = oooi_xds::metrics::Metrics::default();
    run.options
        .metrics
        .replace("proxy", |registry| metrics.register(registry));
    let report = run.options.report.clone();
    let control = ControlPlane::new(part.first.gateway_addresses(), metrics, report.clone());
    let snapshots = part.sender.subscribe();
    control.update(&snapshots.borrow().clone());
    let anywhere = Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listener = oooi_xds::server::Listener::bind(&anywhere).await?;
    let supervisor = Supervisor {
        binary,
        bootstrap: Bootstrap {
            node: "oooi".into(),
            xds: listener.endpoint()?,
            admin: ADMIN,
            connections: oooi_proxy::server::connections(CONNECTIONS),
        },
        threads: None,
        drain_time: DRAIN_TIME,
    };
    run.options.failing.set("proxy", None);
    let (level, levels) = watch::channel(snapshots.borrow().log_level);
    let mut changes = snapshots.clone();
    let follow_level = async move {
        while changes.changed().await.is_ok() {
            level.send_replace(changes.borrow_and_update().log_level);
        }
    };
    let follow = {
        let control = control.clone();
        async move { tokio::join!(control.follow(snapshots), follow_level) }
    };
    let following = tokio::spawn(follow);

    // Both end together: when the part does.
    let (end, ended) = watch::channel(false);
    let until = |mut ended: watch::Receiver<bool>| async move {
        let _ = ended.wait_for(|ended| *ended).await;
    };
    let watching = async {
        run.until_it_ends(&part).await;
        end.send_replace(true);
    };
    let serving = oooi_xds::server::run(listener, &control, until(ended.clone()));
    let supervising = supervisor.run(levels, report, until(ended));
    let (served, (), ()) = tokio::join!(serving, supervising, watching);
    following.abort();
    Ok(served?)
}
