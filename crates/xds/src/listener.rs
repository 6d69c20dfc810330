//! A port as an Envoy listener.
//!
//! Server names are in the listener's `filter_chain_matcher` and nowhere else: a filter chain holds only where
//! its backend leads, and stays byte for byte the same when names change. Envoy keeps the connections of chains
//! that did not change, and drains those of chains that did.
//!
//! The matcher asks in this order: is it TLS at all; the exact name; the longest wildcard; any other name leads
//! to a chain that does not exist, which closes the connection; no name leads to the chain for that, if any.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use envoy_types::pb::envoy::config::accesslog::v3::{
    AccessLog, AccessLogFilter, ResponseFlagFilter, access_log,
};
use envoy_types::pb::envoy::config::core::v3::data_source::Specifier;
use envoy_types::pb::envoy::config::core::v3::substitution_format_string::Format;
use envoy_types::pb::envoy::config::core::v3::{DataSource, SubstitutionFormatString, TcpKeepalive};
use envoy_types::pb::envoy::config::listener::v3::{
    AdditionalAddress, Filter, FilterChain, Listener, ListenerFilter, UdpListenerConfig, filter,
    listener_filter,
};
use envoy_types::pb::envoy::extensions::access_loggers::stream::v3::{StdoutAccessLog, stdout_access_log};
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::udp_proxy_config::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::udp::udp_proxy::v3::{Route, UdpProxyConfig};
use envoy_types::pb::envoy::extensions::matching::common_inputs::network::v3::{
    ServerNameInput, TransportProtocolInput,
};
use envoy_types::pb::google::protobuf::{Any, StringValue};
use envoy_types::pb::xds::core::v3::TypedExtensionConfig;
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::predicate::{
    MatchType, SinglePredicate, single_predicate,
};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_list::{FieldMatcher, Predicate};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::matcher_tree::{MatchMap, TreeType};
use envoy_types::pb::xds::r#type::matcher::v3::matcher::{
    MatcherList, MatcherTree, MatcherType, OnMatch, on_match,
};
use envoy_types::pb::xds::r#type::matcher::v3::regex_matcher::{EngineType, GoogleRe2};
use envoy_types::pb::xds::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, RegexMatcher, StringMatcher};
use oooi_proxy::config::Transport;
use oooi_proxy::route::{Names, Routes};
use oooi_proxy::snapshot::ListenerKey;
use prost::Name;

use crate::cluster::{ATTEMPTS, number, socket_address};
use crate::resources::{any, duration};

/// The time until a hello is complete, as in the native engine.
const HELLO_TIME: Duration = Duration::from_secs(10);
const UDP_IDLE: Duration = Duration::from_secs(60);
const BUFFER: u32 = 64 * 1024;
/// A chain name that cannot be a backend's, since those have no underscore.
const NOWHERE: &str = "_nowhere";
/// One line for each refused connection, with the name that it asked for.
const REFUSED: &str = "reset: no backend client=%DOWNSTREAM_REMOTE_ADDRESS% local=%DOWNSTREAM_LOCAL_ADDRESS% \
                       name=%REQUESTED_SERVER_NAME%\n";

/// The name of a port's listener.
pub fn name(key: ListenerKey) -> String {
    match key.transport {
        Transport::Tcp => format!("tcp-{}", key.port),
        Transport::Udp => format!("udp-{}", key.port),
    }
}

