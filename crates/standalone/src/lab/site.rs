//! A site of the lab: a VLAN, the servers of an Infra on it, and stand-ins for its control plane behind them.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use ipnet::Ipv4Net;
use oooi_api::Infra;
use oooi_api::report::Recorded;
use oooi_manifest::{Document, Mistake, Source};
use oooi_net::{Namespace, Network};
use oooi_plan::Known;
use tokio::sync::watch;

use super::Error;
use super::control_plane::{Authority, Backend, serve};
use super::stand_in::{StandIn, stand_ins};
use super::topology::{self, Topology, VLAN_INTERFACE};
use crate::desired::Desired;
use crate::up::{self, Engine, Running, Server};

/// Networks for the management side, of which the first that the VLAN does not overlap is taken.
const MANAGEMENT: [Ipv4Net; 2] = [
    Ipv4Net::new_assert(Ipv4Addr::new(10, 244, 0, 0), 24),
    Ipv4Net::new_assert(Ipv4Addr::new(172, 31, 244, 0), 24),
];
/// Where the API server moves to: the address of this number on the management network.
const MOVED: usize = 239;
/// Where the API server of another hosted cluster is, likewise.
const NEIGHBOUR: usize = 238;
/// The name of that one.
pub(super) const NEIGHBOUR_NAME: &str = "api.neighbour.example.com";

/// What a site will be: an Infra that was read and planned. Nothing is built yet.
pub struct Blueprint {
    document: Document,
    desired: Desired,
    router: Ipv4Net,
    management: Ipv4Net,
    control_plane: Vec<StandIn>,
}

impl Blueprint {
    /// Reads the Infra of a manifest, or says all that is wrong with it. Other documents in it are passed over: the lab
    /// has a control plane of its own.
    pub fn read(source: &Arc<Source>) -> Result<Self, Vec<Mistake>> {
        let documents = oooi_manifest::read(source)?;
        let document = oooi_manifest::only(&documents, "Infra")?.clone();
        let mistakes = document.check();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let infra: Infra = document.decode().map_err(|mistake| vec![mistake])?;
        let at = |path: &str, message: &str| document.mistake(path, message);
        let desired = Desired::of(&infra, &[], &[], &[], &Known::default(), at)?;
        let network = &infra.spec.network_config;
        let read = network
            .cidr
            .parse::<Ipv4Net>()
            .ok()
            .zip(network.gateway.parse::<Ipv4Addr>().ok());
        let (cidr, router) = read.ok_or_else(|| vec![at("spec.networkConfig", "is no network of IPv4")])?;
        let apart = |net: &Ipv4Net| !net.contains(&cidr.network()) && !cidr.contains(&net.network());
        let management = MANAGEMENT.into_iter().find(apart).unwrap_or(MANAGEMENT[0]);
        Ok(Blueprint {
            control_plane: stand_ins(&desired.components, management),
            router: Ipv4Net::new(router, cidr.prefix_len()).unwrap_or_else(|_| Ipv4Net::from(router)),
            document,
            desired,
            management,
        })
    }
}

/// A site while it runs. All of it ends with the process.
pub struct Site {
    /// Its networks.
    pub topology: Topology,
    /// Who makes its certificates.
    pub authority: Authority,
    /// What stands in for the control plane.
    pub control_plane: Vec<StandIn>,
    /// What the servers run.
    pub desired: watch::Sender<Arc<Desired>>,
    management: Ipv4Net,
    document: Document,
    state: tempfile::TempDir,
}

impl Site {
    /// Builds the networks; nothing runs yet.
    pub fn build(blueprint: Blueprint) -> Result<Self, Error> {
        let Blueprint {
            document,
            desired,
            router,
            management,
            control_plane,
        } = blueprint;
        let pods = control_plane.iter().map(|stand_in| stand_in.address);
        let others = [MOVED, NEIGHBOUR]
            .into_iter()
            .filter_map(|number| host(management, number));
        let addresses: Vec<Ipv4Addr> = pods.chain(others).collect();
        let site = Site {
            topology: Topology::build(router, management, &addresses)?,
            authority: Authority::new()?,
            control_plane,
            desired: watch::channel(Arc::new(desired)).0,
            management,
            document,
            state: state_directory()?,
        };
        // The first change puts the endpoints in.
        site.change(|_| {}, None).map_err(Error::Manifest)?;
        Ok(site)
    }

