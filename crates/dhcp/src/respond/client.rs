//! Who sent a message, and which address it should have.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::{MAX_PER_MAC, Silence, View, serves_anybody};
use crate::config::Reservation;
use crate::lease::{Lease, State};
use crate::mac::Mac;
use crate::machines::Machine;
use crate::message::{Message, MessageType};
use crate::reply::{Destination, Reply, Times};

/// A client.
pub(super) struct Client<'a> {
    pub(super) mac: Mac,
    pub(super) id: &'a [u8],
    view: View<'a>,
    machine: Option<&'a Machine>,
    reservation: Option<&'a Reservation>,
}

impl<'a> Client<'a> {
    pub(super) fn new(view: View<'a>, message: &'a Message<'_>) -> Self {
        let id = message.identity();
        Client {
            mac: message.mac,
            view,
            machine: view.machines.get(message.mac),
            reservation: view.config.reservations.of(message.mac, id),
            id,
        }
    }

    /// Whether the client is reserved or a known machine.
    pub(super) fn is_known(&self) -> bool {
        self.machine.is_some() || self.reservation.is_some() || self.was_machine()
    }

    /// Whether the client was a machine when it got its lease, or an offer of that address since. While the index of
    /// machines is not whole, that is all there is to know it by.
    fn was_machine(&self) -> bool {
        let View { machines, leases, .. } = self.view;
        let given = |state| !matches!(state, State::Released | State::Declined);
        let is_machines = |lease: &Lease| lease.machine && given(lease.state);
        !machines.complete && leases.of_mac(self.mac).any(is_machines)
    }

    pub(super) fn must_be_served(&self, view: View<'_>) -> Result<(), Silence> {
        if serves_anybody(view.config) || self.is_known() {
            Ok(())
        } else {
            Err(Silence::UnknownClient)
        }
    }

    /// Whether a record is this client's. Either may be a machine though the record does not say so yet.
    pub(super) fn owns(&self, lease: &Lease) -> bool {
        let machine = self.machine.is_some()
            || lease.mac != self.mac && (self.view.machines.has(lease.mac) || self.was_machine());
        lease.is_of(self.mac, self.id, machine) && lease.state != State::Declined
    }

    /// The latest record of this client.
    pub(super) fn former<'l>(&self, view: View<'l>) -> Option<&'l Lease> {
        let by_id = if self.machine.is_none() {
            view.leases.of_id(self.id)
        } else {
            None
        };
        let own = || view.leases.of_mac(self.mac).filter(|lease| self.owns(lease));
        let by_mac = || own().max_by_key(|lease| (lease.since, lease.address));
        by_id.filter(|lease| self.owns(lease)).or_else(by_mac)
    }

    /// The address reserved for this client, unless somebody else still has it.
    pub(super) fn reserved(&self, view: View<'_>) -> Option<Ipv4Addr> {
        let address = self.reservation?.address;
        self.is_open(view, address).then_some(address)
    }

    /// Whether the address may be this client's at all: reserved for it, or anybody's.
    pub(super) fn may_have(&self, view: View<'_>, address: Ipv4Addr) -> bool {
        self.reservation.is_some_and(|own| own.address == address) || view.config.is_dynamic(address)
    }

    /// Whether no other client has the address.
    fn is_open(&self, view: View<'_>, address: Ipv4Addr) -> bool {
        view.leases
            .get(address)
            .is_none_or(|lease| self.owns(lease) || !view.leases.is_kept(lease, view.now))
    }

    /// The address to offer.
    pub(super) fn choose(&self, view: View<'_>, requested: Option<Ipv4Addr>) -> Result<Ipv4Addr, Silence> {
        let former = self.former(view).map(|lease| lease.address);
        let sticky = self
            .reserved(view)
            .or(former.filter(|address| self.may_have(view, *address)));
        if let Some(address) = sticky {
            return Ok(address);
        }
        self.must_be_modest(view)?;
        let unused =
            |address: &Ipv4Addr| view.config.is_dynamic(*address) && view.leases.get(*address).is_none();
        let wish = self
            .machine
            .and_then(|machine| machine.address)
            .filter(unused)
            .or(requested.filter(unused));
        wish.or_else(|| view.leases.free(view.config, view.now))
            .ok_or(Silence::NoFreeAddress)
    }

    /// One hardware address under ever new identifiers must not empty the pool.
    pub(super) fn must_be_modest(&self, view: View<'_>) -> Result<(), Silence> {
        let live = view
            .leases
            .of_mac(self.mac)
            .filter(|lease| lease.is_live(view.now))
            .count();
        if live < MAX_PER_MAC {
            Ok(())
        } else {
            Err(Silence::TooManyAddresses)
        }
    }

    /// A record of this client.
    pub(super) fn lease(
        &self,
        view: View<'_>,
        message: &Message<'_>,
        address: Ipv4Addr,
        state: State,
        time: Duration,
    ) -> Lease {
        let former = view.leases.get(address).filter(|lease| self.owns(lease));
        let id = match former {
            Some(lease) if *lease.id == *self.id => lease.id.clone(),
            _ => self.id.into(),
        };
        // A machine that the index lacks as yet stays one, by its name.
        let was = former.filter(|lease| lease.machine && !view.machines.complete);
        let given = self.given_name().or_else(|| was?.host_name.clone());
        let host_name = given.or_else(|| {
            let name = message.host_name()?;
            let same = former
                .and_then(|lease| lease.host_name.clone())
                .filter(|former| **former == *name);
            Some(same.unwrap_or_else(|| Arc::from(name)))
        });
        let expires = view.now.after(time);
        Lease {
            address,
            mac: self.mac,
            id,
            host_name,
            machine: self.machine.is_some() || was.is_some(),
            state,
            since: view.now,
            expires,
        }
    }

    /// The name that this client is given: by its reservation, or as a machine.
    fn given_name(&self) -> Option<Arc<str>> {
        let reserved = self
            .reservation
            .and_then(|reservation| reservation.host_name.clone());
        reserved.or_else(|| self.machine.map(|machine| machine.name.clone()))
    }

    /// An answer to this client (RFC 2131, section 4.1).
    pub(super) fn reply(
        &self,
        message: &Message<'_>,
        kind: MessageType,
        yiaddr: Ipv4Addr,
        times: Option<Times>,
    ) -> Reply {
        let to = if message.is_relayed() {
            Destination::Relay(message.giaddr)
        } else if kind == MessageType::Nak {
            Destination::Broadcast
        } else if !message.ciaddr.is_unspecified() && kind == MessageType::Ack {
            Destination::Address(message.ciaddr)
        } else if message.wants_broadcast() {
            Destination::Broadcast
        } else {
            Destination::Hardware(message.mac, yiaddr)
        };
        let host_name = if kind == MessageType::Nak {
            None
        } else {
            self.given_name()
        };
        Reply {
            kind,
            yiaddr,
            times,
            host_name,
            message: None,
            rapid: false,
            to,
        }
    }
}
