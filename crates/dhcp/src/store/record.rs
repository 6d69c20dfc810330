//! A lease as bytes of the journal.
//!
//! state (its highest bit: the client is a machine), address, hardware address, since, expires (milliseconds, little endian), then the identifier and the
//! name, each after one byte of length.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::lease::{Lease, State};
use crate::mac::Mac;
use crate::time::Timestamp;

/// The bit that says that the client is a machine. Journals of before have it nowhere.
const MACHINE: u8 = 0x80;

/// Appends the bytes of a lease.
pub(super) fn encode(lease: &Lease, out: &mut Vec<u8>) {
    let Lease {
        address,
        mac,
        id,
        host_name,
        machine,
        state,
        since,
        expires,
    } = lease;
    let state = match state {
        State::Bound => 1,
        State::Released => 2,
        State::Declined => 3,
        // The server stores neither; read back they would be leases that have ended.
        State::Probing | State::Offered => 2,
    };
    out.push(if *machine { state | MACHINE } else { state });
    out.extend(address.octets());
    out.extend(mac.0);
    out.extend(since.0.to_le_bytes());
    out.extend(expires.0.to_le_bytes());
    for text in [id, host_name.as_deref().unwrap_or_default().as_bytes()] {
        // Both are at most 255 bytes long by the parser of messages.
        let text = text.get(..255).unwrap_or(text);
        out.push(text.len() as u8);
        out.extend(text);
    }
}

/// Reads one lease and returns the bytes after it; nothing if the bytes are not a lease.
pub(super) fn decode(bytes: &[u8]) -> Option<(Lease, &[u8])> {
    let (&state, rest) = bytes.split_first()?;
    let (&address, rest) = rest.split_first_chunk::<4>()?;
    let (&mac, rest) = rest.split_first_chunk::<6>()?;
    let (&since, rest) = rest.split_first_chunk::<8>()?;
    let (&expires, rest) = rest.split_first_chunk::<8>()?;
    let (id, rest) = text(rest)?;
    let (name, rest) = text(rest)?;
    let machine = state & MACHINE != 0;
    let state = match state & !MACHINE {
        1 => State::Bound,
        2 => State::Released,
        3 => State::Declined,
        _ => return None,
    };
    let host_name = match std::str::from_utf8(name).ok()? {
        "" => None,
        name => Some(Arc::from(name)),
    };
    let (since, expires) = (
        Timestamp(u64::from_le_bytes(since)),
        Timestamp(u64::from_le_bytes(expires)),
    );
    let address = Ipv4Addr::from(address);
    Some((
        Lease {
            address,
            mac: Mac(mac),
            id: id.into(),
            host_name,
            machine,
            state,
            since,
            expires,
        },
        rest,
    ))
}

fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(length.into())
}
