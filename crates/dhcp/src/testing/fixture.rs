//! A configuration to test with, through the parser that reads real manifests.

use std::net::Ipv4Addr;

use oooi_api::dhcp_server::DhcpServerSpec;

use crate::config::Config;

/// The server's address in [`config`].
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 2);

/// A specification: 192.168.100.0/24 with the pool .10 to .20, no probe, and whatever `more` sets.
pub fn spec(more: impl FnOnce(&mut DhcpServerSpec)) -> DhcpServerSpec {
    let mut spec = DhcpServerSpec::default();
    spec.network_config.cidr = "192.168.100.0/24".into();
    spec.network_config.gateway = "192.168.100.1".into();
    spec.network_config.server_ip = SERVER.to_string();
    spec.network_config.dns_servers = vec!["192.168.100.3".into()];
    spec.lease_config.range_start = "192.168.100.10".into();
    spec.lease_config.range_end = "192.168.100.20".into();
    spec.lease_config.lease_time = "1h".into();
    spec.lease_config.conflict_probe = Some(false);
    more(&mut spec);
    spec
}

/// The configuration of [`spec`].
pub fn config(more: impl FnOnce(&mut DhcpServerSpec)) -> Config {
    match Config::from_spec(&spec(more), &[]) {
        Ok(config) => config,
        Err(mistakes) => panic!("the fixture is wrong: {mistakes}"),
    }
}
