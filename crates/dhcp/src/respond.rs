//! The decision: what to answer to one message. No clock, no socket, no disk.
//!
//! A client gets, in this order: the address reserved for it, the one that it had, the one that its machine is
//! known to have, the one that it asks for, one that nobody had, the one unused for longest. A REQUEST is granted
//! if the client may have the address; else it is refused where this server has the say, and left to others where
//! it has not.

mod client;
mod request;

use std::net::Ipv4Addr;
use std::time::Duration;

use oooi_api::dhcp_server::UnknownClients;

use crate::config::Config;
use crate::lease::{Lease, State};
use crate::leases::Leases;
use crate::machines::Machines;
use crate::message::{Message, MessageType};
use crate::reply::{Destination, Reply, Times};
use crate::split;
use crate::time::Timestamp;
use client::Client;

/// How long an address is kept for a client that was offered it.
pub const OFFER_TIME: Duration = Duration::from_secs(30);
/// How many addresses one hardware address may hold at once under different identifiers.
pub const MAX_PER_MAC: usize = 16;
/// A lease that was stored so recently is confirmed without storing it again.
pub const RECENT: Duration = Duration::from_secs(5);
/// The least time for which nobody gets an address that a stranger uses.
pub const QUARANTINE: Duration = Duration::from_secs(600);

/// What to do with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep the address for the client and ask by ARP whether a stranger has it; then decide again.
    Probe {
        /// To be remembered, not stored.
        hold: Lease,
    },
    /// Offer an address.
    Offer {
        /// To be remembered, not stored; nothing if the client has the address already.
        hold: Option<Lease>,
        /// The offer.
        reply: Reply,
    },
    /// Give an address.
    Grant {
        /// To be stored before the reply leaves.
        lease: Lease,
        /// The ACK.
        reply: Reply,
    },
    /// Answer with what is stored already, or with what needs no storing.
    Confirm {
        /// The ACK.
        reply: Reply,
    },
    /// Tell the client that it cannot have the address.
    Refuse {
        /// The NAK.
        reply: Reply,
    },
    /// The client gave its address back.
    Release {
        /// To be stored.
        lease: Lease,
    },
    /// The client says that a stranger has the address.
    Quarantine {
        /// To be stored.
        lease: Lease,
    },
    /// Say nothing.
    Ignore(Silence),
}

/// Why a message gets no answer. The label is a log field and a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Silence {
    /// The client chose another server.
    OtherServer,
    /// Another replica answers this client.
    OtherReplica,
    /// The relay stands on a network that is not ours.
    OtherNetwork,
    /// The client is neither reserved nor a known machine, and only those are served.
    UnknownClient,
    /// The pool is full.
    NoFreeAddress,
    /// One hardware address holds too many addresses already.
    TooManyAddresses,
    /// The address is being probed.
    ProbeUnderWay,
    /// The address is none that this server has a say in.
    NotOurs,
    /// The message names no address though it must.
    NoAddress,
    /// The address is not this client's, so it can neither give it back nor decline it.
    NotItsAddress,
    /// The lease could not be stored.
    NotStored,
}

impl Silence {
    /// Every reason.
    pub const ALL: [Silence; 11] = [
        Silence::OtherServer,
        Silence::OtherReplica,
        Silence::OtherNetwork,
        Silence::UnknownClient,
        Silence::NoFreeAddress,
        Silence::TooManyAddresses,
        Silence::ProbeUnderWay,
        Silence::NotOurs,
        Silence::NoAddress,
        Silence::NotItsAddress,
        Silence::NotStored,
    ];

    /// The reason as a label.
    pub fn label(self) -> &'static str {
        match self {
            Silence::OtherServer => "other_server",
            Silence::OtherReplica => "other_replica",
            Silence::OtherNetwork => "other_network",
            Silence::UnknownClient => "unknown_client",
            Silence::NoFreeAddress => "no_free_address",
            Silence::TooManyAddresses => "too_many_addresses",
            Silence::ProbeUnderWay => "probe_under_way",
            Silence::NotOurs => "not_ours",
            Silence::NoAddress => "no_address",
            Silence::NotItsAddress => "not_its_address",
            Silence::NotStored => "not_stored",
        }
    }
}

/// How a message arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Sent to this server alone.
    Unicast,
    /// Sent to every station, so that other replicas have it too.
    Broadcast,
}

/// All that a decision looks at.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What is served.
    pub config: &'a Config,
    /// Every lease.
    pub leases: &'a Leases,
    /// Every known machine.
    pub machines: &'a Machines,
    /// The present moment.
    pub now: Timestamp,
}

/// Decides what to do with one message.
pub fn respond(view: View<'_>, message: &Message<'_>, arrival: Arrival) -> Action {
    let client = Client::new(view, message);
    match decide(view, &client, message, arrival) {
        Ok(action) => action,
        Err(silence) => Action::Ignore(silence),
    }
}

