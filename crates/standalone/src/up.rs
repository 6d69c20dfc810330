//! All servers of an `Infra` in one process.
//!
//! Each server runs on a thread of its own and follows its part of [`Desired`]. One that fails is started again,
//! later each time, while the others go on; a part that disappears from the manifest ends its server, and an address
//! that changes restarts it. The threads belong to the network namespace of whoever called [`start`].

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use oooi_api::report::Report;
use oooi_dhcp::machines::Machines;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tracing::{error, info};

use crate::desired::Desired;
use crate::ledger::Ledger;

/// How to run them.
#[derive(Clone)]
pub struct Options {
    /// The interface on the VLAN.
    pub interface: String,
    /// Where leases are kept.
    pub state: PathBuf,
    /// Where the servers say how they are.
    pub report: Arc<dyn Report>,
    /// Where their metrics are.
    pub metrics: Arc<Metrics>,
    /// The data plane of the gateway.
    pub engine: Engine,
    /// Which servers fail.
    pub failing: Failing,
}

/// The data plane of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The built-in one.
    #[default]
    Native,
    /// An Envoy, by the path of its binary.
    Envoy(PathBuf),
}

/// The servers that do not run although they should. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Failing(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Failing {
    /// Each with its reason.
    pub fn now(&self) -> BTreeMap<&'static str, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, server: &'static str, why: Option<String>) {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(failing.insert(server, why)),
            None => drop(failing.remove(server)),
        }
    }
}

/// The metrics of all servers. One that is started again brings new ones.
#[derive(Default)]
pub struct Metrics {
    registries: Mutex<BTreeMap<&'static str, Registry>>,
    loops: Mutex<BTreeMap<&'static str, Handle>>,
}

impl Metrics {
    pub(crate) fn replace<T>(&self, server: &'static str, register: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = Registry::default();
        let registered = register(&mut registry);
        self.registries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(server, registry);
        registered
    }

    /// The event loop of a server.
    fn watch(&self, server: &'static str, event_loop: &Handle) {
        self.loops
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(server, event_loop.clone());
    }

    /// What they look like, for the reference.
    pub fn example() -> Registry {
        tasks([("dhcp", 0), ("dns", 0), ("proxy", 0)])
    }

    /// All of them in the text format of Prometheus.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        for registry in self
            .registries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
        {
            encode_registry(&mut text, registry)?;
        }
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = loops
            .iter()
            .map(|(server, event_loop)| (*server, event_loop.metrics().num_alive_tasks()));
        encode_registry(&mut text, &tasks(alive))?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// What is under way in the event loop of each server.
fn tasks(alive: impl IntoIterator<Item = (&'static str, usize)>) -> Registry {
    let tasks = Family::<[(&'static str, &'static str); 1], Gauge>::default();
    for (server, number) in alive {
        tasks
            .get_or_create(&[("server", server)])
            .set(i64::try_from(number).unwrap_or(i64::MAX));
    }
    let mut registry = Registry::default();
    let help = "Tasks that are alive in the event loop of a server";
    registry.register("oooi_up_tasks", help, tasks);
    registry
}

/// How long a server that failed waits before it is started again, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A server of an `Infra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Gives out addresses.
    Dhcp,
    /// Answers for names.
    Dns,
    /// Leads to the control plane.
    Gateway,
}

impl Server {
    /// All of them.
    pub const ALL: [Server; 3] = [Server::Dhcp, Server::Dns, Server::Gateway];

    fn supervise(self, run: &Run) -> io::Result<JoinHandle<()>> {
        match self {
            Server::Dhcp => supervise("dhcp", run, dhcp),
            Server::Dns => supervise("dns", run, dns),
            Server::Gateway => supervise("proxy", run, proxy),
        }
    }
}

/// The servers while they run.
pub struct Running {
    servers: Vec<Thread>,
    run: Run,
}

/// One of them.
struct Thread {
    server: Server,
    handle: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Thread {
    fn start(server: Server, run: &Run) -> io::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let run = Run {
            stopped,
            ..run.clone()
        };
        Ok(Thread {
            handle: server.supervise(&run)?,
            server,
            stop,
        })
    }

