//! `oooi proxy`: one gateway, by Envoy or by the built-in engine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use oooi_api::ProxyServer;
use oooi_api::proxy_server::LogLevel;
use oooi_api::report::Report;
use oooi_manifest::{Document, Mistake};
use oooi_proxy::assemble::Assembler;
use oooi_proxy::snapshot::Snapshot;
use oooi_proxy::view::View;
use oooi_xds::admin::Admin;
use oooi_xds::ads::ControlPlane;
use oooi_xds::bootstrap::{Bootstrap, DRAIN_TIME, Endpoint};
use oooi_xds::envoy_stats;
use oooi_xds::supervisor::{self, Supervisor};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::observe::{self, Bind};
use crate::own::OwnArgs;
use crate::{Outcome, addresses_on_vlan, block_on, logging, until_signal};

/// Run one gateway from its own resource
///
/// The file is a ProxyServer; beside it stand the Services and EndpointSlices that it forwards to. With --namespace and
/// --name the resource in the cluster is followed as well and told how the gateway is, and the Services and
/// EndpointSlices are those of the cluster. A change applies at once and drops no connection.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    own: OwnArgs,
    /// The data plane
    #[arg(long, value_enum, default_value_t = Engine::Native)]
    engine: Engine,
    /// A further address to listen on, such as the pod's own; may repeat
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<IpAddr>,
    /// The Envoy to start; by default the one on the PATH
    #[arg(long, value_name = "PATH", conflicts_with = "external_envoy")]
    envoy: Option<PathBuf>,
    /// Start no Envoy: one runs beside this process, from the file of --write-bootstrap
    #[arg(long)]
    external_envoy: bool,
    /// Write what such an Envoy is started with, for its --config-path, and end
    #[arg(long, value_name = "FILE")]
    write_bootstrap: Option<PathBuf>,
    /// Where Envoy gets its configuration, on loopback
    #[arg(long, value_name = "PORT", default_value_t = 18000)]
    xds_port: u16,
    /// Envoy's own port for its administration, on loopback
    #[arg(long, value_name = "PORT", default_value_t = 9901)]
    envoy_admin_port: u16,
    /// How much the data plane logs; by default what the resource says
    #[arg(long, value_name = "LEVEL", value_parser = log_level)]
    proxy_log_level: Option<LogLevel>,
    /// How long open connections have to end when the built-in engine is told to
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain_time: u64,
    /// Another port for --metrics-bind-address
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,
    #[command(flatten)]
    bind: Bind,
}

#[derive(Clone, Copy, ValueEnum)]
enum Engine {
    /// The built-in data plane
    Native,
    /// Envoy, started and configured over xDS
    Envoy,
}

/// Runs until a signal ends it.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if let Some(path) = &args.write_bootstrap {
        let document = bootstrap(args, Endpoint::Tcp(xds_address(args))).document();
        std::fs::write(path, format!("{document:#}\n"))
            .with_context(|| format!("{} cannot be written", path.display()))?;
        return Ok(Outcome::Done);
    }
    block_on(serve(args))
}

/// Where Envoy gets its configuration.
fn xds_address(args: &Args) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, args.xds_port))
}

/// What Envoy is started with.
fn bootstrap(args: &Args, xds: Endpoint) -> Bootstrap {
    Bootstrap {
        node: "oooi".into(),
        xds,
        admin: SocketAddr::from((Ipv4Addr::LOCALHOST, args.envoy_admin_port)),
        connections: oooi_proxy::server::connections(50_000),
    }
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    let followed = args.own.follow::<ProxyServer, _, _>(read).await?;
    let addresses = addresses(&followed.config.borrow().resource, &args.listen)?;
    tokio::spawn(oooi_net::announce(addresses_on_vlan(&addresses, &args.listen)));
    let snapshots = match followed.cluster {
        Some(cluster) => {
            oooi_feed::endpoints::follow(cluster.own.client, followed.config, |gateway| &gateway.resource)
                .await
        }
        None => snapshots_of(followed.config),
    };
    let mut registry = Registry::default();
    followed.accepted.register(&mut registry);
    match args.engine {
        Engine::Native => native(args, addresses, snapshots, followed.report, registry).await,
        Engine::Envoy => envoy(args, addresses, snapshots, followed.report, registry).await,
    }
}

