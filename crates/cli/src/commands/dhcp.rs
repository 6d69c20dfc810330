//! `oooi dhcp`: one DHCP server.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use oooi_api::DhcpServer;
use oooi_api::dhcp_server::LeaseStorage;
use oooi_api::foreign::VirtualMachineInstance;
use oooi_dhcp::config::Config;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::metrics::Metrics;
use oooi_dhcp::server::Feeds;
use oooi_dhcp::socket::Socket;
use oooi_dhcp::store::LeaseStore;
use oooi_dhcp::store::journal::Journal;
use oooi_dhcp::{control, server};
use oooi_feed::leases::ClusterStore;
use oooi_net::Network;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, watch};

use crate::observe::{self, Bind};
use crate::own::{Followed, InCluster, OwnArgs};
use crate::{Outcome, block_on, until_signal};

/// Run one DHCP server from its own resource
///
/// The file is a DHCPServer. With --namespace and --name the resource in the cluster is followed as well, and told how
/// the server is. A change applies at once; one that is wrong is refused, and the last good one stays. Leases are
/// durable before they are acknowledged.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    own: OwnArgs,
    /// The interface on the VLAN
    #[arg(long, value_name = "IF")]
    interface: String,
    /// Where leases are kept
    #[arg(long, value_name = "DIR", default_value = "/var/lib/oooi")]
    state_dir: PathBuf,
    /// In a cluster: the namespace of the virtual machines that may ask; by default all namespaces
    #[arg(long, value_name = "NAMESPACE")]
    machine_namespace: Option<String>,
    #[command(flatten)]
    bind: Bind,
}

/// Runs until a signal ends it.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    // A lease is synchronised in the thread that decides: one thread for all of it.
    block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    let socket = Socket::open(&args.interface)?;
    let local = socket
        .addresses()
        .with_context(|| format!("the addresses of {} cannot be read", args.interface))?;
    tokio::spawn(oooi_net::announce(
        local.iter().copied().map(IpAddr::V4).collect(),
    ));
    // Where leases are kept is settled at the start: what one store has given, another would give again.
    let storage = Arc::new(OnceLock::new());
    let seen = storage.clone();
    let (listed, machines) = watch::channel(Arc::default());
    let build = move |documents: &[oooi_manifest::Document]| {
        let (config, storage, machines) = read(documents, &local)?;
        seen.get_or_init(|| storage);
        listed.send_replace(Arc::new(machines));
        Ok(config)
    };
    let followed = args.own.follow::<DhcpServer, _, _>(build).await?;
    let shared = storage.get() == Some(&LeaseStorage::Kubernetes);
    match &followed.cluster {
        Some(cluster) if shared => {
            let own = &cluster.own;
            let store = ClusterStore::new(own.client.clone(), &own.namespace, &own.name, cluster.uid.clone());
            // Whoever wants to free a lease does so by its resource; the sender is kept so that nothing is heard.
            let (_commands, commands) = mpsc::channel(1);
            run_with(args, socket, followed, machines, store, commands).await
        }
        None if shared => anyhow::bail!(
            "leaseConfig.storage is Kubernetes, and no cluster is named: pass --namespace and --name, or set it to Embedded"
        ),
        _ => {
            let store = Journal::open(&args.state_dir)?;
            let commands = control::listen(&args.state_dir)
                .with_context(|| format!("no commands can be taken in {}", args.state_dir.display()))?;
            run_with(args, socket, followed, machines, store, commands).await
        }
    }
}

async fn run_with<S: LeaseStore>(
    args: &Args,
    socket: Socket,
    followed: Followed<Config>,
    listed: watch::Receiver<Arc<Machines>>,
    store: S,
    commands: mpsc::Receiver<control::Command>,
) -> anyhow::Result<Outcome> {
    let machines = match &followed.cluster {
        Some(InCluster { own, .. }) => {
            let machines = oooi_feed::machines::follow(own.client.clone(), args.machine_namespace.as_deref());
            oooi_feed::servers::join(own.client.clone(), &own.namespace, machines)
        }
        // Without a cluster the machines are those of the manifests.
        None => listed,
    };
    let mut registry = Registry::default();
    followed.accepted.register(&mut registry);
    let metrics = Metrics::register(&mut registry);
    let feeds = Feeds {
        config: followed.config,
        machines,
        commands,
    };
    let ready = metrics.clone();
    let running = server::run(socket, feeds, store, followed.report, metrics, until_signal());
    let serving = async {
        tokio::select! {
            served = running => served.map_err(anyhow::Error::from),
            // A socket of an interface that is gone hears nothing, for ever: whoever started this starts it again.
            gone = Network::until_gone(&args.interface) => Err(gone.into()),
        }
    };
    let registry = Arc::new(registry);
    let pages = args.bind.pages(
        move || observe::encode(&registry),
        move || ready.store_is_available(),
    );
    observe::beside(vec![pages], serving).await?;
    Ok(Outcome::Done)
}

fn read(
    documents: &[oooi_manifest::Document],
    local: &[Ipv4Addr],
) -> Result<(Config, LeaseStorage, Machines), Vec<oooi_manifest::Mistake>> {
    let document = oooi_manifest::only(documents, "DHCPServer")?;
    let resource: DhcpServer = document.decode().map_err(|mistake| vec![mistake])?;
    let config = Config::from_spec(&resource.spec, local).map_err(|found| -> Vec<_> {
        found
            .iter()
            .map(|m| document.mistake(&m.path, &m.message))
            .collect()
    })?;
    let machines: Vec<VirtualMachineInstance> =
        oooi_manifest::all(documents, "kubevirt.io/v1", "VirtualMachineInstance")?;
    let storage = resource.spec.lease_config.storage.unwrap_or_default();
    Ok((config, storage, oooi_feed::machines::index(&machines)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use oooi_dhcp::mac::Mac;
    use oooi_manifest::Source;

    use super::*;

    #[test]
    fn machines_beside_the_server_are_known_by_name() {
        let stream = concat!(
            include_str!("../../../../examples/dhcpserver.yaml"),
            "---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker-1}
spec: {domain: {devices: {interfaces: [{name: vlan, macAddress: '02:00:00:00:00:07'}]}}}
"
        );
        let documents = oooi_manifest::read(&Source::new("stream.yaml", stream)).unwrap();
        let (_, _, machines) = read(&documents, &[]).unwrap();
        let machine = machines.get(Mac([2, 0, 0, 0, 0, 7])).unwrap();
        assert_eq!(&*machine.name, "worker-1");
        assert!(machines.complete, "nobody else tells of machines");
    }
}