/// The listener of a port.
pub fn build(key: ListenerKey, routes: &Routes, addresses: &[IpAddr], idle: Duration) -> Listener {
    let mut bound = addresses
        .iter()
        .map(|ip| socket_address(SocketAddr::new(*ip, key.port), key.transport));
    let listener = Listener {
        name: name(key),
        stat_prefix: name(key),
        address: bound.next(),
        additional_addresses: bound
            .map(|address| AdditionalAddress {
                address: Some(address),
                ..AdditionalAddress::default()
            })
            .collect(),
        ..Listener::default()
    };
    match (key.transport, routes) {
        (Transport::Udp, Routes::Whole(backend)) => Listener {
            listener_filters: vec![listener_filter(
                "envoy.filters.udp_listener.udp_proxy",
                &udp_proxy(backend),
            )],
            udp_listener_config: Some(UdpListenerConfig::default()),
            ..listener
        },
        // Datagrams carry no name: such a port serves nobody. The configuration never makes one.
        (Transport::Udp, Routes::ByName(_)) => listener,
        (Transport::Tcp, Routes::Whole(backend)) => tcp(Listener {
            filter_chains: vec![chain(backend, idle)],
            ..listener
        }),
        (Transport::Tcp, Routes::ByName(names)) => tcp(Listener {
            listener_filters: vec![listener_filter(
                "envoy.filters.listener.tls_inspector",
                &TlsInspector::default(),
            )],
            listener_filters_timeout: duration(HELLO_TIME),
            filter_chains: backends(names)
                .into_iter()
                .map(|backend| chain(backend, idle))
                .collect(),
            filter_chain_matcher: Some(only_tls(by_name(names))),
            access_log: vec![refused_log()],
            ..listener
        }),
    }
}

fn tcp(listener: Listener) -> Listener {
    Listener {
        per_connection_buffer_limit_bytes: number(BUFFER),
        tcp_keepalive: Some(TcpKeepalive {
            keepalive_time: number(60),
            ..TcpKeepalive::default()
        }),
        ..listener
    }
}

/// Each backend once, in order.
fn backends(names: &Names) -> Vec<&Arc<str>> {
    let mut all: Vec<_> = names
        .exact
        .values()
        .chain(names.wildcards.values())
        .chain(&names.nameless)
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Where a backend leads. Names must not get in here: see the module's text.
fn chain(backend: &Arc<str>, idle: Duration) -> FilterChain {
    let proxy = TcpProxy {
        stat_prefix: backend.to_string(),
        cluster_specifier: Some(ClusterSpecifier::Cluster(backend.to_string())),
        idle_timeout: duration(idle),
        max_connect_attempts: number(ATTEMPTS),
        ..TcpProxy::default()
    };
    FilterChain {
        name: backend.to_string(),
        filters: vec![Filter {
            name: "envoy.filters.network.tcp_proxy".to_owned(),
            config_type: Some(filter::ConfigType::TypedConfig(any(&proxy))),
        }],
        ..FilterChain::default()
    }
}

fn udp_proxy(backend: &Arc<str>) -> UdpProxyConfig {
    let route = extension(
        "route",
        any(&Route {
            cluster: backend.to_string(),
        }),
    );
    let matcher = Matcher {
        on_no_match: Some(Box::new(OnMatch {
            on_match: Some(on_match::OnMatch::Action(route)),
            ..OnMatch::default()
        })),
        matcher_type: None,
    };
    UdpProxyConfig {
        stat_prefix: backend.to_string(),
        idle_timeout: duration(UDP_IDLE),
        route_specifier: Some(RouteSpecifier::Matcher(matcher)),
        ..UdpProxyConfig::default()
    }
}

/// Other protocols have no server name either, and must not get the place of nameless TLS.
fn only_tls(names: Matcher) -> Matcher {
    let on_tls = OnMatch {
        on_match: Some(on_match::OnMatch::Matcher(Box::new(names))),
        ..OnMatch::default()
    };
    tree(
        &TransportProtocolInput::default(),
        [("tls".to_owned(), on_tls)].into(),
        None,
    )
}

fn by_name(names: &Names) -> Matcher {
    let exact = names
        .exact
        .iter()
        .map(|(name, backend)| (name.to_string(), go_to(backend)));
    let others = Box::new(OnMatch {
        on_match: Some(on_match::OnMatch::Matcher(Box::new(by_wildcard(names)))),
        ..OnMatch::default()
    });
    let exact: std::collections::HashMap<_, _> = exact.collect();
    match exact.is_empty() {
        true => by_wildcard(names), // Envoy refuses an empty map
        false => tree(&ServerNameInput::default(), exact, Some(others)),
    }
}

fn by_wildcard(names: &Names) -> Matcher {
    let mut wildcards: Vec<_> = names.wildcards.iter().collect();
    wildcards.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.as_str().len()));
    let mut matchers: Vec<FieldMatcher> = wildcards
        .into_iter()
        .map(|(suffix, backend)| when(MatchPattern::Suffix(format!(".{suffix}")), go_to(backend)))
        .collect();
    let any_name = RegexMatcher {
        regex: ".+".to_owned(),
        engine_type: Some(EngineType::GoogleRe2(GoogleRe2 {})),
    };
    matchers.push(when(MatchPattern::SafeRegex(any_name), go_to(NOWHERE)));
    Matcher {
        matcher_type: Some(MatcherType::MatcherList(MatcherList { matchers })),
        on_no_match: names.nameless.as_ref().map(|backend| Box::new(go_to(backend))),
    }
}

