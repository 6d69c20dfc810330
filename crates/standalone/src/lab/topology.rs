//! The lab's network: a VLAN, a management network, and nothing that leads from one to the other but the servers.
//!
//! ```text
//!   node-1 ─┐
//!   node-2 ─┼─ vlan (bridge, also the site's router) ── net1  infra  eth0 ── management: the control plane
//!     …    ─┘
//! ```
//! Every box is a network namespace without a name: it is gone with the process.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use oooi_net::{Namespace, Network};

/// The bridge in the VLAN's namespace.
const BRIDGE: &str = "vlan";
/// The VLAN interface of the servers, as Multus calls it in a pod.
pub(crate) const VLAN_INTERFACE: &str = "net1";
/// The only interface of a node.
pub(crate) const NODE_INTERFACE: &str = "eth0";
/// The management side's interface.
const MANAGEMENT_INTERFACE: &str = "eth0";

/// The namespaces of a lab.
pub struct Topology {
    /// Where the VLAN's bridge is; every machine's port has the machine's name there.
    pub vlan: Namespace,
    /// Where the servers run.
    pub infra: Namespace,
    /// Where the control plane runs.
    pub management: Namespace,
}

/// A network that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A namespace cannot be made.
    #[error(
        "no network namespace can be made: {0} (run as root, or allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1)"
    )]
    Namespace(#[from] std::io::Error),
    /// An interface or an address cannot be made.
    #[error("the lab's network cannot be built: {0}")]
    Network(#[from] oooi_net::Error),
}

impl Topology {
    /// Builds all but the nodes. `gateway` is the VLAN's own router: it answers, and forwards nothing. On the management
    /// network the servers have the second address.
    pub(crate) fn build(
        gateway: Ipv4Net,
        on_management: Ipv4Net,
        control_plane: &[Ipv4Addr],
    ) -> Result<Self, Error> {
        let prefix = on_management.prefix_len();
        let placed = move |address| Ipv4Net::new(address, prefix).unwrap_or_else(|_| Ipv4Net::from(address));
        let servers = on_management.hosts().nth(1).unwrap_or(on_management.addr());
        let vlan = Namespace::new("vlan")?;
        let infra = Namespace::new("infra")?;
        let management = Namespace::new("management")?;

        let port = infra.clone();
        vlan.run(async move || {
            let network = Network::open()?;
            network.set_up("lo").await?;
            network.add_bridge(BRIDGE).await?;
            network.add_address(BRIDGE, gateway).await?;
            network.add_veth("infra", VLAN_INTERFACE, &port).await?;
            network.attach("infra", BRIDGE).await
        })??;

        let peer = infra.clone();
        let addresses = control_plane.to_vec();
        management.run(async move || {
            let network = Network::open()?;
            network.set_up("lo").await?;
            network
                .add_veth(MANAGEMENT_INTERFACE, MANAGEMENT_INTERFACE, &peer)
                .await?;
            network.set_up(MANAGEMENT_INTERFACE).await?;
            for address in addresses {
                network.add_address(MANAGEMENT_INTERFACE, placed(address)).await?;
            }
            Ok::<_, oooi_net::Error>(())
        })??;

        infra.run(async move || {
            let network = Network::open()?;
            for interface in ["lo", MANAGEMENT_INTERFACE, VLAN_INTERFACE] {
                network.set_up(interface).await?;
            }
            network.add_address(MANAGEMENT_INTERFACE, placed(servers)).await
        })??;
        Ok(Topology {
            vlan,
            infra,
            management,
        })
    }

    /// A machine on the VLAN with nothing but its interface.
    pub(crate) fn add_node(&self, name: &str) -> Result<Namespace, Error> {
        let node = Namespace::new(name)?;
        let (port, inside) = (name.to_owned(), node.clone());
        self.vlan.run(async move || {
            let network = Network::open()?;
            network.add_veth(&port, NODE_INTERFACE, &inside).await?;
            network.attach(&port, BRIDGE).await
        })??;
        node.run(async || {
            let network = Network::open()?;
            network.set_up("lo").await?;
            network.set_up(NODE_INTERFACE).await
        })??;
        Ok(node)
    }
}
