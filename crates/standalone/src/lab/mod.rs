//! The laptop lab: the whole story between network namespaces.
//!
//! A VLAN is built, TLS servers stand in for the control plane on a network that the VLAN cannot reach, the servers
//! of an `Infra` run between the two, and nodes boot through them by wire: DHCP, DNS, TLS by server name. Then the
//! lab proves what must hold on: isolation, renewal, and change without a dropped connection. Nothing outlives the
//! process: namespaces have no names, and leases are in a temporary directory.

mod control_plane;
mod dhcp_client;
mod node;
mod resolver;
mod story;
mod topology;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::Ipv4Net;
use oooi_api::report::Recorded;
use oooi_manifest::{Mistake, Source};
use oooi_plan::Known;
use tokio::sync::watch;

use self::control_plane::{Authority, Backend, serve};
use self::dhcp_client::Lease;
use self::node::Node;
use self::topology::{Topology, VLAN_INTERFACE};
use crate::desired::Desired;
use crate::up::{self, Running};

pub use story::{Outcome, Step, Story, Tell};

/// The manifest of the lab's cluster.
pub const MANIFEST: &str = include_str!("lab.yaml");

/// How to run a lab.
pub struct Options {
    /// How many nodes boot.
    pub nodes: u8,
    /// Called when all steps are taken and everything still runs, with the namespaces by their names: somebody may
    /// want to look around.
    pub linger: Option<Linger>,
}

/// Looks around in a lab and returns when it may end.
pub type Linger = Box<dyn FnOnce(&[(String, PathBuf)])>;

/// A lab that cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its network cannot be built.
    #[error(transparent)]
    Topology(#[from] topology::Error),
    /// The control plane cannot be stood in for.
    #[error(transparent)]
    ControlPlane(#[from] control_plane::Error),
    /// The servers cannot be started.
    #[error("the servers cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// Its manifest is wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifest(Vec<Mistake>),
}

/// The services of the lab's control plane: what each is called, where it is, which name nodes ask for, and at which
/// port of the gateway.
const SERVICES: [(&str, Ipv4Addr, u16, &str, u16); 4] = [
    (
        "kube-apiserver",
        Ipv4Addr::new(10, 244, 0, 10),
        6443,
        "api.lab.example.com",
        6443,
    ),
    (
        "ignition-server-proxy",
        Ipv4Addr::new(10, 244, 0, 12),
        8443,
        "ignition.lab.example.com",
        443,
    ),
    (
        "konnectivity-server",
        Ipv4Addr::new(10, 244, 0, 13),
        8091,
        "konnectivity.lab.example.com",
        443,
    ),
    (
        "oauth-openshift",
        Ipv4Addr::new(10, 244, 0, 11),
        6443,
        "oauth.lab.example.com",
        443,
    ),
];
/// Where the API server moves to.
const MOVED: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 20);
/// What it calls itself there.
const MOVED_NAME: &str = "kube-apiserver, moved";
/// The VLAN's own router.
const ROUTER: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 100, 1), 24);

