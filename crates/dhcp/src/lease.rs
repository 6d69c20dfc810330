//! One lease.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::client_id::ClientId;
use crate::mac::Mac;
use crate::time::Timestamp;

/// What is known of one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// The hardware address of its client.
    pub mac: Mac,
    /// The identifier of its client; hardware type and address if it sent none.
    pub id: ClientId,
    /// The name of its client, if it is known.
    pub host_name: Option<Arc<str>>,
    /// Its client was a known virtual machine: the lease goes when the machine goes.
    pub machine: bool,
    /// How the address stands.
    pub state: State,
    /// When it came to stand so.
    pub since: Timestamp,
    /// Until when it stands so.
    pub expires: Timestamp,
}

/// How an address stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Kept for a client while a probe asks whether another station has it. In memory only.
    Probing,
    /// Offered to a client that has not asked for it yet. In memory only.
    Offered,
    /// A client has it.
    Bound,
    /// A client gave it back, or its machine is gone; it gets it again while nobody else has it.
    Released,
    /// A station that is not our client has it. Nobody gets it until this expires.
    Declined,
}

impl State {
    /// Whether a store keeps leases that stand so.
    pub fn is_stored(self) -> bool {
        matches!(self, State::Bound | State::Released | State::Declined)
    }

    /// The state as a word for people.
    pub fn label(self) -> &'static str {
        match self {
            State::Probing => "probing",
            State::Offered => "offered",
            State::Bound => "bound",
            State::Released => "released",
            State::Declined => "declined",
        }
    }
}

impl Lease {
    /// Whether the address cannot be given to another client.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.state != State::Released && self.expires > now
    }

    /// Whether a client has the address.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.state == State::Bound && self.expires > now
    }

    /// Whether the address is kept from everybody.
    pub fn is_quarantined(&self, now: Timestamp) -> bool {
        self.state == State::Declined && self.expires > now
    }

    /// Whether the record is of the client with this hardware address and identifier: by hardware address if it is or was
    /// a machine, whose image may have been cloned with its identifier and whose boot stages may use different ones, and
    /// for a station that was only seen by ARP, which has no identifier; by identifier for everybody else.
    pub fn is_of(&self, mac: Mac, id: &[u8], machine: bool) -> bool {
        if machine || self.machine || self.id.is_empty() || id.is_empty() {
            self.mac == mac
        } else {
            *self.id == *id
        }
    }

    /// Whether both records are of one client.
    pub fn same_client(&self, other: &Lease) -> bool {
        self.is_of(other.mac, &other.id, other.machine)
    }

    /// Whether the address is kept from everybody since this station, which named itself in no message, has it.
    pub fn is_conflict_of(&self, mac: Mac) -> bool {
        self.state == State::Declined && self.id.is_empty() && self.mac == mac
    }

    /// The same address, given back at `now`.
    pub fn released(&self, now: Timestamp) -> Lease {
        Lease {
            state: State::Released,
            since: now,
            expires: now,
            ..self.clone()
        }
    }
}
