//! What the server serves, from a `DHCPServer` manifest.
//!
//! [`Config::from_spec`] reads the specification once into a type that cannot be wrong, or says every mistake at
//! once with the path of its field. Nothing downstream checks again.

mod mistakes;
mod option_value;
mod pool;
mod reservations;

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use oooi_api::dhcp_server::{DhcpNetworkConfig, DhcpServerSpec, UnknownClients};

pub use mistakes::{Mistake, Mistakes};
pub use pool::{AddressRange, Pool};
pub use reservations::{Reservation, Reservations};

use crate::options::code;
use crate::time::Timestamp;

/// The longest time that a lease may last. Longer ones read as "for ever" to some clients.
const LONGEST_LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Below this a client would have no time to renew.
const SHORTEST_LEASE: Duration = Duration::from_secs(10);

/// What one server serves.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) server: Ipv4Addr,
    pub(crate) replicas: Vec<Ipv4Addr>,
    /// Servers of others on the network that are no strangers.
    pub(crate) known_servers: Vec<Ipv4Addr>,
    pub(crate) pool: Pool,
    pub(crate) reservations: Reservations,
    pub(crate) options: OptionSet,
    pub(crate) lease_time: Duration,
    pub(crate) unknown_clients: UnknownClients,
    pub(crate) conflict_probe: bool,
    pub(crate) migration_grace: Option<Timestamp>,
}

impl Config {
    /// Reads a specification. `local` are the addresses of this host: which replica it is follows from them, and
    /// with none of them in the specification it is the first one.
    pub fn from_spec(spec: &DhcpServerSpec, local: &[Ipv4Addr]) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::default();
        let network = &spec.network_config;
        let lease = &spec.lease_config;

        let cidr = mistakes.take("networkConfig.cidr", read_network(&network.cidr));
        let gateway = mistakes.take("networkConfig.gateway", read_address(&network.gateway));
        let first = mistakes.take("networkConfig.serverIP", read_server(&network.server_ip, cidr));
        let others = mistakes.addresses(
            "networkConfig.additionalServerIPs",
            &network.additional_server_ips,
        );
        let replicas: Vec<Ipv4Addr> = first.into_iter().chain(others).collect();
        if let (Some(cidr), Some(gateway)) = (cidr, gateway) {
            mistakes.inside("networkConfig.gateway", cidr, gateway);
            for (at, replica) in replicas.iter().enumerate() {
                let path = match at {
                    0 => "networkConfig.serverIP".to_owned(),
                    _ => format!("networkConfig.additionalServerIPs[{}]", at - 1),
                };
                mistakes.inside(&path, cidr, *replica);
                if replicas.iter().take(at).any(|earlier| earlier == replica) {
                    mistakes.add(
                        &path,
                        format!("{replica} is another replica's address: give each its own"),
                    );
                }
            }
        }
        let known_servers = mistakes.addresses("networkConfig.knownServers", &network.known_servers);
        let taken: Vec<Ipv4Addr> = replicas.iter().copied().chain(gateway).collect();
        let reservations = Reservations::read(&lease.reservations, cidr, &taken, &mut mistakes);
        let pool = Pool::read(lease, cidr, &taken, &mut mistakes);
        let options = cidr.map(|cidr| OptionSet::read(spec, cidr, gateway, &mut mistakes));
        let lease_time = mistakes.take("leaseConfig.leaseTime", read_lease_time(&lease.lease_time));
        let migration_grace = lease.migration_grace.as_ref().and_then(|text| {
            let read = text.parse::<jiff::Timestamp>().map(Timestamp::from);
            mistakes.take(
                "leaseConfig.migrationGrace",
                read.map_err(|error| error.to_string()),
            )
        });
        let server = replicas
            .iter()
            .find(|replica| local.contains(replica))
            .or(replicas.first())
            .copied();

        let (Some(server), Some(pool), Some(options), Some(lease_time), true) =
            (server, pool, options, lease_time, mistakes.is_empty())
        else {
            return Err(mistakes);
        };
        Ok(Config {
            server,
            replicas,
            known_servers,
            pool,
            reservations,
            options,
            lease_time,
            unknown_clients: lease.unknown_clients.unwrap_or_default(),
            conflict_probe: lease.conflict_probe.unwrap_or(true),
            migration_grace,
        })
    }

    /// The address by which this server names itself (option 54).
    pub fn server(&self) -> Ipv4Addr {
        self.server
    }

    /// The addresses that can be leased.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The options that clients get.
    pub fn options(&self) -> &OptionSet {
        &self.options
    }

    /// How long a lease lasts.
    pub fn lease_time(&self) -> Duration {
        self.lease_time
    }

    /// How many addresses can be given to clients that have no reservation.
    pub fn pool_size(&self) -> u64 {
        let reserved = self
            .reservations
            .addresses()
            .filter(|address| self.pool.contains(*address))
            .count();
        self.pool.size().saturating_sub(reserved as u64)
    }

    /// Whether an address can be given to any client: in the range, not excluded, nobody's own.
    pub fn is_dynamic(&self, address: Ipv4Addr) -> bool {
        self.pool.contains(address) && !self.reservations.is_reserved(address)
    }
}

/// Options that clients get, already in wire form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionSet(Vec<(u8, Vec<u8>)>);

