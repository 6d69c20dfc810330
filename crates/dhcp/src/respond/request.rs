//! REQUEST in the four states that a client can be in (RFC 2131, section 4.3.2).

use std::net::Ipv4Addr;

use super::client::Client;
use super::{Action, RECENT, Silence, View, in_grace, serves_anybody};
use crate::lease::{Lease, State};
use crate::message::{Message, MessageType};
use crate::reply::Times;

/// What the client is doing, told by which fields are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It takes the offer of this server.
    Selecting,
    /// It has started again and asks whether its address is still right.
    InitReboot,
    /// It uses its address and wants to keep it: renewing or rebinding.
    Extending,
}

pub(super) fn decide(view: View<'_>, client: &Client<'_>, message: &Message<'_>) -> Result<Action, Silence> {
    let (phase, address) = match (message.server, message.requested, message.ciaddr) {
        (Some(_), Some(requested), _) => (Phase::Selecting, requested),
        // Some clients take an offer of the address that they have, and name it in `ciaddr`.
        (Some(_), None, ciaddr) if !ciaddr.is_unspecified() => (Phase::Selecting, ciaddr),
        (None, Some(requested), Ipv4Addr::UNSPECIFIED) => (Phase::InitReboot, requested),
        (None, _, ciaddr) if !ciaddr.is_unspecified() => (Phase::Extending, ciaddr),
        _ => return Err(Silence::NoAddress),
    };
    let refuse = |why| {
        // It may be a machine of ours that the index lacks as yet.
        if !view.machines.complete {
            client.must_be_served(view)?;
        }
        let mut reply = client.reply(message, MessageType::Nak, Ipv4Addr::UNSPECIFIED, None);
        reply.message = Some(why);
        // A client that chose this server is ours to refuse; of others only those that no other server can know.
        let ours = phase == Phase::Selecting
            || serves_anybody(view.config)
            || client.is_known()
            || client.former(view).is_some()
            || view.config.pool.range().contains(address);
        if ours {
            Ok(Action::Refuse { reply })
        } else {
            Err(Silence::NotOurs)
        }
    };

    if !view.config.pool.network().contains(&address) {
        return refuse("the address is not of this network");
    }
    if client.must_be_served(view).is_err() {
        return refuse("this server does not serve unknown clients");
    }
    if client.reserved(view).is_some_and(|reserved| reserved != address) {
        return refuse("another address is reserved for this client");
    }
    if !client.may_have(view, address) {
        return refuse("the address is not in the pool");
    }
    let in_grace = in_grace(view);
    // In the grace a station that answered a probe may be a client of the former server, which asks for its own.
    let is_open = |lease: &&Lease| in_grace && lease.is_conflict_of(client.mac);
    match view.leases.get(address).filter(|lease| !is_open(lease)) {
        Some(lease) if client.owns(lease) => match lease.state {
            // Nobody offered it yet: the answer to the probe comes first.
            State::Probing if lease.is_live(view.now) => Err(Silence::ProbeUnderWay),
            _ => Ok(grant(view, client, message, address)),
        },
        Some(lease) if lease.is_quarantined(view.now) => refuse("another station uses the address"),
        Some(_) => refuse("the address belongs to another client"),
        None => {
            // The offer may have been made before a restart; a client of a former server may have its lease still.
            let has_another = client
                .former(view)
                .is_some_and(|lease| lease.is_live(view.now) && client.may_have(view, lease.address));
            if has_another {
                refuse("another address was offered or leased to this client")
            } else if phase == Phase::Selecting || in_grace {
                client.must_be_modest(view)?;
                Ok(grant(view, client, message, address))
            } else {
                refuse("no lease of the address is known")
            }
        }
    }
}

/// The ACK for an address that the client may have, and what to store for it.
pub(super) fn grant(view: View<'_>, client: &Client<'_>, message: &Message<'_>, address: Ipv4Addr) -> Action {
    let time = view.config.lease_time;
    let lease = client.lease(view, message, address, State::Bound, time);
    let former = view.leases.get(address).filter(|former| {
        former.is_active(view.now)
            && former.mac == lease.mac
            && former.id == lease.id
            && former.host_name == lease.host_name
            && former.machine == lease.machine
            && former.expires <= lease.expires
            && view.now.since(former.since) < RECENT.min(time / 8)
    });
    // Asked again at once, as after a lost ACK: what is stored still stands.
    if let Some(former) = former {
        let left = Times::new(former.expires.since(view.now), message.mac, message.xid);
        return Action::Confirm {
            reply: client.reply(message, MessageType::Ack, address, Some(left)),
        };
    }
    let times = Times::new(time, message.mac, message.xid);
    Action::Grant {
        lease,
        reply: client.reply(message, MessageType::Ack, address, Some(times)),
    }
}
