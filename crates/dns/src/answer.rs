//! What becomes of a question: answered from own names, forwarded, or refused.
//!
//! [`decide`] is the whole rule, pure; [`write`] puts a decision that needs no upstream on the wire.

use crate::view::View;
use crate::wire::query::Query;
use crate::wire::writer::{ExtendedError, Owner, Writer};
use crate::wire::{Rcode, flag, kind};
use crate::zone::{Found, NO_CUT, Node, Zone};

/// What becomes of a question.
#[derive(Clone, Copy, Debug)]
pub enum Decision<'v> {
    /// The zone answers.
    Own(&'v Zone, Found<'v>),
    /// The configuration's list of upstreams with this number is asked.
    Forward(usize),
    /// Something that is asked of us and that we give to nobody.
    Refuse(Refusal),
}

/// Why a question is refused; told to the client in words where it speaks EDNS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The client is not on the VLAN.
    Client,
    /// No upstream is configured for the name.
    NoUpstream,
    /// The client does not want recursion, and the name is not ours.
    NotRecursive,
}

impl Refusal {
    fn error(self) -> ExtendedError {
        match self {
            Refusal::Client => ExtendedError {
                code: 18,
                text: "this address serves clients of its own network only",
            },
            Refusal::NoUpstream => ExtendedError {
                code: 20,
                text: "no upstream is configured for this name",
            },
            Refusal::NotRecursive => ExtendedError {
                code: 20,
                text: "this name is only known by recursion",
            },
        }
    }
}

/// Decides. Own names first; then the closest of a wildcard and a forwarded zone; then the own domain's
/// denial; then everybody else's zones.
pub fn decide<'v>(view: &View<'v>, query: &Query<'_>) -> Decision<'v> {
    let name = query.question.folded.wire();
    let found = view
        .zone
        .and_then(|zone| zone.find(name).map(|found| (zone, found)));
    if let Some((zone, found)) = found {
        let forwarded = || view.forwards.find(name);
        if found.cut == NO_CUT || forwarded().is_none_or(|(_, length)| length < found.cut) {
            return Decision::Own(zone, found);
        }
    }
    match view.forwards.find(name) {
        None => Decision::Refuse(Refusal::NoUpstream),
        Some(_) if query.flags & flag::RECURSION_DESIRED == 0 => Decision::Refuse(Refusal::NotRecursive),
        Some((index, _)) => Decision::Forward(index),
    }
}

/// Writes the answer from a zone; `turn` rotates several addresses. Gives its code and length.
pub fn write(
    out: &mut [u8],
    limit: usize,
    query: &Query<'_>,
    (zone, found): (&Zone, Found<'_>),
    recursion: bool,
    turn: usize,
) -> (Rcode, usize) {
    let flags = flag::AUTHORITATIVE | if recursion { flag::RECURSION_AVAILABLE } else { 0 };
    let question = query.question.name.len();
    let Some(node) = found.node else {
        let mut writer = Writer::answer(out, limit, query, flags, Rcode::NXDOMAIN);
        writer.soa(false, Owner::parent(question, found.apex), zone.ttl(), zone.soa());
        return (Rcode::NXDOMAIN, writer.finish(query, Rcode::NXDOMAIN, None));
    };
    if node.pending && matches!(query.question.kind, kind::A | kind::AAAA | kind::ANY) {
        let error = ExtendedError {
            code: 14,
            text: "the address of the internal service is not known yet",
        };
        return (
            Rcode::SERVFAIL,
            fail(out, limit, query, Rcode::SERVFAIL, recursion, Some(error)),
        );
    }
    let mut writer = Writer::answer(out, limit, query, flags, Rcode::NOERROR);
    if !write_records(&mut writer, query, zone, found, node, turn) {
        writer.soa(false, Owner::parent(question, found.apex), zone.ttl(), zone.soa());
    }
    (Rcode::NOERROR, writer.finish(query, Rcode::NOERROR, None))
}

/// Writes the records of the asked type; false where there are none.
fn write_records(
    writer: &mut Writer<'_>,
    query: &Query<'_>,
    zone: &Zone,
    found: Found<'_>,
    node: &Node,
    turn: usize,
) -> bool {
    let at_apex = found.apex == query.question.name.len();
    let ttl = zone.ttl();
    match query.question.kind {
        kind::A => {
            rotated(&node.v4, turn)
                .map(|&address| writer.a(Owner::QUESTION, ttl, address))
                .count()
                > 0
        }
        kind::AAAA => {
            rotated(&node.v6, turn)
                .map(|&address| writer.aaaa(Owner::QUESTION, ttl, address))
                .count()
                > 0
        }
        kind::PTR => {
            node.pointers
                .iter()
                .for_each(|name| writer.named(Owner::QUESTION, kind::PTR, ttl, name.wire()));
            !node.pointers.is_empty()
        }
        kind::SOA if at_apex => {
            writer.soa(true, Owner::QUESTION, ttl, zone.soa());
            true
        }
        kind::NS if at_apex => {
            writer.named(Owner::QUESTION, kind::NS, ttl, zone.name_server().wire());
            true
        }
        kind::ANY => {
            writer.hinfo(ttl);
            true
        }
        _ => false,
    }
}

/// Does the answer hold several addresses, which take turns?
pub fn takes_turns(found: Found<'_>, asked: u16) -> bool {
    found.node.is_some_and(|node| match asked {
        kind::A => node.v4.len() > 1,
        kind::AAAA => node.v6.len() > 1,
        _ => false,
    })
}

/// All items, beginning with another one at each turn, so that clients spread over them.
fn rotated<T>(items: &[T], turn: usize) -> impl Iterator<Item = &T> {
    let start = if items.is_empty() { 0 } else { turn % items.len() };
    items[start..].iter().chain(&items[..start])
}

/// Writes a refusal; gives its length.
pub fn refuse(out: &mut [u8], limit: usize, query: &Query<'_>, refusal: Refusal, recursion: bool) -> usize {
    fail(
        out,
        limit,
        query,
        Rcode::REFUSED,
        recursion,
        Some(refusal.error()),
    )
}

/// Writes an answer that is only a code; gives its length.
pub fn fail(
    out: &mut [u8],
    limit: usize,
    query: &Query<'_>,
    rcode: Rcode,
    recursion: bool,
    error: Option<ExtendedError>,
) -> usize {
    let flags = if recursion { flag::RECURSION_AVAILABLE } else { 0 };
    Writer::answer(out, limit, query, flags, rcode).finish(query, rcode, error)
}

/// The minimal answer to ANY for a name of somebody else (RFC 8482): it is not worth a forwarded question. It is kept for
/// at most `cap` seconds, as every answer.
pub fn any(out: &mut [u8], limit: usize, query: &Query<'_>, cap: u32) -> usize {
    let mut writer = Writer::answer(out, limit, query, flag::RECURSION_AVAILABLE, Rcode::NOERROR);
    writer.hinfo(ANY_TTL.min(cap));
    writer.finish(query, Rcode::NOERROR, None)
}

/// How long a client may keep the answer that says no more than "ask for a type".
const ANY_TTL: u32 = 3600;

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