impl OptionSet {
    /// The value of an option.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        let at = self.0.binary_search_by_key(&code, |(code, _)| *code).ok()?;
        self.0.get(at).map(|(_, value)| value.as_slice())
    }

    /// Every option, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.0.iter().map(|(code, value)| (*code, value.as_slice()))
    }

    fn put(&mut self, code: u8, value: Vec<u8>) {
        if value.is_empty() {
            return;
        }
        self.0.retain(|(other, _)| *other != code);
        let at = self.0.partition_point(|(other, _)| *other < code);
        self.0.insert(at, (code, value));
    }

    fn read(
        spec: &DhcpServerSpec,
        cidr: Ipv4Net,
        gateway: Option<Ipv4Addr>,
        mistakes: &mut Mistakes,
    ) -> Self {
        let DhcpNetworkConfig {
            dns_servers,
            ntp_servers,
            search_domains,
            routes,
            mtu,
            ..
        } = &spec.network_config;
        let mut set = OptionSet::default();
        set.put(code::SUBNET_MASK, cidr.netmask().octets().to_vec());
        set.put(code::BROADCAST_ADDRESS, cidr.broadcast().octets().to_vec());
        set.put(
            code::ROUTERS,
            gateway
                .map(|gateway| gateway.octets().to_vec())
                .unwrap_or_default(),
        );
        let flat = |list: Vec<Ipv4Addr>| list.iter().flat_map(Ipv4Addr::octets).collect();
        set.put(
            code::DNS_SERVERS,
            flat(mistakes.addresses("networkConfig.dnsServers", dns_servers)),
        );
        set.put(
            code::NTP_SERVERS,
            flat(mistakes.addresses("networkConfig.ntpServers", ntp_servers)),
        );
        if let Some(mtu) = mtu {
            let read = u16::try_from(*mtu).ok().filter(|mtu| *mtu >= 576);
            let read = read.ok_or_else(|| format!("{mtu} is not an MTU of IPv4: 576 to 65535"));
            if let Some(mtu) = mistakes.take("networkConfig.mtu", read) {
                set.put(code::MTU, mtu.to_be_bytes().to_vec());
            }
        }
        let mut search = Vec::new();
        for (at, domain) in search_domains.iter().enumerate() {
            let path = format!("networkConfig.searchDomains[{at}]");
            search.extend(
                mistakes
                    .take(&path, option_value::domain(domain))
                    .unwrap_or_default(),
            );
        }
        set.put(code::DOMAIN_SEARCH, search);
        let domain = search_domains
            .first()
            .map(|domain| domain.trim_end_matches('.').as_bytes().to_vec());
        set.put(code::DOMAIN_NAME, domain.unwrap_or_default());

        let (mut classless, mut has_default) = (Vec::new(), false);
        for (at, route) in routes.iter().enumerate() {
            let path = format!("networkConfig.routes[{at}]");
            let destination = mistakes.take(
                &format!("{path}.destination"),
                read_destination(&route.destination),
            );
            let next_hop = mistakes.take(&format!("{path}.gateway"), read_address(&route.gateway));
            if let (Some(destination), Some(next_hop)) = (destination, next_hop) {
                option_value::route(&mut classless, destination, next_hop);
                has_default |= destination.prefix_len() == 0;
            }
        }
        // A client that gets option 121 ignores option 3, so the default route is said again (RFC 3442).
        if let (false, false, Some(gateway)) = (classless.is_empty(), has_default, gateway) {
            option_value::route(&mut classless, Ipv4Net::default(), gateway);
        }
        set.put(code::CLASSLESS_ROUTES, classless);

        for (at, option) in spec.options.iter().enumerate() {
            let path = format!("options[{at}]");
            if spec
                .options
                .iter()
                .take(at)
                .any(|earlier| earlier.code == option.code)
            {
                mistakes.add(
                    &path,
                    format!("option {} is set twice: join the values", option.code),
                );
            } else if let Some((code, value)) = option_value::read(option, &path, &set, mistakes) {
                set.put(code, value);
            }
        }
        set
    }
}

fn read_address(text: &str) -> Result<Ipv4Addr, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is not an IPv4 address such as 192.168.100.1"))
}

fn read_network(text: &str) -> Result<Ipv4Net, String> {
    let network: Ipv4Net = text
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is not a network such as 192.168.100.0/24"))?;
    if !(8..=30).contains(&network.prefix_len()) {
        return Err(format!(
            "a /{} cannot be served: use a prefix length from 8 to 30",
            network.prefix_len()
        ));
    }
    Ok(network.trunc())
}

fn read_destination(text: &str) -> Result<Ipv4Net, String> {
    let network: Ipv4Net = text
        .trim()
        .parse()
        .map_err(|_| format!("`{text}` is not a network such as 10.20.0.0/16"))?;
    Ok(network.trunc())
}

/// A server's address may carry a prefix length, which says nothing new.
fn read_server(text: &str, cidr: Option<Ipv4Net>) -> Result<Ipv4Addr, String> {
    let Some((address, length)) = text.split_once('/') else {
        return read_address(text);
    };
    let address = read_address(address)?;
    match (length.parse::<u8>(), cidr) {
        (Ok(length), Some(cidr)) if length != cidr.prefix_len() => Err(format!(
            "/{length} is not the prefix length of {cidr}: write {address}/{}",
            cidr.prefix_len()
        )),
        (Ok(_), _) => Ok(address),
        (Err(_), _) => Err(format!(
            "`{text}` is not an address with a prefix length such as 192.168.100.2/24"
        )),
    }
}

fn read_lease_time(text: &str) -> Result<Duration, String> {
    let time = oooi_api::duration::parse(text).map_err(|error| error.to_string())?;
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&time) {
        Ok(Duration::from_secs(time.as_secs()))
    } else {
        Err(format!(
            "a lease of {text} is of no use: choose 10s to 87600h; 1h suits virtual machines"
        ))
    }
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