/// Runs a lab. An error means that it could not begin; a step that does not hold is part of its outcome.
pub fn run(options: Options, mut story: Story) -> Result<Outcome, Error> {
    let addresses: Vec<Ipv4Addr> = SERVICES.iter().map(|service| service.1).chain([MOVED]).collect();
    let built = story.step("lab", "build a VLAN and a management network", || {
        let topology = Topology::build(ROUTER, &addresses)?;
        Ok::<_, topology::Error>((topology, "nothing leads from one to the other".into()))
    });
    let Some(topology) = built else {
        return Ok(story.end());
    };

    let authority = Authority::new()?;
    story.step("lab", "start a control plane", || {
        for (service, address, port, name, _) in SERVICES {
            let backend = Backend {
                service: service.into(),
                address,
                port,
                names: vec![name.into()],
            };
            serve(&topology.management, &authority, &backend)?;
        }
        let names = vec![SERVICES[0].3.to_owned()];
        let moved = Backend {
            service: MOVED_NAME.into(),
            address: MOVED,
            port: 6443,
            names,
        };
        serve(&topology.management, &authority, &moved)?;
        Ok::<_, control_plane::Error>(((), format!("{} TLS servers", SERVICES.len() + 1)))
    });

    let first = read(MANIFEST, &Known::default()).map_err(Error::Manifest)?;
    let (sender, receiver) = watch::channel(Arc::new(first));
    let state = tempfile::tempdir()?;
    let started = story.step("lab", "start DHCP, DNS and the gateway from one manifest", || {
        let running = start_servers(&topology, &receiver, state.path())?;
        let addresses = receiver.borrow().components.addresses();
        let shown = [addresses.dhcp, addresses.dns, addresses.proxy]
            .concat()
            .join(", ");
        Ok::<_, Error>((running, shown))
    });
    let Some(mut servers) = started else {
        return Ok(story.end());
    };

    let mut namespaces = vec![topology.infra.clone(), topology.management.clone()];
    for index in 1..=options.nodes {
        let namespace = topology.add_node(&format!("node-{index}"))?;
        namespaces.push(namespace.clone());
        let node = Node::new(index, namespace, authority.roots()?);
        let Some(lease) = boot(&mut story, &node) else {
            continue;
        };
        if index == 1 {
            change(&mut story, &node, &lease, &sender);
            renew(&mut story, &node, &lease, "renew the lease");
            let restarted = story.step("lab", "restart the servers", || {
                servers.stop();
                Ok::<_, Error>((
                    start_servers(&topology, &receiver, state.path())?,
                    "with the leases that they had".into(),
                ))
            });
            let Some(again) = restarted else {
                return Ok(story.end());
            };
            servers = again;
            renew(
                &mut story,
                &node,
                &lease,
                "renew the lease at a server that was restarted",
            );
            let (service, _, _, host, port) = SERVICES[1];
            reach(&mut story, &node, &lease, host, port, service);
        }
    }
    if let Some(linger) = options.linger {
        let entered: Vec<_> = namespaces
            .iter()
            .map(|n| (n.name().to_owned(), n.path()))
            .collect();
        linger(&entered);
    }

    story.step("lab", "stop the servers", || {
        servers.stop();
        Ok::<_, Error>(((), "nothing is left behind".into()))
    });
    Ok(story.end())
}

fn read(text: &str, known: &Known) -> Result<Desired, Vec<Mistake>> {
    let documents = oooi_manifest::read(&Source::new("lab.yaml", text))?;
    let mistakes: Vec<Mistake> = documents
        .iter()
        .flat_map(oooi_manifest::Document::check)
        .collect();
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    Desired::read(&documents, known)
}

