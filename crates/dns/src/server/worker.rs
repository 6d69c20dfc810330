//! The cores: a thread, an event loop and a set of sockets each.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oooi_api::report::{Event, Report};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet, LocalSet};
use tokio::time::{Instant, sleep};

use super::addresses::Move;
use super::handler::Handler;
use super::listen::Bound;
use super::{RunError, Shared, tcp, udp};
use crate::upstream::Member;
use crate::upstream::exchange::Notice;
use crate::upstream::health::Change;
use crate::upstream::probe::Prober;
use crate::upstream::transport::Transport;
use crate::wire::name::Name;

/// How often a core shows that it lives, and closes what is unused.
const BEAT: Duration = Duration::from_secs(1);
/// How often lost upstreams are looked at.
const PROBE: Duration = Duration::from_millis(250);
/// For how long questions in flight may hold up the end.
const LINGER: Duration = Duration::from_secs(5);

/// Starts a thread for every core; the receiver gets a core's number when it ends.
pub(super) fn start(
    shared: &Arc<Shared>,
    changes: Vec<mpsc::UnboundedReceiver<Move>>,
    report: &Arc<dyn Report>,
    stopped: &watch::Receiver<bool>,
) -> Result<mpsc::UnboundedReceiver<usize>, RunError> {
    let (ended, receiver) = mpsc::unbounded_channel();
    for (core, changes) in changes.into_iter().enumerate() {
        let (shared, report) = (Arc::clone(shared), Arc::clone(report));
        let (stopped, ended) = (stopped.clone(), ended.clone());
        std::thread::Builder::new()
            .name(format!("dns-{core}"))
            .spawn(move || {
                if let Err(error) = run(core, changes, shared, report, stopped) {
                    tracing::error!(%error, core, "a core of the DNS server ended");
                }
                let _ = ended.send(core); // nobody waits any more
            })
            .map_err(RunError::Thread)?;
    }
    Ok(receiver)
}

fn run(
    core: usize,
    changes: mpsc::UnboundedReceiver<Move>,
    shared: Arc<Shared>,
    report: Arc<dyn Report>,
    stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(LocalSet::new().run_until(serve(core, changes, shared, report, stopped)))
}

async fn serve(
    core: usize,
    mut changes: mpsc::UnboundedReceiver<Move>,
    shared: Arc<Shared>,
    report: Arc<dyn Report>,
    mut stopped: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let transport = Rc::new(Transport::new(Arc::clone(&shared.tls)));
    let notice: Rc<dyn Notice> = Rc::new(Notices { report });
    let handler = Handler::new(
        Arc::clone(&shared),
        core,
        Rc::clone(&transport),
        Rc::clone(&notice),
    );
    let handler = Rc::new(handler);
    let mut readers = JoinSet::new();
    let mut sockets = Sockets::new(&handler);
    if core == 0 {
        readers.spawn_local(probe(
            Arc::clone(&shared),
            Prober::new(Rc::clone(&transport), shared.clock),
            notice,
        ));
    }
    readers.spawn_local(beat(Arc::clone(&shared), core, transport));
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            Some(change) = changes.recv() => sockets.change(change, &mut readers)?,
            // Sockets are read for ever: one that is not, though it was not closed, leaves the core useless.
            Some(ended) = readers.join_next() => if !ended.is_err_and(|error| error.is_cancelled()) {
                return Err(std::io::Error::other("a socket is not read any more"));
            },
        }
    }
    readers.abort_all();
    while readers.join_next().await.is_some() {}
    let deadline = Instant::now() + LINGER;
    while handler.outstanding.get() > 0 && Instant::now() < deadline {
        sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// The sockets of one core.
struct Sockets {
    handler: Rc<Handler>,
    room: Rc<tcp::Room>,
    open: HashMap<SocketAddr, [AbortHandle; 2]>,
}

impl Sockets {
    fn new(handler: &Rc<Handler>) -> Sockets {
        let shared = &handler.shared;
        Sockets {
            handler: Rc::clone(handler),
            room: tcp::Room::new(shared.options.connections.div_ceil(shared.beats.len())),
            open: HashMap::new(),
        }
    }

    /// Reads the new ones and leaves the old ones; what was asked there is still answered.
    fn change(&mut self, change: Move, readers: &mut JoinSet<()>) -> std::io::Result<()> {
        for address in change.close {
            self.open
                .remove(&address)
                .iter()
                .flatten()
                .for_each(AbortHandle::abort);
        }
        for Bound { address, udp, tcp } in change.open {
            let (udp, tcp) = (UdpSocket::from_std(udp)?, TcpListener::from_std(tcp)?);
            let serving = self.handler.shared.serving.subscribe();
            let datagrams = readers.spawn_local({
                let (handler, serving) = (Rc::clone(&self.handler), serving.clone());
                async move {
                    if let Err(error) = udp::serve(udp, address, handler, serving).await {
                        tracing::error!(%error, %address, "datagrams are not read any more");
                    }
                }
            });
            let (handler, room) = (Rc::clone(&self.handler), Rc::clone(&self.room));
            let connections = readers.spawn_local(tcp::serve(tcp, address, handler, room, serving));
            self.open.insert(address, [datagrams, connections]);
        }
        Ok(())
    }
}

async fn beat(shared: Arc<Shared>, core: usize, transport: Rc<Transport>) {
    loop {
        shared.beats[core].store(shared.clock.millis(), Relaxed);
        transport.sweep();
        sleep(BEAT).await;
    }
}

async fn probe(shared: Arc<Shared>, mut prober: Prober, notice: Rc<dyn Notice>) {
    let mut serving = shared.serving.subscribe();
    loop {
        let state = serving.borrow_and_update().clone();
        if let Some(state) = state {
            let config = state.horizon.config();
            // Pods' questions for our own domain are forwarded where there is no internal service.
            let extra = config.internal.is_none().then_some(&config.domain);
            prober.round(&state.groups, extra, &shared.probes, &notice).await;
        }
        let _ = tokio::time::timeout(PROBE, serving.changed()).await; // either way it is time
    }
}

/// Tells people of upstreams that are lost, back, or in a loop with us.
struct Notices {
    report: Arc<dyn Report>,
}

impl Notice for Notices {
    fn changed(&self, member: &Member, change: Change) {
        let upstream = &member.label;
        match change {
            Change::None => {}
            Change::Lost => self.report.event(Event::warning(
                "UpstreamLost",
                format!("the upstream {upstream} does not answer; others are asked, and it is tried again"),
            )),
            Change::Recovered => {
                let message = format!("the upstream {upstream} answers again");
                self.report.event(Event::normal("UpstreamRecovered", message));
            }
        }
    }

    fn looped(&self, member: &Member, zone: &Name, looped: bool) {
        let upstream = &member.label;
        self.report.event(match looped {
            true => Event::warning(
                "ForwardingLoop",
                format!(
                    "the upstream {upstream} sends our questions for {zone} back to us, so it is not asked for \
                     it any more; name another resolver for it, or set internalProxyIP if it is the cluster's domain"
                ),
            ),
            false => {
                let message = format!("the upstream {upstream} is asked for {zone} again");
                Event::normal("ForwardingLoopEnded", message)
            }
        });
    }
}
