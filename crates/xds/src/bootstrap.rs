//! What an Envoy is started with: who it is and where its configuration comes from. Everything else comes from
//! there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use oooi_api::proxy_server::LogLevel;
use serde_json::{Value, json};

/// Where the control plane listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A loopback address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// What differs between one Envoy and the next.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// By which the control plane tells Envoys apart.
    pub node: String,
    /// Where the configuration comes from.
    pub xds: Endpoint,
    /// Where Envoy's own view is; loopback, since it can change things.
    pub admin: SocketAddr,
    /// Connections at a time, over all listeners.
    pub connections: u64,
}

/// How long Envoy keeps the connections of a listener that is gone or of a filter chain that changed. Watches and
/// konnectivity must not be cut because something else changed: a day, as the idle timeout.
pub const DRAIN_TIME: Duration = Duration::from_secs(24 * 60 * 60);

impl Bootstrap {
    /// The document, for `envoy -c FILE` or `--config-yaml`.
    pub fn document(&self) -> Value {
        let address = match &self.xds {
            Endpoint::Tcp(address) => socket_address(*address),
            Endpoint::Unix(path) => json!({"pipe": {"path": path}}),
        };
        let http2 = json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            // A control plane that vanished without a word is noticed.
            "explicit_http_config": {"http2_protocol_options": {
                "connection_keepalive": {"interval": "30s", "timeout": "10s"}}},
        }});
        let ads = json!({"resource_api_version": "V3", "ads": {}});
        json!({
            "node": {"id": self.node, "cluster": "oooi"},
            "admin": {"address": socket_address(self.admin)},
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC",
                    "transport_api_version": "V3",
                    "grpc_services": [{"envoy_grpc": {"cluster_name": "oooi_xds"}}],
                },
                "lds_config": ads,
                "cds_config": ads,
            },
            "static_resources": {"clusters": [{
                "name": "oooi_xds",
                "connect_timeout": "1s",
                "typed_extension_protocol_options": http2,
                "load_assignment": {"cluster_name": "oooi_xds", "endpoints": [
                    {"lb_endpoints": [{"endpoint": {"address": address}}]}]},
            }]},
            "overload_manager": {"resource_monitors": [{
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": self.connections,
                },
            }]},
        })
    }
}

/// The arguments of Envoy besides its bootstrap, the same in a pod and under the supervisor.
pub fn arguments(log_level: LogLevel, drain_time: Duration) -> Vec<String> {
    let drain = drain_time.as_secs().to_string();
    let fixed = [
        "--log-level",
        level_name(log_level),
        "--drain-time-s",
        &drain,
        "--disable-hot-restart",
    ];
    fixed.map(str::to_owned).to_vec()
}

/// The level as Envoy spells it.
pub fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warning",
        LogLevel::Error => "error",
        LogLevel::Critical => "critical",
    }
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
