//! The laptop lab: the whole story between network namespaces.
//!
//! A VLAN is built, TLS servers stand in for the control plane on a network that the VLAN cannot reach, the servers
//! of an `Infra` run between the two, and nodes boot through them by wire: DHCP, DNS, TLS by server name. Then the
//! lab proves what must hold on: isolation, renewal, and change without a dropped connection. Nothing outlives the
//! process: namespaces have no names, and leases are in a temporary directory.

pub mod control_plane;
mod node;
mod restart;
mod site;
mod stand_in;
mod story;
mod topology;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oooi_api::dns_server::DnsStaticEntry;
use oooi_api::proxy_server::Protocol;
use oooi_doctor::client::dhcp::Lease;
use oooi_doctor::client::dns;
use oooi_manifest::{Mistake, Source};
use oooi_plan::infra::API_SERVER;
use tokio::net::TcpStream;

use self::node::Node;
use crate::up::{Engine, Running, Server};

pub use site::{Blueprint, Site};
pub use stand_in::StandIn;
pub use story::{Outcome, Step, Story, Tell};

/// The manifest of the lab's cluster.
pub const MANIFEST: &str = include_str!("lab.yaml");

/// How to run a lab.
pub struct Options {
    /// The manifest of the Infra that the servers run from: [`MANIFEST`], or one of the caller's own.
    pub manifest: Arc<Source>,
    /// The data plane of the gateway.
    pub engine: Engine,
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

/// A service of the control plane as nodes reach it.
#[derive(Clone, Debug)]
struct Reached {
    /// What it calls itself.
    service: String,
    /// The name that nodes ask for.
    host: String,
    /// At which port of the gateway.
    port: u16,
}

/// What the API server calls itself after it moved.
const MOVED_NAME: &str = "kube-apiserver, moved";

/// Runs a lab. An error means that it could not begin; a step that does not hold is part of its outcome.
pub fn run(options: Options, mut story: Story) -> Result<Outcome, Error> {
    let blueprint = Blueprint::read(&options.manifest).map_err(Error::Manifest)?;
    let built = story.step("lab", "build a VLAN and a management network", || {
        let site = Site::build(blueprint)?;
        Ok::<_, Error>((site, "nothing leads from one to the other".into()))
    });
    let Some(site) = built else {
        return Ok(story.end());
    };
    story.step("lab", "start a control plane", || {
        let count = site.start_control_plane()?;
        site.start_neighbour()?;
        Ok::<_, Error>(((), format!("{count} TLS servers, and one of another cluster")))
    });
    let started = story.step("lab", "start DHCP, DNS and the gateway from one manifest", || {
        let running = start(&site, &options.engine)?;
        let addresses = site.desired.borrow().components.addresses();
        let shown = [addresses.dhcp, addresses.dns, addresses.proxy]
            .concat()
            .join(", ");
        Ok::<_, Error>((running, shown))
    });
    let Some(mut servers) = started else {
        return Ok(story.end());
    };

    let reached = reached(&site);
    let mut namespaces = vec![site.topology.infra.clone(), site.topology.management.clone()];
    for index in 1..=options.nodes {
        let namespace = site.add_node(&format!("node-{index}"))?;
        namespaces.push(namespace.clone());
        let node = Node::new(index, namespace, site.authority.roots()?);
        let Some(lease) = boot(&mut story, &site, &node, &reached) else {
            continue;
        };
        if index == 1 {
            change(&mut story, &site, &node, &lease, &reached);
            story.step(&node.name, "renew the lease", || {
                let address = renew(&node, &lease)?;
                Ok::<_, node::Error>(((), format!("{address} again")))
            });
            // Without a gateway there is little that could go on.
            let restarted = Server::ALL.into_iter().filter(|_| !reached.is_empty());
            for server in restarted {
                let Some(again) = restart::restart(&mut story, &site, (&node, &lease), servers, server)
                else {
                    return Ok(story.end());
                };
                servers = again;
            }
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

/// Starts the servers and waits until the gateway listens: an Envoy takes its time.
fn start(site: &Site, engine: &Engine) -> Result<Running, Error> {
    let running = site.start_servers(engine)?;
    let (addresses, reached) = (site.desired.borrow().gateway_addresses(), reached(site));
    let places: Vec<SocketAddr> = reached
        .first()
        .iter()
        .flat_map(|reached| {
            addresses
                .iter()
                .map(|address| SocketAddr::new(*address, reached.port))
        })
        .collect();
    site.topology.infra.run(async move || {
        let deadline = Instant::now() + Duration::from_secs(20);
        for place in places {
            while let Err(error) = TcpStream::connect(place).await {
                if Instant::now() > deadline {
                    return Err(error);
                }
                // A connection that is refused is refused at once; others get their turn in between.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    })??;
    Ok(running)
}

/// What nodes reach by a name of its own, the API server first.
fn reached(site: &Site) -> Vec<Reached> {
    let desired = site.desired.borrow();
    let backends = desired.components.proxy.iter().flat_map(|proxy| &proxy.backends);
    let entries = desired.components.dns.iter().flat_map(|dns| &dns.static_entries);
    let names: BTreeSet<&str> = entries.map(|entry| &*entry.hostname).collect();
    let mut reached: Vec<Reached> = backends
        // What has no name on the VLAN is for pods.
        .filter(|backend| backend.protocol != Protocol::Udp && names.contains(&*backend.hostname))
        .filter(|backend| !backend.hostname.starts_with('*'))
        .filter_map(|backend| {
            Some(Reached {
                service: backend.target_service.clone(),
                host: backend.hostname.clone(),
                port: u16::try_from(backend.port).ok()?,
            })
        })
        .collect();
    reached.sort_by_key(|reached| reached.service != API_SERVER);
    reached
}

/// One node boots.
fn boot(story: &mut Story, site: &Site, node: &Node, reached: &[Reached]) -> Option<Lease> {
    let lease = story.step(&node.name, "get an address by DHCP", || {
        let lease = node.boot()?;
        let shown = format!(
            "{}/{} from {}, for {:?}",
            lease.address, lease.prefix, lease.server, lease.time
        );
        Ok::<_, node::Error>((lease, shown))
    })?;
    for service in reached {
        reach(story, node, &lease, service);
    }
    refuse(story, site, node, &lease, reached);
    Some(lease)
}

/// Renews a lease: the address must stay.
fn renew(node: &Node, lease: &Lease) -> Result<Ipv4Addr, node::Error> {
    let again = node.renew(lease)?.address;
    if again == lease.address {
        return Ok(again);
    }
    Err(node::Error::Unexpected(format!(
        "got {again} instead of {}",
        lease.address
    )))
}

/// A name of the control plane resolves to the gateway, and TLS by it ends at the right service.
fn reach(story: &mut Story, node: &Node, lease: &Lease, reached: &Reached) {
    let Reached { service, host, port } = reached;
    story.step(&node.name, &format!("reach {service} by {host}"), || {
        let gateway = lookup(node, lease, host)?;
        let who = node.ask(SocketAddr::from((gateway, *port)), host)?;
        expect(&who, service)?;
        Ok::<_, node::Error>(((), format!("port {port} of {gateway}, certificate verified")))
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
fn refuse(story: &mut Story, site: &Site, node: &Node, lease: &Lease, reached: &[Reached]) {
    if let Some(Reached { host, port, .. }) = reached.first() {
        for (step, name) in [
            ("be refused with a server name that nobody has", "nobody.invalid"),
            ("be refused with a name of another cluster", site::NEIGHBOUR_NAME),
        ] {
            story.step(&node.name, step, || {
                let gateway = lookup(node, lease, host)?;
                match node.ask(SocketAddr::from((gateway, *port)), name) {
                    Err(node::Error::Io(error)) => Ok(((), format!("{name}: {error}"))),
                    Err(error) => Err(error),
                    Ok(who) => Err(node::Error::Unexpected(format!("{who} answered"))),
                }
            });
        }
    }
    let forwards = |dns: &oooi_api::dns_server::DnsServerSpec| !dns.upstream_dns.is_empty();
    if site
        .desired
        .borrow()
        .components
        .dns
        .as_ref()
        .is_some_and(|dns| !forwards(dns))
    {
        let step = "be told at once that a foreign name is not known";
        story.step(&node.name, step, || {
            match lookup(node, lease, "www.example.org") {
                Err(node::Error::Name(error @ dns::Error::Code { .. })) => Ok(((), error.to_string())),
                Err(error) => Err(error),
                Ok(address) => Err(node::Error::Unexpected(format!("it resolved to {address}"))),
            }
        });
    }
    if let Some((address, port)) = direct(site) {
        story.step(&node.name, "not reach the management network itself", || {
            let shown = node.is_out_of_reach(SocketAddr::from((address, port)))?;
            Ok::<_, node::Error>(((), shown))
        });
    }
}

/// Where a pod of the control plane is, which only the gateway reaches.
fn direct(site: &Site) -> Option<(Ipv4Addr, u16)> {
    let stand_in = site.control_plane.first()?;
    Some((stand_in.address, *stand_in.ports.first()?))
}

/// A backend moves and a name is added while a connection is open.
fn change(story: &mut Story, site: &Site, node: &Node, lease: &Lease, reached: &[Reached]) {
    let api = site
        .control_plane
        .iter()
        .find(|stand_in| stand_in.service == API_SERVER);
    let by_name = reached.iter().find(|reached| reached.service == API_SERVER);
    if let (Some(api), Some(Reached { service, host, port }), Some(spare)) = (api, by_name, site.spare()) {
        story.step(&node.name, "keep a connection while the API server moves", || {
            let gateway = SocketAddr::from((lookup(node, lease, host)?, *port));
            let held = node.hold(gateway, host)?;
            expect(&held.ask()?, service)?;
            site.start_stand_in(&api.at(spare), MOVED_NAME)
                .map_err(|error| node::Error::Unexpected(error.to_string()))?;
            site.change(|_| {}, Some(spare)).map_err(mistaken)?;
            await_answer(|| node.ask(gateway, host), MOVED_NAME)?;
            expect(&held.ask()?, service)?;
            // Whatever comes next meets it where it was.
            site.change(|_| {}, None).map_err(mistaken)?;
            await_answer(|| node.ask(gateway, host), service)?;
            Ok::<_, node::Error>((
                (),
                format!(
                    "new connections reach {spare}, the old one still ends at {}",
                    api.address
                ),
            ))
        });
    }
    let domain = site
        .desired
        .borrow()
        .components
        .dns
        .as_ref()
        .map(|dns| dns.hosted_cluster_domain.clone());
    let Some(domain) = domain else { return };
    story.step(&node.name, "resolve a name that was just added", || {
        let host = format!("just-added.{domain}");
        let entry = DnsStaticEntry {
            hostname: host.clone(),
            ip: lease.address.to_string(),
            additional_ips: Vec::new(),
        };
        let add = |infra: &mut oooi_api::Infra| {
            let parts = infra.spec.infra_components.as_mut();
            if let Some(dns) = parts.and_then(|parts| parts.dns.as_mut()) {
                dns.static_entries.push(entry);
            }
        };
        site.change(add, None).map_err(mistaken)?;
        let wanted = lease.address.to_string();
        let found = await_answer(|| Ok(lookup(node, lease, &host)?.to_string()), &wanted)?;
        Ok::<_, node::Error>(((), format!("{host} is {found}")))
    });
}

fn mistaken(mistakes: Vec<Mistake>) -> node::Error {
    let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    node::Error::Unexpected(all.join("; "))
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