async fn native(
    args: &Args,
    addresses: Vec<IpAddr>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    report: Arc<dyn Report>,
    mut registry: Registry,
) -> anyhow::Result<Outcome> {
    let metrics = oooi_proxy::metrics::Metrics::default();
    metrics.register(&mut registry);
    let mut options = oooi_proxy::server::Options::new(addresses);
    options.limits.drain_time = Duration::from_secs(args.drain_time);
    tokio::spawn(follow_own_level(args.proxy_log_level, snapshots.clone()));
    let server = oooi_proxy::server::Server::new(options, metrics, report);
    let admin = server.admin();
    let registry = Arc::new(registry);
    let bind = args.bind.at_port(args.metrics_port);
    let probed = admin.clone();
    let pages = bind.pages(move || observe::encode(&registry), move || probed.is_ready());
    let pages = pages.with("/routes", move || json(&admin.view()));
    observe::beside(vec![pages], server.run(snapshots, until_signal())).await?;
    Ok(Outcome::Done)
}

/// Logs as much as the resource says, or as was asked for.
async fn follow_own_level(asked: Option<LogLevel>, mut snapshots: watch::Receiver<Arc<Snapshot>>) {
    loop {
        let level = asked.unwrap_or(snapshots.borrow_and_update().log_level);
        logging::follow(level);
        if snapshots.changed().await.is_err() {
            return;
        }
    }
}

async fn envoy(
    args: &Args,
    addresses: Vec<IpAddr>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    report: Arc<dyn Report>,
    mut registry: Registry,
) -> anyhow::Result<Outcome> {
    let binary = match args.external_envoy {
        true => None,
        false => Some(supervisor::find(args.envoy.as_deref())?),
    };
    let metrics = oooi_xds::metrics::Metrics::default();
    metrics.register(&mut registry);
    let control = ControlPlane::new(addresses, metrics, report.clone());
    control.update(&snapshots.borrow().clone());

    let listener = oooi_xds::server::Listener::bind(&Endpoint::Tcp(xds_address(args))).await?;
    let bootstrap = bootstrap(args, listener.endpoint()?);
    let admin = Admin(bootstrap.admin);
    let supervisor = binary.map(|binary| Supervisor {
        binary,
        bootstrap,
        threads: None,
        drain_time: DRAIN_TIME,
    });

    let asked = args.proxy_log_level;
    let level_of = move |snapshot: &Snapshot| asked.unwrap_or(snapshot.log_level);
    let (level, levels) = watch::channel(level_of(&snapshots.borrow()));
    let mut changes = snapshots.clone();
    tokio::spawn(async move {
        while changes.changed().await.is_ok() {
            level.send_replace(level_of(&changes.borrow_and_update()));
        }
    });
    let follow = {
        let control = control.clone();
        async move { control.follow(snapshots).await }
    };
    tokio::spawn(follow);

    let registry = Arc::new(registry);
    let ready = {
        let control = control.clone();
        move || {
            let connected = control.connected() > 0;
            async move { connected && admin.is_ready().await }
        }
    };
    let metrics = move || {
        let own = observe::encode(&registry);
        async move {
            Ok(with_statistics(
                own?,
                &admin.statistics().await.unwrap_or_default(),
            ))
        }
    };
    let shown = control.clone();
    let opened = control.opened();
    let bind = args.bind.at_port(args.metrics_port);
    let pages = bind.asked(metrics, ready);
    let pages = pages.with("/routes", move || json(&View::of_snapshot(&shown.snapshot())));
    let both = async {
        let serving = oooi_xds::server::run(listener, &control, until_signal());
        let (served, ()) = tokio::join!(serving, async {
            match supervisor {
                Some(supervisor) => supervisor.run(levels, report, until_signal()).await,
                None => follow_level(admin, levels, opened).await,
            }
        });
        served
    };
    observe::beside(vec![pages], both).await?;
    Ok(Outcome::Done)
}

