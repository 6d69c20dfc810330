//! The battery against the native engine.

mod battery;

use std::net::IpAddr;
use std::sync::Arc;

use battery::{Engine, in_time, own_address};
use oooi_api::report::Recorded;
use oooi_proxy::metrics::Metrics;
use oooi_proxy::server::{Options, Server};
use oooi_proxy::snapshot::Snapshot;
use tokio::sync::{oneshot, watch};

struct Native {
    ip: IpAddr,
    metrics: Metrics,
    snapshots: watch::Sender<Arc<Snapshot>>,
    _shutdown: oneshot::Sender<()>,
}

impl Engine for Native {
    fn ip(&self) -> IpAddr {
        self.ip
    }

    async fn apply(&self, snapshot: Arc<Snapshot>) {
        let before = self.metrics.updates();
        self.snapshots.send_replace(snapshot);
        in_time("the update", async {
            while self.metrics.updates() == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

async fn start() -> Native {
    let ip = own_address();
    let mut options = Options::new(vec![ip]);
    options.threads = 2;
    let metrics = Metrics::default();
    let server = Server::new(options, metrics.clone(), Arc::new(Recorded::default()));
    let (snapshots, receiver) = watch::channel(Arc::default());
    let (shutdown, asked) = oneshot::channel::<()>();
    tokio::spawn(server.run(receiver, async { _ = asked.await }));
    in_time("the server's start", async {
        while metrics.updates() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    Native {
        ip,
        metrics,
        snapshots,
        _shutdown: shutdown,
    }
}

battery!(start);