    /// The management network.
    pub fn management(&self) -> Ipv4Net {
        self.management
    }

    /// Where its DHCP server keeps leases.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Where the API server can move to.
    pub fn spare(&self) -> Option<Ipv4Addr> {
        host(self.management, MOVED)
    }

    /// Starts what stands in for the control plane; says how many servers that is.
    pub fn start_control_plane(&self) -> Result<usize, Error> {
        for stand_in in &self.control_plane {
            self.start_stand_in(stand_in, &stand_in.service)?;
        }
        Ok(self.control_plane.len())
    }

    /// Starts the API server of another hosted cluster, which the nodes of this one have no business with.
    pub fn start_neighbour(&self) -> Result<(), Error> {
        if let Some(address) = host(self.management, NEIGHBOUR) {
            let backend = Backend::new("another cluster", (address, 6443), &[NEIGHBOUR_NAME.into()]);
            serve(&self.topology.management, &self.authority, &backend)?;
        }
        Ok(())
    }

    /// Starts one of them, under a name that it answers with.
    pub fn start_stand_in(&self, stand_in: &StandIn, says: &str) -> Result<(), Error> {
        for port in &stand_in.ports {
            let backend = Backend::new(says, (stand_in.address, *port), &stand_in.names);
            serve(&self.topology.management, &self.authority, &backend)?;
        }
        Ok(())
    }

    /// Changes the Infra as it was written, and where the API server is; the servers follow at once.
    pub fn change(
        &self,
        edit: impl FnOnce(&mut Infra),
        api_server: Option<Ipv4Addr>,
    ) -> Result<(), Vec<Mistake>> {
        let mut infra: Infra = self.document.decode().map_err(|mistake| vec![mistake])?;
        edit(&mut infra);
        let (services, slices): (Vec<_>, Vec<_>) = self
            .control_plane
            .iter()
            .map(|stand_in| {
                let moved = api_server.filter(|_| stand_in.service == oooi_plan::infra::API_SERVER);
                stand_in.at(moved.unwrap_or(stand_in.address)).objects()
            })
            .unzip();
        let known = Known::after(&self.desired.borrow().components);
        let at = |path: &str, message: &str| self.document.mistake(path, message);
        let next = Desired::of(&infra, &services, &slices, &[], &known, at)?;
        self.desired.send_replace(Arc::new(next));
        Ok(())
    }

    /// Puts the servers' addresses on their interface and starts them in their namespace.
    pub fn start_servers(&self, engine: &Engine) -> Result<Running, Error> {
        let addresses = self.desired.borrow().addresses.clone();
        let put = self.topology.infra.run(async move || {
            let network = Network::open()?;
            for address in addresses {
                match network.add_address(VLAN_INTERFACE, address).await {
                    Err(error) if !error.is_there_already() => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        })?;
        put.map_err(topology::Error::Network)?;
        let options = up::Options {
            interface: VLAN_INTERFACE.into(),
            state: self.state.path().to_owned(),
            report: Arc::new(Recorded::default()),
            metrics: Arc::default(),
            engine: engine.clone(),
            failing: up::Failing::default(),
        };
        let desired = self.desired.subscribe();
        Ok(self
            .topology
            .infra
            .run(async move || up::start(&desired, &options))??)
    }

    /// Ends one of the servers and starts it again; the others go on.
    pub fn restart(&self, mut servers: Running, server: Server) -> Result<Running, Error> {
        Ok(self
            .topology
            .infra
            .run(async move || servers.restart(server).map(|()| servers))??)
    }

    /// A machine on the VLAN with nothing but its interface.
    pub fn add_node(&self, name: &str) -> Result<Namespace, Error> {
        Ok(self.topology.add_node(name)?)
    }
}

/// How the directories of leases of all labs begin; the number of the process follows.
const STATE: &str = "oooi-lab.";

/// A directory for the leases of this lab. Those of labs that were killed are removed: the kernel removes all else.
fn state_directory() -> std::io::Result<tempfile::TempDir> {
    for entry in std::fs::read_dir(std::env::temp_dir())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(STATE)
            .and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        if owner.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            // Another user's is not ours to remove.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let prefix = format!("{STATE}{}.", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir()
}

fn host(management: Ipv4Net, number: usize) -> Option<Ipv4Addr> {
    management.hosts().nth(number)
}
