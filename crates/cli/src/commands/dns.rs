//! `oooi dns`: one DNS server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use oooi_api::DnsServer;
use oooi_api::foreign::VirtualMachineInstance;
use oooi_dhcp::time::Timestamp;
use oooi_dns::config::Config;
use oooi_dns::names::Names;
use oooi_dns::server::{Addresses, Listeners, Options, RateLimit, Server};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::observe::{self, Bind, Pages};
use crate::own::{InCluster, OwnArgs};
use crate::{Outcome, addresses_on_vlan, block_on, until_signal};

/// Run one DNS server from its own resource
///
/// The file is a DNSServer. With --namespace and --name the resource in the cluster is followed as well, and told how
/// the server is. It listens on those of the resource's addresses that this host has, and on those given here. A
/// change applies at once and loses no query.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    own: OwnArgs,
    /// A further address to listen on, such as the pod's own; may repeat
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<std::net::IpAddr>,
    /// How much memory answers may be kept in, in MiB
    #[arg(long, value_name = "MIB", default_value_t = oooi_dns::server::CACHE_MIB)]
    cache_size: usize,
    /// Log one query in so many
    #[arg(long, value_name = "N")]
    query_log: Option<u32>,
    /// Answers a second that one client may have by UDP; over it, it is sent to TCP. By default any number
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: Option<u32>,
    /// Where /health is served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    health_bind_address: SocketAddr,
    /// Where /ready is served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8181")]
    ready_bind_address: SocketAddr,
    /// In a cluster: the DHCPServer whose leases give names; by default NAME-dhcp for the resource NAME-dns
    #[arg(long, value_name = "NAME")]
    dhcp_server: Option<String>,
    /// In a cluster: the namespace of the virtual machines that have names; by default all namespaces
    #[arg(long, value_name = "NAMESPACE")]
    machine_namespace: Option<String>,
    #[command(flatten)]
    bind: Bind,
}

/// Runs until a signal ends it.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    let (listed, names_of_listed) = watch::channel(Arc::default());
    let build = move |documents: &[oooi_manifest::Document]| {
        let (config, names) = read(documents)?;
        listed.send_replace(Arc::new(names));
        Ok(config)
    };
    let followed = args.own.follow::<DnsServer, _, _>(build).await?;
    let config = followed.config;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let places = Places::of(&config.borrow(), &args.listen);
    let listeners = Listeners::bind(&places.wanted, &places.possible, cores)?;
    announce(listeners.addresses(), &args.listen);
    let options = Options {
        cache_octets: args.cache_size << 20,
        query_log: args.query_log,
        // A second's worth at once: a client that boots asks for many names in a moment.
        rate_limit: args.rate_limit.map(|rate| RateLimit { rate, burst: rate }),
        ..Options::default()
    };
    let server = Server::new(options, cores);
    let mut registry = Registry::default();
    followed.accepted.register(&mut registry);
    server.metrics().register(&mut registry);
    let probes = server.probes();
    let moves = follow_places(config.clone(), places, args.listen.clone(), server.addresses());
    tokio::spawn(moves);
    // Without a cluster the machines are those of the manifests.
    let names = followed.cluster.map(|cluster| names(args, &cluster));
    let serving = server.run(
        listeners,
        config,
        names.unwrap_or(names_of_listed),
        followed.report,
        until_signal(),
    );
    let registry = Arc::new(registry);
    let (health, ready) = (probes.clone(), probes.clone());
    let pages = vec![
        args.bind
            .pages(move || observe::encode(&registry), move || probes.is_ready()),
        Pages::probe(args.health_bind_address, "/health", move || health.is_healthy()),
        Pages::probe(args.ready_bind_address, "/ready", move || ready.is_ready()),
    ];
    observe::beside(pages, serving).await?;
    Ok(Outcome::Done)
}

/// Where a server listens.
#[derive(PartialEq, Eq)]
struct Places {
    /// Those that must be there.
    wanted: Vec<SocketAddr>,
    /// Those of all replicas, of which this host has some.
    possible: Vec<SocketAddr>,
}

