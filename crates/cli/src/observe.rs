//! Metrics and probes over HTTP, and events in the log.

use std::fmt;
use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use oooi_api::report::{Event, Report, ServerReport, Severity};
use oooi_net::Network;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpSocket};
use tracing::{debug, info, warn};

/// How many askers may wait to be taken, as many as the system's own default.
const BACKLOG: u32 = 1024;

/// Where metrics and probes are served.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Bind {
    /// Where /metrics, /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    metrics_bind_address: SocketAddr,
}

/// Pages at an address.
pub(crate) struct Pages {
    address: SocketAddr,
    routes: Router,
}

impl Bind {
    /// The same address with another port.
    pub(crate) fn at_port(mut self, port: Option<u16>) -> Bind {
        if let Some(port) = port {
            self.metrics_bind_address.set_port(port);
        }
        self
    }

    /// The pages of a server: its metrics, and probes that follow `is_ready`.
    pub(crate) fn pages<M, R>(self, metrics: M, is_ready: R) -> Pages
    where
        M: Fn() -> Result<String, fmt::Error> + Clone + Send + Sync + 'static,
        R: Fn() -> bool + Clone + Send + Sync + 'static,
    {
        self.asked(move || ready(metrics()), move || ready(is_ready()))
    }

    /// The same for a server that has to ask for its metrics and whether it is ready.
    pub(crate) fn asked<M, MF, R, RF>(self, metrics: M, is_ready: R) -> Pages
    where
        M: Fn() -> MF + Clone + Send + Sync + 'static,
        MF: Future<Output = Result<String, fmt::Error>> + Send,
        R: Fn() -> RF + Clone + Send + Sync + 'static,
        RF: Future<Output = bool> + Send,
    {
        let exposition = async move || match metrics().await {
            Ok(text) => {
                let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                ([(header::CONTENT_TYPE, format)], text).into_response()
            }
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        };
        let routes = Router::new()
            .route("/metrics", get(exposition))
            .route("/healthz", get("ok"));
        Pages {
            address: self.metrics_bind_address,
            routes: routes.merge(probe("/readyz", is_ready)),
        }
    }
}

impl Pages {
    /// One probe by itself.
    pub(crate) fn probe<R>(address: SocketAddr, path: &str, holds: R) -> Pages
    where
        R: Fn() -> bool + Clone + Send + Sync + 'static,
    {
        Pages {
            address,
            routes: probe(path, move || ready(holds())),
        }
    }

    /// The same with one more page.
    pub(crate) fn with(
        mut self,
        path: &str,
        page: impl Fn() -> String + Clone + Send + Sync + 'static,
    ) -> Pages {
        let json = async move || ([(header::CONTENT_TYPE, "application/json")], page());
        self.routes = self.routes.route(path, get(json));
        self
    }
}

fn probe<R, F>(path: &str, holds: R) -> Router
where
    R: Fn() -> F + Clone + Send + Sync + 'static,
    F: Future<Output = bool> + Send,
{
    let page = async move || -> Response {
        if holds().await {
            "ok".into_response()
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not yet").into_response()
        }
    };
    Router::new().route(path, get(page))
}

/// Whether a server serves the newest version of its resource. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Accepted(Gauge);

impl Accepted {
    /// The newest version was taken over, or refused.
    pub(crate) fn set(&self, accepted: bool) {
        self.0.set(i64::from(accepted));
    }

    /// Makes it visible.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "oooi_config_accepted",
            "0 while the newest version of the server's resource is refused and the last good one is served",
            self.0.clone(),
        );
    }
}

/// A registry in the text format of Prometheus.
pub(crate) fn encode(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(text)
}

/// Serves pages for as long as a server runs. An address that cannot be had is an error before it begins.
pub(crate) async fn beside<T, E>(
    pages: Vec<Pages>,
    server: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    let mut serving = tokio::task::JoinSet::new();
    for Pages { address, routes } in pages {
        let listeners = listen(address).await.with_context(|| {
            format!("{address} cannot be listened on for metrics and probes: choose another address for them")
        })?;
        info!(%address, "metrics and probes");
        for listener in listeners {
            let routes = routes.clone();
            serving.spawn(async move { axum::serve(listener, routes).await });
        }
    }
    Ok(server.await?)
}

/// Listens on an address by the interface that has it, and for those on this host. Linux answers for all its addresses on
/// every interface: whoever is on the VLAN and sends what is for the pod's own address to the server would reach the port
/// too.
async fn listen(address: SocketAddr) -> io::Result<Vec<TcpListener>> {
    let Some(interface) = interface_of(address.ip()).await else {
        return Ok(vec![TcpListener::bind(address).await?]);
    };
    // What a host sends to itself comes by its loopback, whichever of its addresses it is for.
    let by_each: io::Result<Vec<TcpListener>> = [interface.as_str(), "lo"]
        .map(|interface| {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind_device(Some(interface.as_bytes()))?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        })
        .into_iter()
        .collect();
    match by_each {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            warn!(%address, %interface, %error, "metrics and probes may be asked for on every interface");
            Ok(vec![TcpListener::bind(address).await?])
        }
        other => other,
    }
}

/// The interface that has an address of IPv4; nothing for one that is not there, or is not of one interface alone.
async fn interface_of(address: IpAddr) -> Option<String> {
    let IpAddr::V4(address) = address else { return None };
    if address.is_unspecified() || address.is_loopback() {
        return None;
    }
    let network = Network::open().ok()?;
    for interface in network.interfaces().await.ok()? {
        let addresses = network.addresses(&interface).await.unwrap_or_default();
        if addresses.iter().any(|own| own.addr() == address) {
            return Some(interface);
        }
    }
    None
}

/// Where there is no Kubernetes, what servers report is logged.
pub(crate) struct LogReport;

impl Report for LogReport {
    fn state(&self, report: ServerReport) {
        match (&report.message, report.accepted) {
            (Some(message), false) => warn!(addresses = ?report.addresses, "{message}"),
            _ => debug!(addresses = ?report.addresses, counts = ?report.counts, "state"),
        }
    }

    fn event(&self, event: Event) {
        match event.severity {
            Severity::Normal => info!(reason = event.reason, "{}", event.message),
            Severity::Warning => warn!(reason = event.reason, "{}", event.message),
        }
    }
}