    fn join(self) {
        self.stop.send_replace(true);
        // A thread that panicked has said so itself.
        let _ = self.handle.join();
    }
}

impl Running {
    /// Ends all servers: what is in flight is finished first.
    pub fn stop(self) {
        for thread in &self.servers {
            thread.stop.send_replace(true);
        }
        self.servers.into_iter().for_each(Thread::join);
    }

    /// Ends one server and starts it again, in the network namespace of the caller; the others go on.
    pub fn restart(&mut self, server: Server) -> io::Result<()> {
        if let Some(index) = self.servers.iter().position(|thread| thread.server == server) {
            self.servers.swap_remove(index).join();
        }
        self.servers.push(Thread::start(server, &self.run)?);
        Ok(())
    }
}

/// Starts the servers.
pub fn start(desired: &watch::Receiver<Arc<Desired>>, options: &Options) -> io::Result<Running> {
    let run = Run {
        desired: desired.clone(),
        stopped: watch::channel(false).1,
        options: options.clone(),
        leases: Ledger::default(),
    };
    let servers = Server::ALL.map(|server| Thread::start(server, &run));
    Ok(Running {
        servers: servers.into_iter().collect::<io::Result<_>>()?,
        run,
    })
}

/// Why a server does not run.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a server needs to run once.
#[derive(Clone)]
pub(crate) struct Run {
    desired: watch::Receiver<Arc<Desired>>,
    stopped: watch::Receiver<bool>,
    pub(crate) options: Options,
    leases: Ledger,
}

/// Runs a server for as long as it is wanted, on a thread of its own.
fn supervise<F, Fut>(name: &'static str, run: &Run, server: F) -> io::Result<JoinHandle<()>>
where
    F: Fn(Run) -> Fut + Send + 'static,
    Fut: Future<Output = Result<(), Failure>>,
{
    let (run, mut stopped) = (run.clone(), run.stopped.clone());
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return error!(server = name, %error, "no event loop can be made: the server does not run"),
        };
        run.options.metrics.watch(name, runtime.handle());
        runtime.block_on(async move {
            let mut wait = BACKOFF.0;
            while !*stopped.borrow() {
                match server(run.clone()).await {
                    Ok(()) => wait = BACKOFF.0,
                    Err(error) => {
                        run.options.failing.set(name, Some(error.to_string()));
                        error!(server = name, %error, again_in = ?wait, "the server failed; the others go on");
                        tokio::select! {
                            () = tokio::time::sleep(wait) => {}
                            _ = stopped.changed() => {}
                        }
                        wait = (wait * 2).min(BACKOFF.1);
                    }
                }
            }
            info!(server = name, "stopped");
        });
    })
}

impl Run {
    /// Waits until there is a part to run. Nothing when the servers stop first.
    async fn part<T: 'static>(&mut self, pick: fn(&Desired) -> Option<Arc<T>>) -> Option<Part<T>> {
        loop {
            let desired = self.desired.borrow_and_update().clone();
            if let Some(part) = pick(&desired) {
                return Some(Part {
                    first: desired,
                    sender: watch::channel(part).0,
                    pick,
                });
            }
            tokio::select! {
                changed = self.desired.changed() => changed.ok()?,
                _ = self.stopped.wait_for(|stopped| *stopped) => return None,
            }
        }
    }

    /// Ends when the servers stop, when the part is gone, or when an address of any server changed: sockets are bound
    /// to addresses. Until then every change is handed on.
    pub(crate) async fn until_it_ends<T: 'static>(mut self, part: &Part<T>) {
        loop {
            tokio::select! {
                _ = self.stopped.wait_for(|stopped| *stopped) => return,
                changed = self.desired.changed() => if changed.is_err() { break },
            }
            let desired = self.desired.borrow_and_update().clone();
            match (part.pick)(&desired) {
                Some(next) if desired.addresses == part.first.addresses => {
                    part.sender.send_replace(next);
                }
                _ => return,
            }
        }
        // Nobody changes it any more: it runs on as it is.
        let _ = self.stopped.wait_for(|stopped| *stopped).await;
    }
}