fn decide(
    view: View<'_>,
    client: &Client<'_>,
    message: &Message<'_>,
    arrival: Arrival,
) -> Result<Action, Silence> {
    let Config {
        server,
        replicas,
        pool,
        ..
    } = view.config;
    if message.is_relayed() && !pool.network().contains(&link(message)) {
        return Err(Silence::OtherNetwork);
    }
    if message.server.is_some_and(|chosen| chosen != *server) {
        return Err(Silence::OtherServer);
    }
    // A client that speaks to this server alone, by option 54 or by address, is answered by this server; one whose
    // server is gone, and that asks everybody to extend the lease that it has, by any.
    let shared = match message.kind {
        MessageType::Discover => true,
        MessageType::Request => message.server.is_none() && arrival == Arrival::Broadcast,
        _ => false,
    };
    let extends = || {
        let lease = view.leases.get(message.ciaddr);
        lease.is_some_and(|lease| client.owns(lease) && lease.is_active(view.now))
    };
    let own = replicas.iter().position(|replica| replica == server).unwrap_or(0);
    if shared && !split::serves(own, replicas.len(), client.id, message.secs) && !extends() {
        return Err(Silence::OtherReplica);
    }
    match message.kind {
        MessageType::Discover => discover(view, client, message),
        MessageType::Request => request::decide(view, client, message),
        MessageType::Decline => decline(view, client, message),
        MessageType::Release => release(view, client, message),
        MessageType::Inform => inform(view, client, message),
        // The parser lets no server's message through.
        MessageType::Offer | MessageType::Ack | MessageType::Nak => Err(Silence::NotOurs),
    }
}

/// The address that says which network a relayed client is on (RFC 3527, else the relay's own).
fn link(message: &Message<'_>) -> Ipv4Addr {
    let selected = message.options.relay_agent.as_deref().and_then(|information| {
        let mut rest = information;
        while let [number, length, after @ ..] = rest {
            let (value, after) = after.split_at_checked(usize::from(*length))?;
            if *number == 5 {
                return <[u8; 4]>::try_from(value).ok();
            }
            rest = after;
        }
        None
    });
    selected.map_or(message.giaddr, Ipv4Addr::from)
}

fn discover(view: View<'_>, client: &Client<'_>, message: &Message<'_>) -> Result<Action, Silence> {
    client.must_be_served(view)?;
    let address = client.choose(view, message.requested)?;
    let own = view.leases.get(address).filter(|lease| client.owns(lease));
    if own.is_some_and(|lease| lease.state == State::Probing && lease.is_live(view.now)) {
        return Err(Silence::ProbeUnderWay);
    }
    let first_time = own.is_none_or(|lease| lease.state == State::Probing);
    let probing = view.config.conflict_probe || in_grace(view);
    // Clients behind a relay are on another link, where an ARP probe cannot reach.
    if first_time && probing && !message.is_relayed() {
        return Ok(Action::Probe {
            hold: client.lease(view, message, address, State::Probing, OFFER_TIME),
        });
    }
    if message.options.rapid_commit.is_some() {
        let mut action = request::grant(view, client, message, address);
        if let Action::Grant { reply, .. } | Action::Confirm { reply } = &mut action {
            reply.rapid = true;
        }
        return Ok(action);
    }
    let held = own.is_some_and(|lease| lease.is_active(view.now));
    let hold = (!held).then(|| client.lease(view, message, address, State::Offered, OFFER_TIME));
    let times = Times::new(view.config.lease_time, message.mac, message.xid);
    Ok(Action::Offer {
        hold,
        reply: client.reply(message, MessageType::Offer, address, Some(times)),
    })
}

fn decline(view: View<'_>, client: &Client<'_>, message: &Message<'_>) -> Result<Action, Silence> {
    let address = message.requested.ok_or(Silence::NoAddress)?;
    let held = view
        .leases
        .get(address)
        .filter(|lease| client.owns(lease) && lease.is_live(view.now));
    held.ok_or(Silence::NotItsAddress)?;
    let time = view.config.lease_time.max(QUARANTINE);
    Ok(Action::Quarantine {
        lease: client.lease(view, message, address, State::Declined, time),
    })
}

fn release(view: View<'_>, client: &Client<'_>, message: &Message<'_>) -> Result<Action, Silence> {
    let held = view
        .leases
        .get(message.ciaddr)
        .filter(|lease| client.owns(lease) && lease.is_active(view.now));
    Ok(Action::Release {
        lease: held.ok_or(Silence::NotItsAddress)?.released(view.now),
    })
}

fn inform(view: View<'_>, client: &Client<'_>, message: &Message<'_>) -> Result<Action, Silence> {
    client.must_be_served(view)?;
    if message.ciaddr.is_unspecified() {
        return Err(Silence::NoAddress);
    }
    if !view.config.pool.network().contains(&message.ciaddr) {
        return Err(Silence::OtherNetwork);
    }
    let mut reply = client.reply(message, MessageType::Ack, Ipv4Addr::UNSPECIFIED, None);
    reply.to = Destination::Address(message.ciaddr); // directly, past any relay (RFC 2131, section 4.3.5)
    Ok(Action::Confirm { reply })
}

/// The quarantine of an address that a station with `mac` answered for.
pub fn conflict(address: Ipv4Addr, mac: crate::mac::Mac, config: &Config, now: Timestamp) -> Lease {
    let expires = now.after(config.lease_time.max(QUARANTINE));
    Lease {
        address,
        mac,
        id: [].into(),
        host_name: None,
        machine: false,
        state: State::Declined,
        since: now,
        expires,
    }
}

/// Whether clients of a former server may still have its leases.
fn in_grace(view: View<'_>) -> bool {
    view.config.migration_grace.is_some_and(|until| view.now < until)
}

/// Whether this server serves clients that nobody named.
fn serves_anybody(config: &Config) -> bool {
    config.unknown_clients == UnknownClients::Serve
}

#[cfg(test)]
#[path = "respond/tests.rs"]
mod tests;
