//! Reading what an upstream sends, and keeping of it only what answers the question.
//!
//! [`Reply::read`] checks that the message answers what was asked (RFC 5452: id, question, spelling), then
//! writes it anew: the chain of aliases from the asked name, the records of the asked type at its end, for
//! a negative answer the SOA of a parent, with DNSSEC the proofs. Everything else is dropped, so that no
//! foreign record reaches a client or the cache. TTLs are capped on the way. What comes out is the message
//! that the cache keeps and every client gets: no OPT, and the places of all TTLs beside it.

use super::name::{self, Name};
use super::rebuild::Rebuilder;
use super::{CLASS_IN, HEADER, Rcode, flag, kind, read_u16, read_u32};

/// What was sent to the upstream.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The random id.
    pub id: u16,
    /// The name as it was spelt, in wire form.
    pub name: Box<[u8]>,
    /// The record type.
    pub kind: u16,
    /// DNSSEC records were asked for.
    pub dnssec_ok: bool,
    /// The answer must repeat the spelling; over a connection it need not, as nobody else can answer there.
    pub spelling: bool,
}

/// Why a message is no answer to the question asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// Not an answer, another id, or another question: it is dropped and the real one awaited.
    #[error("it answers another question")]
    Foreign,
    /// The same question in another spelling: asked again by TCP, where it cannot be forged blindly.
    #[error("it spells the name in another way")]
    Spelling,
    /// The header's TC bit: asked again by TCP.
    #[error("it is truncated")]
    Truncated,
    /// It answers the question and cannot be read.
    #[error("it is malformed")]
    Malformed,
}

/// An answer, clean and ready to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Header, question and kept records. The id is 0; no OPT.
    pub message: Vec<u8>,
    /// Where in `message` each TTL is.
    pub ttls: Vec<u16>,
    /// Seconds for which it may be kept; 0: not at all.
    pub lifetime: u32,
    /// The response code.
    pub rcode: Rcode,
    /// The upstream sent an OPT record: it speaks EDNS.
    pub edns: bool,
}

struct Record {
    section: Section,
    owner: Name,
    kind: u16,
    ttl: u32,
    /// Place and end of its data.
    data: (usize, usize),
}

impl Record {
    /// Its data; what follows them in the message is another record's.
    fn data<'m>(&self, message: &'m [u8]) -> &'m [u8] {
        message.get(self.data.0..self.data.1).unwrap_or_default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Answer,
    Authority,
}

impl Reply {
    /// Reads `message` as the answer to `asked`; no TTL of the outcome is above `cap`.
    pub fn read(message: &[u8], asked: &Asked, cap: u32) -> Result<Reply, Mismatch> {
        let flags = check(message, asked)?;
        if flags & flag::TRUNCATED != 0 {
            return Err(Mismatch::Truncated);
        }
        let (records, opt) = collect(message, HEADER + asked.name.len() + 4).ok_or(Mismatch::Malformed)?;
        // An extended code speaks of our EDNS, not of the question: for a client it is a failure.
        let rcode = if opt.unwrap_or(0) == 0 {
            Rcode(flags & 0xf)
        } else {
            Rcode::SERVFAIL
        };
        let kept = match rcode {
            Rcode::NOERROR | Rcode::NXDOMAIN => Kept::choose(message, asked, &records),
            _ => Kept::nothing(), // a failure has nothing to say but its code
        };
        let flags = flags & (flag::AUTHENTIC | flag::CHECKING_DISABLED)
            | flag::RESPONSE
            | flag::RECURSION_AVAILABLE
            | rcode.0;
        let mut rebuilt = Rebuilder::new(flags, &asked.name, asked.kind);
        let mut lifetime = if kept.records.is_empty() { 0 } else { cap };
        for &record in &kept.records {
            let ttl = kept.ttl(message, record).min(cap);
            lifetime = lifetime.min(ttl);
            rebuilt
                .record(
                    message,
                    record.owner.wire(),
                    record.kind,
                    ttl,
                    record.data,
                    record.section as usize,
                )
                .ok_or(Mismatch::Malformed)?;
        }
        if !kept.conclusive {
            lifetime = 0;
        }
        let (message, ttls) = rebuilt.finish().ok_or(Mismatch::Malformed)?;
        Ok(Reply {
            message,
            ttls,
            lifetime,
            rcode,
            edns: opt.is_some(),
        })
    }
}

/// Checks header and question; gives the flags.
fn check(message: &[u8], asked: &Asked) -> Result<u16, Mismatch> {
    let header: &[u8; HEADER] = message.first_chunk().ok_or(Mismatch::Foreign)?;
    let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let flags = word(2);
    if word(0) != asked.id || flags & flag::RESPONSE == 0 || flags & flag::OPCODE != 0 || word(4) != 1 {
        return Err(Mismatch::Foreign);
    }
    let end = HEADER + asked.name.len();
    let spelt = message.get(HEADER..end).ok_or(Mismatch::Foreign)?;
    let same_kind = read_u16(message, end) == Some(asked.kind);
    if !spelt.eq_ignore_ascii_case(&asked.name) || !same_kind || read_u16(message, end + 2) != Some(CLASS_IN)
    {
        return Err(Mismatch::Foreign);
    }
    if asked.spelling && *spelt != *asked.name {
        return Err(Mismatch::Spelling);
    }
    Ok(flags)
}

