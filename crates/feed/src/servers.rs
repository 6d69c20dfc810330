//! Our other DHCP servers: a watch of the `DHCPServer`s of a namespace.
//!
//! Several hosted clusters may share a VLAN. A server that answers there is then no stranger, as long as it is one of
//! ours.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use oooi_api::DhcpServer;
use oooi_dhcp::machines::Machines;
use tokio::sync::watch;

use crate::watching::{Seen, Watching};

/// Adds the addresses of a namespace's DHCP servers to an index of machines, as both change.
///
/// The task ends when nobody holds the receiver any more.
pub fn join(
    client: Client,
    namespace: &str,
    mut machines: watch::Receiver<Arc<Machines>>,
) -> watch::Receiver<Arc<Machines>> {
    let api: Api<DhcpServer> = Api::namespaced(client, namespace);
    let mut watching = Watching::new(
        api,
        watcher::Config::default(),
        format!("DHCPServers of {namespace}"),
    );
    let (sender, receiver) = watch::channel(machines.borrow_and_update().clone());
    tokio::spawn(async move {
        let mut known: BTreeMap<String, Vec<Ipv4Addr>> = BTreeMap::new();
        loop {
            tokio::select! {
                () = sender.closed() => return,
                Ok(()) = machines.changed() => {}
                seen = watching.next() => match seen {
                    Seen::All(all) => known = all.iter().map(|server| (server.name_any(), addresses(server))).collect(),
                    Seen::Put(server) => {
                        known.insert(server.name_any(), addresses(&server));
                    }
                    Seen::Gone(server) => {
                        known.remove(&server.name_any());
                    }
                    Seen::Lost => continue,
                },
            }
            let mut next = Machines::clone(&machines.borrow_and_update());
            next.servers = known.values().flatten().copied().collect();
            let next = Arc::new(next);
            sender.send_if_modified(|current| {
                let news = *current != next;
                *current = next.clone();
                news
            });
        }
    });
    receiver
}

/// The addresses that a server and its replicas answer from.
fn addresses(server: &DhcpServer) -> Vec<Ipv4Addr> {
    let network = &server.spec.network_config;
    std::iter::once(&network.server_ip)
        .chain(&network.additional_server_ips)
        .filter_map(|address| address.split('/').next()?.parse().ok())
        .collect()
}