fn when(pattern: MatchPattern, on_match: OnMatch) -> FieldMatcher {
    let value = StringMatcher {
        match_pattern: Some(pattern),
        ..StringMatcher::default()
    };
    let predicate = SinglePredicate {
        input: Some(extension("name", any(&ServerNameInput::default()))),
        matcher: Some(single_predicate::Matcher::ValueMatch(value)),
    };
    FieldMatcher {
        predicate: Some(Predicate {
            match_type: Some(MatchType::SinglePredicate(predicate)),
        }),
        on_match: Some(on_match),
    }
}

fn tree<I: prost::Message + Name>(
    input: &I,
    map: std::collections::HashMap<String, OnMatch>,
    on_no_match: Option<Box<OnMatch>>,
) -> Matcher {
    Matcher {
        matcher_type: Some(MatcherType::MatcherTree(MatcherTree {
            input: Some(extension("input", any(input))),
            tree_type: Some(TreeType::ExactMatchMap(MatchMap { map })),
        })),
        on_no_match,
    }
}

fn go_to(chain: &str) -> OnMatch {
    let value = StringValue {
        value: chain.to_owned(),
    };
    // A well-known type of protobuf: its crate gives it no name.
    let action = Any {
        type_url: "type.googleapis.com/google.protobuf.StringValue".to_owned(),
        value: prost::Message::encode_to_vec(&value),
    };
    OnMatch {
        on_match: Some(on_match::OnMatch::Action(extension("chain", action))),
        ..OnMatch::default()
    }
}

fn extension(name: &str, config: Any) -> TypedExtensionConfig {
    TypedExtensionConfig {
        name: name.to_owned(),
        typed_config: Some(config),
    }
}

fn listener_filter<M: prost::Message + Name>(name: &str, config: &M) -> ListenerFilter {
    ListenerFilter {
        name: name.to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(any(config))),
        ..ListenerFilter::default()
    }
}

fn refused_log() -> AccessLog {
    let format = SubstitutionFormatString {
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(Specifier::InlineString(REFUSED.to_owned())),
            ..DataSource::default()
        })),
        ..SubstitutionFormatString::default()
    };
    let log = StdoutAccessLog {
        access_log_format: Some(stdout_access_log::AccessLogFormat::LogFormat(format)),
    };
    AccessLog {
        name: "envoy.access_loggers.stdout".to_owned(),
        // NR: no filter chain was found.
        filter: Some(AccessLogFilter {
            filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter {
                flags: vec!["NR".to_owned()],
            })),
        }),
        config_type: Some(access_log::ConfigType::TypedConfig(any(&log))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oooi_proxy::limit::Limits;

    #[test]
    fn both_engines_are_as_patient() {
        let native = Limits::for_descriptors(1024);
        assert_eq!(UDP_IDLE, native.udp_idle);
        assert_eq!(HELLO_TIME, native.hello_time);
        assert_eq!(udp_proxy(&"dns".into()).idle_timeout, duration(native.udp_idle));
    }
}
