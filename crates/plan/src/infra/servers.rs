//! The servers of an Infra and the addresses that a person gave them.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::Subject;
use super::fields::{self, host, server_address};
use crate::mistake::Notes;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Dhcp,
    Dns,
    Proxy,
}

impl Role {
    /// What to call it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Role::Dhcp => "DHCP server",
            Role::Dns => "DNS server",
            Role::Proxy => "gateway",
        }
    }

    /// Where it stands in an Infra.
    pub(super) fn path(self) -> &'static str {
        match self {
            Role::Dhcp => "spec.infraComponents.dhcp",
            Role::Dns => "spec.infraComponents.dns",
            Role::Proxy => "spec.infraComponents.proxy",
        }
    }

    /// Where the address of one of its replicas stands.
    pub(super) fn address_path(self, replica: usize) -> String {
        match replica.checked_sub(1) {
            None => format!("{}.serverIP", self.path()),
            Some(at) => format!("{}.additionalServerIPs[{at}]", self.path()),
        }
    }
}

/// One server that runs, or whose address others need.
pub(super) struct Server {
    pub(super) role: Role,
    /// One for each replica; nothing where an address is to be chosen.
    pub(super) given: Vec<Option<Ipv4Addr>>,
    /// What was chosen before, by replica.
    pub(super) kept: Vec<Ipv4Addr>,
}

/// The servers that need addresses, with those that are given.
pub(super) fn servers(subject: &Subject<'_>, cidr: Option<Ipv4Net>, notes: &mut Notes) -> Vec<Server> {
    let parts = subject.parts;
    let mut list = Vec::new();
    if let Some(dhcp) = parts.dhcp.as_ref().filter(|dhcp| dhcp.enabled) {
        let written = (
            dhcp.server_ip.as_deref(),
            &*dhcp.additional_server_ips,
            dhcp.replicas,
        );
        list.push(server(
            Role::Dhcp,
            written,
            subject.known.dhcp_servers(),
            cidr,
            notes,
        ));
    }
    let dns = parts.dns.as_ref().filter(|dns| dns.enabled);
    if let Some(dns) = dns {
        let written = (
            dns.server_ip.as_deref(),
            &*dns.additional_server_ips,
            dns.replicas,
        );
        list.push(server(
            Role::Dns,
            written,
            subject.known.dns_servers(),
            cidr,
            notes,
        ));
    }
    match &parts.proxy {
        Some(proxy) if proxy.enabled => {
            let written = (
                proxy.server_ip.as_deref(),
                &*proxy.additional_server_ips,
                proxy.replicas,
            );
            list.push(server(
                Role::Proxy,
                written,
                subject.known.gateways(),
                cidr,
                notes,
            ));
        }
        // A DNS server always has a gateway's address. One that does not run here may be anywhere; where none is
        // given, the address that it would have is kept for it.
        Some(proxy) if dns.is_some() && proxy.server_ip.is_some() => {
            list.push(elsewhere(
                proxy.server_ip.as_deref(),
                &proxy.additional_server_ips,
                notes,
            ));
        }
        _ if dns.is_some() => list.push(server(
            Role::Proxy,
            (None, &[], None),
            subject.known.gateways(),
            cidr,
            notes,
        )),
        _ => {}
    }
    list
}

fn server(
    role: Role,
    (first, additional, replicas): (Option<&str>, &[String], Option<i32>),
    kept: Vec<Ipv4Addr>,
    cidr: Option<Ipv4Net>,
    notes: &mut Notes,
) -> Server {
    let count = fields::replicas(notes, role.path(), replicas, additional.len());
    let mut given = vec![None; count];
    let written = std::iter::once(first).chain(additional.iter().map(|text| Some(text.as_str())));
    for (replica, text) in written.enumerate() {
        let path = role.address_path(replica);
        let address = text
            .filter(|text| !text.is_empty())
            .and_then(|text| notes.read(&path, server_address(text, cidr)))
            .filter(|address| host(notes, &path, cidr, *address));
        if let Some(place) = given.get_mut(replica) {
            *place = address;
        }
    }
    Server { role, given, kept }
}

fn elsewhere(first: Option<&str>, additional: &[String], notes: &mut Notes) -> Server {
    let written = first
        .into_iter()
        .chain(additional.iter().map(String::as_str))
        .enumerate();
    let given = written
        .map(|(replica, text)| notes.read(Role::Proxy.address_path(replica), server_address(text, None)))
        .collect();
    Server {
        role: Role::Proxy,
        given,
        kept: Vec::new(),
    }
}
