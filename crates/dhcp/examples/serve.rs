//! The server alone, as tests and benchmarks run it: `serve SPEC.yaml INTERFACE STATE_DIRECTORY`.
//!
//! It prints `ready` once it answers, applies a changed file on SIGHUP and ends on SIGTERM.

use std::path::Path;
use std::sync::Arc;

use oooi_api::report::{Event, Report, ServerReport};
use oooi_dhcp::config::Config;
use oooi_dhcp::control;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::metrics::Metrics;
use oooi_dhcp::server::{self, Feeds};
use oooi_dhcp::socket::Socket;
use oooi_dhcp::store::journal::Journal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

type Failure = Box<dyn std::error::Error>;

/// Says events on standard error.
struct Loud;

impl Report for Loud {
    fn state(&self, _: ServerReport) {}

    fn event(&self, event: Event) {
        eprintln!("event {}: {}", event.reason, event.message);
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(spec), Some(interface), Some(directory)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: serve SPEC.yaml INTERFACE STATE_DIRECTORY".into());
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(spec, &interface, Path::new(&directory)))
}

fn read(spec: &str, socket: &Socket) -> Result<Arc<Config>, Failure> {
    let spec = serde_saphyr::from_str(&std::fs::read_to_string(spec)?)?;
    Ok(Arc::new(Config::from_spec(&spec, &socket.addresses()?)?))
}

async fn serve(spec: String, interface: &str, directory: &Path) -> Result<(), Failure> {
    let socket = Socket::open(interface)?;
    let (sender, config) = watch::channel(read(&spec, &socket)?);
    let (_keep, machines) = watch::channel(Arc::new(Machines::default()));
    let store = Journal::open(directory)?;
    let commands = control::listen(directory)?;
    let metrics = Metrics::register(&mut prometheus_client::registry::Registry::default());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let shutdown = async {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = hangup.recv() => match std::fs::read_to_string(&spec).map_err(Failure::from).and_then(|text| {
                    Ok(Config::from_spec(&serde_saphyr::from_str(&text)?, &[])?)
                }) {
                    Ok(config) => drop(sender.send(Arc::new(config))),
                    Err(error) => eprintln!("refused: {error}"),
                },
            }
        }
    };
    println!("ready");
    let feeds = Feeds {
        config,
        machines,
        commands,
    };
    Ok(server::run(socket, feeds, store, Arc::new(Loud), metrics, shutdown).await?)
}
