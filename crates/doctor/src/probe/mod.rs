//! Boots as a node does, from where it runs, and looks closely on the way.
//!
//! An interface that has an address is used as it is: DHCP is asked for offers, and none is taken. One that has none
//! takes a lease, and both are given back at the end.

mod address;
mod dns;
mod mtu;
mod service;

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use jiff::Timestamp;
use oooi_net::Network;
use rustls::RootCertStore;

use self::address::Address;
use crate::client::dhcp::{Client, Offer};
use crate::diagnose;
use crate::diagnose::dhcp::Wanted;
use crate::expected::Expected;
use crate::report::{Check, State};

/// How long offers are waited for: a server may look for a stranger on the address first.
const OFFERS_WITHIN: Duration = Duration::from_secs(2);

/// What cannot even be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The network cannot be looked at.
    #[error(transparent)]
    Network(#[from] oooi_net::Error),
    /// DHCP cannot be spoken.
    #[error(
        "DHCP cannot be spoken on {interface}: {source} (port 68 needs root or CAP_NET_BIND_SERVICE and CAP_NET_RAW)"
    )]
    Dhcp {
        /// The interface.
        interface: String,
        /// Why not.
        source: crate::client::dhcp::Error,
    },
    /// An interface without an Ethernet address cannot ask.
    #[error("{0} has no Ethernet address: name the interface on the VLAN with --interface")]
    NoMac(String),
    /// There are several interfaces.
    #[error("name the interface on the VLAN with --interface; there is: {}", .0.join(", "))]
    WhichInterface(Vec<String>),
    /// TLS cannot be spoken.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// What to look at.
pub struct Options {
    /// The interface on the VLAN; the only one, unless it is said.
    pub interface: Option<String>,
    /// What should be there; unknown without an Infra.
    pub expected: Option<Expected>,
    /// The authority of the control plane's certificates, if it is known.
    pub authority: Option<RootCertStore>,
}

/// Looks at everything from the link to the answers of the control plane.
pub async fn run(options: Options) -> Result<Vec<Check>, Error> {
    let network = Network::open()?;
    let interface = interface(&network, options.interface).await?;
    let seen = link(&network, &interface).await?;
    let mut checks = vec![diagnose::link::diagnose(&interface, &seen)];
    let diagnose::link::Seen::Present { link, addresses } = seen else {
        return Ok(skip(
            checks,
            &["DHCP", "packet size", "DNS", "services"],
            "there is no interface",
        ));
    };
    if checks.iter().any(|check| check.state == State::Failure) {
        return Ok(skip(
            checks,
            &["DHCP", "packet size", "DNS", "services"],
            "the link does not work",
        ));
    }

    let mac = link.mac.ok_or_else(|| Error::NoMac(interface.clone()))?;
    let failed = |source| Error::Dhcp {
        interface: interface.clone(),
        source,
    };
    let mut client = Client::new(&interface, mac).map_err(|error| failed(error.into()))?;
    let offers = client.offers(OFFERS_WITHIN).await.map_err(failed)?;
    let wanted = match &options.expected {
        None => Wanted::Anything,
        Some(Expected { dhcp: None, .. }) => Wanted::Nobody,
        Some(Expected { dhcp: Some(dhcp), .. }) => Wanted::Of(dhcp),
    };
    checks.push(diagnose::dhcp::diagnose(wanted, &offers));

    let best = best_offer(wanted, &offers);
    let address = match Address::have(&network, &interface, &addresses, &mut client, best).await {
        Ok(address) => address,
        Err(finding) => {
            checks.push(Check::new("address", "", vec![finding]));
            return Ok(skip(
                checks,
                &["packet size", "DNS", "services"],
                "this machine has no address",
            ));
        }
    };
    checks.push(Check::new("address", address.to_string(), Vec::new()));
    let expected = options.expected.unwrap_or_else(|| by_lease(best));
    let own: Vec<Ipv4Addr> = addresses.iter().map(Ipv4Net::addr).collect();
    let mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
    let looked = further(&expected, mtu, &own, options.authority).await;
    address.give_back(&network, &interface, &mut client).await;
    checks.extend(looked?);
    Ok(checks)
}

/// Everything that needs an address.
async fn further(
    expected: &Expected,
    mtu: u16,
    own: &[Ipv4Addr],
    authority: Option<RootCertStore>,
) -> Result<Vec<Check>, Error> {
    let now = Timestamp::now();
    let mut targets: Vec<Ipv4Addr> = [&expected.gateways[..], &expected.resolvers].concat();
    targets.retain(|target| !own.contains(target));
    let paths = mtu::look(mtu, &targets).await;
    let mut checks = vec![diagnose::mtu::diagnose(mtu, &paths)];
    let (resolvers, resolved) = dns::look(expected).await;
    checks.push(resolvers);
    checks.push(service::look(expected, &resolved, authority, now).await?);
    Ok(checks)
}

async fn interface(network: &Network, named: Option<String>) -> Result<String, Error> {
    if let Some(named) = named {
        return Ok(named);
    }
    let mut all = network.interfaces().await?;
    match (all.pop(), all.is_empty()) {
        (Some(only), true) => Ok(only),
        (last, _) => Err(Error::WhichInterface(all.into_iter().chain(last).collect())),
    }
}

async fn link(network: &Network, interface: &str) -> Result<diagnose::link::Seen, Error> {
    match network.state(interface).await {
        Err(oooi_net::Error::NoInterface(_)) => Ok(diagnose::link::Seen::Missing {
            others: network.interfaces().await?,
        }),
        state => Ok(diagnose::link::Seen::Present {
            link: state?,
            addresses: network.addresses(interface).await?,
        }),
    }
}

fn skip(mut checks: Vec<Check>, names: &[&str], why: &str) -> Vec<Check> {
    checks.extend(names.iter().map(|name| Check::skipped(*name, why)));
    checks
}

/// The offer that a node should take: one of the Infra's own servers, else any.
fn best_offer<'a>(wanted: Wanted<'_>, offers: &'a [Offer]) -> Option<&'a Offer> {
    let own = |offer: &&Offer| match wanted {
        Wanted::Of(expected) => expected.servers.contains(&diagnose::dhcp::server(offer)),
        Wanted::Anything | Wanted::Nobody => false,
    };
    offers.iter().find(own).or(offers.first())
}

/// What a lease alone tells: resolvers, and a domain whose names are by convention.
fn by_lease(offer: Option<&Offer>) -> Expected {
    let value = |code| {
        let options = offer.map(|offer| &offer.options[..]).unwrap_or_default();
        options
            .iter()
            .find(|(other, _)| *other == code)
            .map(|(_, value)| &value[..])
            .unwrap_or_default()
    };
    let (resolvers, _) = value(oooi_dhcp::options::code::DNS_SERVERS).as_chunks::<4>();
    let resolvers: Vec<Ipv4Addr> = resolvers.iter().map(|octets| Ipv4Addr::from(*octets)).collect();
    let domain = String::from_utf8_lossy(value(oooi_dhcp::options::code::DOMAIN_NAME)).into_owned();
    if domain.is_empty() {
        return Expected {
            resolvers,
            ..Expected::default()
        };
    }
    Expected::by_convention(&domain, &resolvers)
}
