//! A backend as an Envoy cluster, and its endpoints.

use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, DiscoveryType, EdsClusterConfig, LbPolicy,
};
use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster as EnvoyCluster, OutlierDetection, UpstreamConnectionOptions,
};
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::proxy_protocol_config::Version;
use envoy_types::pb::envoy::config::core::v3::socket_address::{PortSpecifier, Protocol};
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, ProxyProtocolConfig, SocketAddress,
    TcpKeepalive, TransportSocket, address,
};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use envoy_types::pb::envoy::extensions::transport_sockets::raw_buffer::v3::RawBuffer;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::UInt32Value;
use oooi_proxy::balance;
use oooi_proxy::config::Transport;
use oooi_proxy::snapshot::Cluster;

use crate::resources::{any, duration};

/// Attempts to connect; together they take no longer than the backend's budget.
pub(crate) const ATTEMPTS: u32 = 6;
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);
/// Envoy's own limit of 1,024 connections a cluster is no protection here, only a surprise.
const NO_LIMIT: u32 = 1 << 30;
const BUFFER: u32 = 64 * 1024;

/// The cluster of a backend. It does not depend on the endpoints.
pub fn build(cluster: &Cluster) -> EnvoyCluster {
    let ads = ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..ConfigSource::default()
    };
    EnvoyCluster {
        name: cluster.name.to_string(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ads),
            ..EdsClusterConfig::default()
        }),
        connect_timeout: duration((cluster.connect_budget / ATTEMPTS).min(LONGEST_ATTEMPT)),
        per_connection_buffer_limit_bytes: number(BUFFER),
        lb_policy: LbPolicy::RoundRobin.into(),
        circuit_breakers: Some(CircuitBreakers {
            thresholds: vec![Thresholds {
                max_connections: number(NO_LIMIT),
                max_pending_requests: number(NO_LIMIT),
                max_requests: number(NO_LIMIT),
                ..Thresholds::default()
            }],
            ..CircuitBreakers::default()
        }),
        outlier_detection: Some(OutlierDetection {
            consecutive_5xx: number(balance::FAILURES), // Envoy counts a failed connection as one
            interval: duration(balance::EJECTION),
            base_ejection_time: duration(balance::EJECTION),
            max_ejection_time: duration(balance::LONGEST_EJECTION),
            max_ejection_percent: number(100),
            enforcing_success_rate: number(0),
            ..OutlierDetection::default()
        }),
        // Ejections are ignored only where no endpoint is left, as in the native engine.
        common_lb_config: Some(CommonLbConfig {
            healthy_panic_threshold: Some(Percent { value: 1.0 }),
            ..CommonLbConfig::default()
        }),
        ignore_health_on_host_removal: true,
        upstream_connection_options: (cluster.transport == Transport::Tcp).then(|| {
            UpstreamConnectionOptions {
                tcp_keepalive: Some(TcpKeepalive {
                    keepalive_time: number(60),
                    ..TcpKeepalive::default()
                }),
                ..UpstreamConnectionOptions::default()
            }
        }),
        transport_socket: cluster.proxy_protocol.then(proxy_protocol),
        ..EnvoyCluster::default()
    }
}

fn proxy_protocol() -> TransportSocket {
    let raw = TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&RawBuffer {}))),
    };
    let config = ProxyProtocolConfig {
        version: Version::V2.into(),
        ..ProxyProtocolConfig::default()
    };
    let upstream = ProxyProtocolUpstreamTransport {
        config: Some(config),
        transport_socket: Some(raw),
        ..ProxyProtocolUpstreamTransport::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(&upstream))),
    }
}

/// The endpoints of a backend.
pub fn endpoints(cluster: &Cluster) -> ClusterLoadAssignment {
    let endpoint = |at: &SocketAddr| LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(socket_address(*at, cluster.transport)),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    };
    ClusterLoadAssignment {
        cluster_name: cluster.name.to_string(),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: cluster.endpoints.iter().map(endpoint).collect(),
            ..LocalityLbEndpoints::default()
        }],
        ..ClusterLoadAssignment::default()
    }
}

pub(crate) fn socket_address(at: SocketAddr, transport: Transport) -> Address {
    let protocol = match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    };
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            protocol: protocol.into(),
            address: at.ip().to_string(),
            port_specifier: Some(PortSpecifier::PortValue(at.port().into())),
            ..SocketAddress::default()
        })),
    }
}

pub(crate) fn number(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attempts_together_take_as_long_as_the_budget_and_none_longer_than_five_seconds() {
        let attempt = |budget| {
            let cluster = Cluster {
                name: "api".into(),
                transport: Transport::Tcp,
                endpoints: Vec::new(),
                known: true,
                connect_budget: Duration::from_secs(budget),
                proxy_protocol: false,
            };
            build(&cluster).connect_timeout
        };
        assert_eq!(attempt(3), duration(Duration::from_millis(500)));
        assert_eq!(attempt(30), duration(Duration::from_secs(5)));
        assert_eq!(attempt(600), attempt(30), "a larger budget changes nothing");
    }
}