/// Reads all records; gives those of the first two sections, and the high bits of the code in OPT.
fn collect(message: &[u8], mut at: usize) -> Option<(Vec<Record>, Option<u16>)> {
    let mut records = Vec::new();
    let mut opt = None;
    let mut owner = Vec::new();
    let sections = [
        (6, Some(Section::Answer)),
        (8, Some(Section::Authority)),
        (10, None),
    ];
    for (count_at, section) in sections {
        for _ in 0..read_u16(message, count_at)? {
            owner.clear();
            let fixed = at + name::expand(message, at, &mut owner)?;
            let kind = read_u16(message, fixed)?;
            let class = read_u16(message, fixed + 2)?;
            let ttl = read_u32(message, fixed + 4)?;
            let start = fixed + 10;
            let end = start + usize::from(read_u16(message, fixed + 8)?);
            message.get(start..end)?;
            at = end;
            match section {
                Some(section) if class == CLASS_IN && kind != kind::OPT => {
                    // A TTL with the highest bit set counts as 0 (RFC 2181, 8).
                    let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
                    let owner = Name::from_checked_wire(&owner);
                    records.push(Record {
                        section,
                        owner,
                        kind,
                        ttl,
                        data: (start, end),
                    });
                }
                None if kind == kind::OPT => opt = Some((ttl >> 24) as u16),
                _ => {}
            }
        }
    }
    Some((records, opt))
}

/// What is kept of an answer.
struct Kept<'r> {
    records: Vec<&'r Record>,
    /// It says something that may be remembered: an answer, or a negative one with its SOA.
    conclusive: bool,
}

impl<'r> Kept<'r> {
    fn nothing() -> Kept<'r> {
        Kept {
            records: Vec::new(),
            conclusive: false,
        }
    }

    fn choose(message: &[u8], asked: &Asked, records: &'r [Record]) -> Kept<'r> {
        let chain = alias_chain(message, asked, records);
        let in_answer = |record: &&Record| record.section == Section::Answer;
        let mut kept: Vec<&Record> = records
            .iter()
            .filter(in_answer)
            .filter(|record| match record.kind {
                kind::DNAME if asked.kind != kind::DNAME => chain
                    .iter()
                    .any(|link| name::is_within(link.wire(), record.owner.wire())),
                kind::RRSIG => chain
                    .iter()
                    .any(|link| name::is_within(link.wire(), record.owner.wire())),
                kind => {
                    (kind == asked.kind || kind == kind::CNAME || asked.kind == kind::ANY)
                        && chain.contains(&record.owner)
                }
            })
            .collect();
        let answered = kept
            .iter()
            .any(|record| record.kind == asked.kind || asked.kind == kind::ANY);
        let end = chain.last();
        let mut has_soa = false;
        for record in records
            .iter()
            .filter(|record| record.section == Section::Authority)
        {
            let keep = match record.kind {
                kind::SOA => {
                    let ours = end.is_some_and(|end| name::is_within(end.wire(), record.owner.wire()));
                    let keep = !answered && ours && !has_soa;
                    has_soa |= keep;
                    keep
                }
                kind::NSEC | kind::NSEC3 => asked.dnssec_ok,
                kind::RRSIG => asked.dnssec_ok && covers_a_proof(message, record, answered),
                _ => false,
            };
            if keep {
                kept.push(record);
            }
        }
        Kept {
            records: kept,
            conclusive: answered || has_soa,
        }
    }

    /// The TTL of a kept record; that of an SOA in a negative answer is at most its last field (RFC 2308, 5).
    fn ttl(&self, message: &[u8], record: &Record) -> u32 {
        match (record.section, record.kind) {
            (Section::Authority, kind::SOA) => {
                let minimum = record
                    .data(message)
                    .last_chunk()
                    .map(|last| u32::from_be_bytes(*last));
                record.ttl.min(minimum.unwrap_or(0))
            }
            _ => record.ttl,
        }
    }
}

/// The asked name and every name that CNAME records lead on to, in whatever order they came.
fn alias_chain(message: &[u8], asked: &Asked, records: &[Record]) -> Vec<Name> {
    let mut chain = vec![Name::from_checked_wire(&asked.name)];
    if matches!(asked.kind, kind::CNAME | kind::ANY) {
        return chain;
    }
    while let Some(next) = chain.last().and_then(|link| {
        let alias = |record: &&Record| {
            record.section == Section::Answer && record.kind == kind::CNAME && record.owner == *link
        };
        let record = records.iter().find(alias)?;
        let mut target = Vec::new();
        // Data that end inside the name make the whole answer malformed when they are written anew.
        name::expand(message, record.data.0, &mut target)?;
        Some(Name::from_checked_wire(&target))
    }) {
        if chain.contains(&next) {
            break; // a chain that bites its tail says nothing further
        }
        chain.push(next);
    }
    chain
}

/// Does this signature cover a kept proof: NSEC, NSEC3, or in a negative answer the SOA?
fn covers_a_proof(message: &[u8], record: &Record, answered: bool) -> bool {
    match read_u16(record.data(message), 0) {
        Some(kind::NSEC | kind::NSEC3) => true,
        Some(kind::SOA) => !answered,
        _ => false,
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
