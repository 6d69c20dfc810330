//! Routes by source: what leaves from an address of an interface leaves by that interface, wherever it goes.
//!
//! A pod on two networks has one default route, that of the pod network. A client beyond the VLAN's own gateway asks by
//! the VLAN; without these routes its answer would leave by the pod network, and nobody there knows what it belongs to.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use rtnetlink::RouteMessageBuilder;
use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::packet_route::rule::RuleAction;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::network::refused;
use crate::{Error, Network};

/// Where the routes are, and how early the rules that lead there come: before the main table.
const TABLE: u32 = 100;

impl Network {
    /// Routes by `gateway` whatever leaves from an address of an interface, and returns those addresses. Done again, it
    /// changes nothing.
    pub async fn route_by_source(&self, interface: &str, gateway: Ipv4Addr) -> Result<Vec<Ipv4Net>, Error> {
        let (index, addresses) = (self.index(interface).await?, self.addresses(interface).await?);
        let Some(own) = addresses.iter().find(|own| own.contains(&gateway)) else {
            return Err(Error::NotBeside(gateway, interface.to_owned()));
        };
        let table = || {
            RouteMessageBuilder::<Ipv4Addr>::new()
                .output_interface(index)
                .table_id(TABLE)
        };
        let beside = table()
            .destination_prefix(own.network(), own.prefix_len())
            .scope(RouteScope::Link);
        // In this order: a gateway is taken only where it can be reached.
        for (route, what) in [
            (beside, own.trunc()),
            (table().gateway(gateway), Ipv4Net::default()),
        ] {
            let add = self.netlink.route().add(route.build()).replace();
            let operation = format!("route {what} by {interface} in table {TABLE}");
            add.execute().await.map_err(refused(operation))?;
        }
        for address in &addresses {
            let rule = self.netlink.rule().add().v4();
            let rule = rule
                .source_prefix(address.addr(), 32)
                .table_id(TABLE)
                .priority(TABLE)
                .action(RuleAction::ToTable);
            let added = rule.execute().await;
            match added.map_err(refused(format!(
                "let table {TABLE} route from {}",
                address.addr()
            ))) {
                Err(error) if !error.is_there_already() => return Err(error),
                _ => {}
            }
        }
        Ok(addresses)
    }
}

/// Takes up the right to change routes where this process has it and does not use it: so it is given by the file
/// capability of an image whose other pods must start without it. Where it is missing, the kernel says so.
pub fn take_up_net_admin() {
    let Ok(mut sets) = capabilities(None) else { return };
    if sets.permitted.contains(CapabilitySet::NET_ADMIN) && !sets.effective.contains(CapabilitySet::NET_ADMIN)
    {
        sets.effective |= CapabilitySet::NET_ADMIN;
        let _ = set_capabilities(None, sets);
    }
}