impl Places {
    fn of(config: &Config, listen: &[IpAddr]) -> Places {
        let possible: Vec<SocketAddr> = config.listen_addresses().collect();
        let port = possible.first().map_or(53, SocketAddr::port);
        let wanted = listen.iter().map(|address| SocketAddr::new(*address, port));
        Places {
            wanted: wanted.collect(),
            possible,
        }
    }
}

/// What cannot be bound now is tried again so often.
const AGAIN: Duration = Duration::from_secs(5);

/// Moves the server whenever its resource names other addresses or another port.
async fn follow_places(
    mut config: watch::Receiver<Arc<Config>>,
    mut served: Places,
    listen: Vec<IpAddr>,
    addresses: Addresses,
) {
    loop {
        let next = Places::of(&config.borrow_and_update(), &listen);
        let mut again = None;
        if next != served {
            match addresses.replace(&next.wanted, &next.possible) {
                Ok(new) => {
                    announce(&new, &listen);
                    served = next;
                }
                Err(error) => {
                    tracing::warn!(%error, "the new addresses cannot be had; the old ones stay until they can");
                    again = Some(AGAIN);
                }
            }
        }
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
        }
    }
}

/// Tells the VLAN who has these addresses now.
fn announce(addresses: &[SocketAddr], listen: &[IpAddr]) {
    let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    tokio::spawn(oooi_net::announce(addresses_on_vlan(&addresses, listen)));
}

/// The names of machines and leases.
fn names(args: &Args, InCluster { own, .. }: &InCluster) -> watch::Receiver<Arc<Names>> {
    let machines = oooi_feed::machines::follow(own.client.clone(), args.machine_namespace.as_deref());
    let base = own.name.strip_suffix("-dns").unwrap_or(&own.name);
    let sibling = || format!("{base}-dhcp");
    let dhcp_server = args.dhcp_server.clone().unwrap_or_else(sibling);
    oooi_feed::names::follow(own.client.clone(), &own.namespace, &dhcp_server, machines)
}

/// The configuration, and the names of the machines beside it.
fn read(documents: &[oooi_manifest::Document]) -> Result<(Config, Names), Vec<oooi_manifest::Mistake>> {
    let document = oooi_manifest::only(documents, "DNSServer")?;
    let resource: DnsServer = document.decode().map_err(|mistake| vec![mistake])?;
    let config = Config::from_resource(&resource).map_err(|found| -> Vec<_> {
        found
            .0
            .iter()
            .map(|m| document.mistake(&m.path, &m.message))
            .collect()
    })?;
    let machines: Vec<VirtualMachineInstance> =
        oooi_manifest::all(documents, "kubevirt.io/v1", "VirtualMachineInstance")?;
    let machines = oooi_feed::machines::index(&machines);
    // Leases are with the DHCP server, wherever that is: a machine is where its manifest says.
    let names = oooi_feed::names::of(std::iter::empty(), &machines, Timestamp::wall());
    Ok((config, names))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use oooi_manifest::Source;

    use super::*;

    #[test]
    fn machines_beside_the_server_have_names() {
        let stream = concat!(
            include_str!("../../../../examples/dnsserver.yaml"),
            "---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker-1}
spec:
  domain: {devices: {interfaces: [{name: vlan, macAddress: '02:00:00:00:00:07'}]}}
  networks: [{name: vlan, multus: {networkName: vlan}}]
status: {interfaces: [{name: vlan, mac: '02:00:00:00:00:07', ipAddress: 192.168.100.17}]}
"
        );
        let documents = oooi_manifest::read(&Source::new("stream.yaml", stream)).unwrap();
        let (_, names) = read(&documents).unwrap();
        let address: IpAddr = "192.168.100.17".parse().unwrap();
        assert_eq!(names.hosts, [("worker-1".to_owned(), vec![address])].into());
    }
}