/// One server's part of what is desired, as it changes.
pub(crate) struct Part<T> {
    pub(crate) first: Arc<Desired>,
    pub(crate) sender: watch::Sender<Arc<T>>,
    pick: fn(&Desired) -> Option<Arc<T>>,
}

async fn dhcp(mut run: Run) -> Result<(), Failure> {
    let Some(part) = run.part(|desired| desired.dhcp.clone()).await else {
        return Ok(());
    };
    let socket = oooi_dhcp::socket::Socket::open(&run.options.interface)?;
    let store = oooi_dhcp::store::journal::Journal::open(&run.options.state)?;
    let metrics = run
        .options
        .metrics
        .replace("dhcp", oooi_dhcp::metrics::Metrics::register);
    run.options.failing.set("dhcp", None);
    let feeds = oooi_dhcp::server::Feeds {
        config: part.sender.subscribe(),
        machines: machines_of(run.desired.clone()),
        commands: oooi_dhcp::control::listen(&run.options.state).map_err(|error| {
            format!(
                "no commands can be taken in {}: {error}",
                run.options.state.display()
            )
        })?,
    };
    let report = run.options.report.clone();
    let interface = run.options.interface.clone();
    let store = run.leases.beside(store);
    let serving = oooi_dhcp::server::run(socket, feeds, store, report, metrics, run.until_it_ends(&part));
    tokio::select! {
        served = serving => Ok(served?),
        // A socket of an interface that is gone hears nothing, for ever.
        gone = oooi_net::Network::until_gone(&interface) => Err(gone.into()),
    }
}

async fn dns(mut run: Run) -> Result<(), Failure> {
    let Some(part) = run.part(|desired| desired.dns.clone()).await else {
        return Ok(());
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let wanted: Vec<SocketAddr> = part.sender.borrow().listen_addresses().collect();
    let listeners = oooi_dns::server::Listeners::bind(&wanted, &[], cores)?;
    run.options.failing.set("dns", None);
    let server = oooi_dns::server::Server::new(oooi_dns::server::Options::default(), cores);
    run.options
        .metrics
        .replace("dns", |registry| server.metrics().register(registry));
    let names = run.leases.names(run.desired.clone());
    let report = run.options.report.clone();
    server
        .run(
            listeners,
            part.sender.subscribe(),
            names,
            report,
            run.until_it_ends(&part),
        )
        .await?;
    Ok(())
}

async fn proxy(mut run: Run) -> Result<(), Failure> {
    let Some(part) = run.part(|desired| desired.proxy.clone()).await else {
        return Ok(());
    };
    if let Engine::Envoy(binary) = run.options.engine.clone() {
        return crate::envoy::run(run, part, binary).await;
    }
    run.options.failing.set("proxy", None);
    let options = oooi_proxy::server::Options::new(part.first.gateway_addresses());
    let metrics = oooi_proxy::metrics::Metrics::default();
    run.options
        .metrics
        .replace("proxy", |registry| metrics.register(registry));
    let server = oooi_proxy::server::Server::new(options, metrics, run.options.report.clone());
    server
        .run(part.sender.subscribe(), run.until_it_ends(&part))
        .await?;
    Ok(())
}

/// The machines of what is desired, as they change. The task ends when nobody holds the receiver any more.
fn machines_of(mut desired: watch::Receiver<Arc<Desired>>) -> watch::Receiver<Arc<Machines>> {
    let (sender, receiver) = watch::channel(desired.borrow_and_update().machines.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                changed = desired.changed() => if changed.is_err() { break },
            }
            sender.send_replace(desired.borrow_and_update().machines.clone());
        }
        // Nobody changes them any more: they stay as they are.
        sender.closed().await;
    });
    receiver
}