/// Puts the servers' addresses on their interface and starts them in their namespace.
fn start_servers(
    topology: &Topology,
    desired: &watch::Receiver<Arc<Desired>>,
    state: &std::path::Path,
) -> Result<Running, Error> {
    let addresses = desired.borrow().addresses.clone();
    topology
        .infra
        .run(async move || {
            let network = oooi_net::Network::open()?;
            for address in addresses {
                match network.add_address(VLAN_INTERFACE, address).await {
                    Err(error) if !error.is_there_already() => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        })?
        .map_err(topology::Error::Network)?;
    let options = up::Options {
        interface: VLAN_INTERFACE.into(),
        state: state.to_owned(),
        report: Arc::new(Recorded::default()),
        metrics: Arc::default(),
    };
    let desired = desired.clone();
    Ok(topology
        .infra
        .run(async move || up::start(&desired, &options))??)
}

/// One node boots.
fn boot(story: &mut Story, node: &Node) -> Option<Lease> {
    let lease = story.step(&node.name, "get an address by DHCP", || {
        let lease = node.boot()?;
        let shown = format!(
            "{}/{} from {}, for {:?}",
            lease.address, lease.prefix, lease.server, lease.time
        );
        Ok::<_, node::Error>((lease, shown))
    })?;
    for (service, _, _, host, port) in SERVICES {
        reach(story, node, &lease, host, port, service);
    }
    refuse(story, node, &lease);
    Some(lease)
}

fn renew(story: &mut Story, node: &Node, lease: &Lease, step: &str) {
    story.step(&node.name, step, || {
        // A server that was just started may not listen yet: the client asks again, as every client does.
        let again = node.renew(lease)?;
        if again.address == lease.address {
            Ok(((), format!("{} again", again.address)))
        } else {
            Err(node::Error::Unexpected(format!(
                "got {} instead of {}",
                again.address, lease.address
            )))
        }
    });
}

/// A name of the control plane resolves to the gateway, and TLS by it ends at the right service.
fn reach(story: &mut Story, node: &Node, lease: &Lease, host: &str, port: u16, service: &str) {
    story.step(&node.name, &format!("reach {service} by its name"), || {
        let gateway = lookup(node, lease, host)?;
        let who = node.ask(SocketAddr::from((gateway, port)), host)?;
        expect(&who, service)?;
        Ok::<_, node::Error>(((), format!("{host}:{port} by {gateway}, certificate verified")))
    });
}

fn lookup(node: &Node, lease: &Lease, host: &str) -> Result<Ipv4Addr, node::Error> {
    let missing = || node::Error::Unexpected("the lease names no resolver".into());
    let resolver = *lease.resolvers.first().ok_or_else(missing)?;
    node.resolve(resolver, host)?.first().copied().ok_or_else(missing)
}

fn expect(who: &str, wanted: &str) -> Result<(), node::Error> {
    if who == wanted {
        Ok(())
    } else {
        Err(node::Error::Unexpected(format!("{who} answered, not {wanted}")))
    }
}

/// What a node must not reach, it does not reach.
fn refuse(story: &mut Story, node: &Node, lease: &Lease) {
    story.step(
        &node.name,
        "be refused with a server name that nobody has",
        || {
            let gateway = lookup(node, lease, SERVICES[0].3)?;
            match node.ask(SocketAddr::from((gateway, 443)), "other.example.com") {
                Err(node::Error::Io(error)) => Ok(((), error.to_string())),
                Err(error) => Err(error),
                Ok(who) => Err(node::Error::Unexpected(format!("{who} answered"))),
            }
        },
    );
    story.step(
        &node.name,
        "be told at once that a foreign name is not known",
        || match lookup(node, lease, "www.example.org") {
            Err(node::Error::Name(error @ resolver::Error::Code { .. })) => Ok(((), error.to_string())),
            Err(error) => Err(error),
            Ok(address) => Err(node::Error::Unexpected(format!("it resolved to {address}"))),
        },
    );
    story.step(&node.name, "not reach the management network itself", || {
        let shown = node.is_out_of_reach(SocketAddr::from((SERVICES[0].1, SERVICES[0].2)))?;
        Ok::<_, node::Error>(((), shown))
    });
}

/// A backend moves and a name is added while a connection is open.
fn change(story: &mut Story, node: &Node, lease: &Lease, desired: &watch::Sender<Arc<Desired>>) {
    let (service, address, _, host, port) = SERVICES[0];
    story.step(&node.name, "keep a connection while the API server moves", || {
        let gateway = SocketAddr::from((lookup(node, lease, host)?, port));
        let held = node.hold(gateway, host)?;
        expect(&held.ask()?, service)?;
        apply(
            desired,
            &MANIFEST.replace(&format!("[{address}]"), &format!("[{MOVED}]")),
        )?;
        await_answer(|| node.ask(gateway, host), MOVED_NAME)?;
        expect(&held.ask()?, service)?;
        Ok::<_, node::Error>((
            (),
            format!("new connections reach {MOVED}, the old one still ends at {address}"),
        ))
    });
    story.step(&node.name, "resolve a name that was just added", || {
        let added = "      staticEntries: [{hostname: registry.lab.example.com, ip: 192.168.100.50}]\n";
        let text = MANIFEST.replace(
            "      clusterName: lab\n",
            &format!("      clusterName: lab\n{added}"),
        );
        apply(desired, &text)?;
        let host = "registry.lab.example.com";
        let found = await_answer(|| Ok(lookup(node, lease, host)?.to_string()), "192.168.100.50")?;
        Ok::<_, node::Error>(((), format!("{host} is {found}")))
    });
}

fn apply(desired: &watch::Sender<Arc<Desired>>, text: &str) -> Result<(), node::Error> {
    let known = Known::after(&desired.borrow().components);
    let next = read(text, &known).map_err(|mistakes| {
        node::Error::Unexpected(
            mistakes
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        )
    })?;
    desired.send_replace(Arc::new(next));
    Ok(())
}

/// Asks until the wanted answer comes; a change applies within a second.
fn await_answer(ask: impl Fn() -> Result<String, node::Error>, wanted: &str) -> Result<String, node::Error> {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
    loop {
        let answer = ask();
        match answer {
            Ok(answer) if answer == wanted => return Ok(answer),
            _ if std::time::Instant::now() < deadline => {}
            Ok(other) => {
                return Err(node::Error::Unexpected(format!(
                    "{other} still answers, not {wanted}"
                )));
            }
            Err(error) => return Err(error),
        }
    }
}