/// Tells an Envoy that somebody else started how much to log: whenever that changes, and whenever one opens a stream,
/// since one that was started again logs as it likes.
async fn follow_level(admin: Admin, mut levels: watch::Receiver<LogLevel>, mut opened: watch::Receiver<u64>) {
    loop {
        let told = tokio::select! {
            () = until_signal() => return,
            told = levels.changed() => told,
            told = opened.changed() => told,
        };
        if told.is_err() {
            return;
        }
        let level = *levels.borrow_and_update();
        if let Err(error) = admin.set_log_level(level).await {
            // One that is not there is told when it comes.
            tracing::debug!(%error, "Envoy was not told how much to log");
        }
    }
}

/// Our own metrics and those of Envoy, under the names of the native engine, on one page.
fn with_statistics(mut own: String, envoy: &str) -> String {
    const END: &str = "# EOF\n";
    own.truncate(own.len() - if own.ends_with(END) { END.len() } else { 0 });
    own + &envoy_stats::translate(envoy) + END
}

/// A level by the name that the resource gives it.
fn log_level(text: &str) -> Result<LogLevel, serde_json::Error> {
    serde_json::from_value(text.into())
}

fn json(view: &View) -> String {
    serde_json::to_string_pretty(view).unwrap_or_default()
}

/// A gateway's documents.
struct Gateway {
    resource: ProxyServer,
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
}

fn read(documents: &[Document]) -> Result<Gateway, Vec<Mistake>> {
    let document = oooi_manifest::only(documents, "ProxyServer")?;
    Ok(Gateway {
        resource: document.decode().map_err(|mistake| vec![mistake])?,
        services: oooi_manifest::all(documents, "v1", "Service")?,
        slices: oooi_manifest::all(documents, "discovery.k8s.io/v1", "EndpointSlice")?,
    })
}

fn assemble(gateway: &Gateway) -> Arc<Snapshot> {
    let mut assembler = Assembler::default();
    assembler.set_spec(&gateway.resource.spec);
    gateway
        .services
        .iter()
        .for_each(|service| assembler.set_service(service));
    gateway.slices.iter().for_each(|slice| assembler.set_slice(slice));
    assembler.snapshot()
}

fn snapshots_of(mut gateways: watch::Receiver<Arc<Gateway>>) -> watch::Receiver<Arc<Snapshot>> {
    let (sender, receiver) = watch::channel(assemble(&gateways.borrow_and_update()));
    tokio::spawn(async move {
        while gateways.changed().await.is_ok() {
            let next = assemble(&gateways.borrow_and_update());
            sender.send_replace(next);
        }
        // What was read from standard input does not change, and is served on.
        sender.closed().await;
    });
    receiver
}

/// Those of the resource's addresses that this host has, and those that were asked for.
fn addresses(resource: &ProxyServer, further: &[IpAddr]) -> anyhow::Result<Vec<IpAddr>> {
    let network = &resource.spec.network_config;
    let bare = network.server_ip.split('/').next().unwrap_or_default();
    let listed = std::iter::once(bare)
        .chain(network.additional_server_ips.iter().map(String::as_str))
        .chain(resource.spec.published_ips.iter().map(String::as_str));
    let mut addresses: Vec<IpAddr> = listed
        .filter_map(|address| address.parse().ok())
        .filter(is_local)
        .collect();
    addresses.extend(further);
    if addresses.is_empty() {
        anyhow::bail!(
            "none of the gateway's addresses is on this host: add one to an interface, or pass --listen"
        );
    }
    Ok(addresses)
}

/// An address is local if a socket can be bound to it.
fn is_local(address: &IpAddr) -> bool {
    std::net::UdpSocket::bind((*address, 0)).is_ok()
}
