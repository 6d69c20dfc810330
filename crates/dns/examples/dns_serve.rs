//! The server alone, for benchmarks: `dns_serve ADDRESS:PORT CORES CACHE_MIB [UPSTREAM]`.
//!
//! It serves `api.bench.example` and `*.apps.bench.example` to clients of the address's own /24 and
//! forwards the rest, if it has an upstream. `oooi dns` is the same server with a manifest.

use std::net::SocketAddr;
use std::sync::Arc;

use oooi_api::dns_server::{DnsNetworkConfig, DnsServerSpec, DnsStaticEntry};
use oooi_api::report::Recorded;
use oooi_dns::{Config, Listeners, Names, Options, Server};
use tokio::sync::watch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, cores, cache, upstreams @ ..] = arguments.as_slice() else {
        return Err("usage: dns_serve ADDRESS:PORT CORES CACHE_MIB [UPSTREAM]".into());
    };
    let address: SocketAddr = address.parse()?;
    let entry = |hostname: &str| DnsStaticEntry {
        hostname: hostname.into(),
        ip: "127.0.0.4".into(),
        additional_ips: vec![],
    };
    let config = Config::from_spec(&DnsServerSpec {
        hosted_cluster_domain: "bench.example".into(),
        network_config: DnsNetworkConfig {
            server_ip: address.ip().to_string(),
            proxy_ip: "127.0.0.4".into(),
            secondary_network_cidr: Some("127.0.0.0/8".into()),
            dns_port: i32::from(address.port()),
            ..DnsNetworkConfig::default()
        },
        static_entries: vec![entry("api.bench.example"), entry("*.apps.bench.example")],
        upstream_dns: upstreams.to_vec(),
        cache_ttl: "1h".into(),
        ..DnsServerSpec::default()
    })?;
    let listeners = Listeners::bind(&[address], &[], cores.parse()?)?;
    let options = Options {
        cache_octets: cache.parse::<usize>()? << 20,
        ..Options::default()
    };
    let server = Server::new(options, listeners.cores());
    let (_config, config) = watch::channel(Arc::new(config));
    let (_names, names) = watch::channel(Arc::new(Names::default()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let end = std::future::pending();
    runtime.block_on(server.run(listeners, config, names, Arc::new(Recorded::default()), end))?;
    Ok(())
}
