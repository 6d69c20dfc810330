//! Writing an upstream's records anew, names compressed.
//!
//! Records are copied one by one from the upstream's message. Names in their data are expanded first where
//! the type is one of those in which servers compress (RFC 3597, 4), since the records that they point to
//! may be left out. Owners and the names in RFC 1035 types are compressed again.

use super::name;
use super::{CLASS_IN, HEADER, TCP_LIMIT, kind};

/// How many earlier names a new one is compared with; more would cost time and save few octets.
const REMEMBERED: usize = 32;

/// A pointer has fourteen bits for the place that it leads to.
const REACH: usize = 0x4000;

/// A message under construction.
pub(super) struct Rebuilder {
    out: Vec<u8>,
    ttls: Vec<u16>,
    /// Places of names that a pointer may lead to.
    names: Vec<usize>,
    scratch: Vec<u8>,
}

/// One part of a record's data.
enum Part {
    /// So many octets as they are.
    Octets(usize),
    /// One character string.
    Text,
    /// A name that may be compressed again.
    Compressible,
    /// A name that must stay whole.
    Whole,
}

/// The parts of the data in front of what is copied as it is.
fn layout(kind: u16) -> &'static [Part] {
    use Part::{Compressible, Octets, Text, Whole};
    match kind {
        kind::NS | kind::CNAME | kind::PTR | 3 | 4 | 7 | 8 | 9 => &[Compressible],
        kind::SOA | 14 => &[Compressible, Compressible],
        kind::MX => &[Octets(2), Compressible],
        kind::DNAME => &[Whole],
        17 => &[Whole, Whole],               // RP
        18 | 21 | 36 => &[Octets(2), Whole], // AFSDB, RT, KX
        26 => &[Octets(2), Whole, Whole],    // PX
        kind::SRV => &[Octets(6), Whole],
        35 => &[Octets(4), Text, Text, Text, Whole], // NAPTR
        _ => &[],
    }
}

impl Rebuilder {
    /// Begins a message with this question.
    pub(super) fn new(flags: u16, name: &[u8], kind: u16) -> Rebuilder {
        let mut out = Vec::with_capacity(512);
        out.extend([0, 0]);
        out.extend(flags.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, 0, 0, 0]);
        out.extend(name);
        out.extend(kind.to_be_bytes());
        out.extend(CLASS_IN.to_be_bytes());
        Rebuilder {
            out,
            ttls: Vec::new(),
            names: vec![HEADER],
            scratch: Vec::new(),
        }
    }

    /// Adds a record whose data are at `data` in `message`; `section` counts from the answer section.
    pub(super) fn record(
        &mut self,
        message: &[u8],
        owner: &[u8],
        kind: u16,
        ttl: u32,
        data: (usize, usize),
        section: usize,
    ) -> Option<()> {
        self.name(owner);
        self.out.extend(kind.to_be_bytes());
        self.out.extend(CLASS_IN.to_be_bytes());
        self.ttls.push(u16::try_from(self.out.len()).ok()?);
        self.out.extend(ttl.to_be_bytes());
        let length_at = self.out.len();
        self.out.extend([0, 0]);
        self.data(message, kind, data)?;
        let length = u16::try_from(self.out.len() - length_at - 2).ok()?;
        self.out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        let count_at = 6 + 2 * section;
        let count = u16::from_be_bytes([self.out[count_at], self.out[count_at + 1]]).checked_add(1)?;
        self.out[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
        Some(())
    }

    /// The message and the places of its TTLs; nothing where it outgrew the largest message.
    pub(super) fn finish(self) -> Option<(Vec<u8>, Vec<u16>)> {
        (self.out.len() <= TCP_LIMIT).then_some((self.out, self.ttls))
    }

    fn data(&mut self, message: &[u8], kind: u16, (mut at, end): (usize, usize)) -> Option<()> {
        for part in layout(kind) {
            match part {
                Part::Octets(count) => {
                    self.out.extend(message.get(at..(at + count).min(end))?);
                    at += count;
                }
                Part::Text => {
                    let next = at + 1 + usize::from(*message.get(at)?);
                    self.out.extend(message.get(at..next.min(end))?);
                    at = next;
                }
                Part::Compressible | Part::Whole => {
                    let mut expanded = std::mem::take(&mut self.scratch);
                    expanded.clear();
                    at += name::expand(message, at, &mut expanded)?;
                    match part {
                        Part::Whole => self.out.extend(&expanded),
                        _ => self.name(&expanded),
                    }
                    self.scratch = expanded;
                }
            }
            if at > end {
                return None; // a part that runs past its record
            }
        }
        self.out.extend(message.get(at..end)?);
        Some(())
    }

    /// Writes a name: its first labels in full, the rest as a pointer to an earlier name where one ends alike.
    fn name(&mut self, name: &[u8]) {
        let start = self.out.len();
        for rest in name::ancestors(name) {
            if rest.len() == 1 {
                break; // a pointer to the root is longer than the root
            }
            if let Some(at) = self.names.iter().find_map(|&at| self.find(at, rest)) {
                self.out.extend_from_slice(&name[..name.len() - rest.len()]);
                self.out.extend((0xc000 | at as u16).to_be_bytes());
                self.remember(start, name.len() - rest.len());
                return;
            }
        }
        self.out.extend_from_slice(name);
        self.remember(start, name.len() - 1);
    }

    fn remember(&mut self, start: usize, written: usize) {
        if written > 0 && start < REACH && self.names.len() < REMEMBERED {
            self.names.push(start);
        }
    }

    /// The place at which the name written at `at`, or one of its parents, equals `wanted`.
    fn find(&self, mut at: usize, wanted: &[u8]) -> Option<usize> {
        while at < REACH {
            if self.equals(at, wanted) {
                return Some(at);
            }
            match usize::from(*self.out.get(at)?) {
                0 | 0xc0.. => return None, // what a pointer leads to is remembered by itself
                len => at += 1 + len,
            }
        }
        None
    }

    fn equals(&self, mut at: usize, wanted: &[u8]) -> bool {
        let mut left = wanted;
        loop {
            let (Some(&len), Some(&want)) = (self.out.get(at), left.first()) else {
                return false;
            };
            if len >= 0xc0 {
                let Some(&low) = self.out.get(at + 1) else {
                    return false;
                };
                at = usize::from(len & 0x3f) << 8 | usize::from(low);
                continue;
            }
            if len != want {
                return false;
            }
            if len == 0 {
                return true;
            }
            let next = 1 + usize::from(len);
            let (Some(have), Some(need)) = (self.out.get(at..at + next), left.get(..next)) else {
                return false;
            };
            if !have.eq_ignore_ascii_case(need) {
                return false;
            }
            at += next;
            left = &left[next..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::name::Name;

    #[test]
    fn no_pointer_leads_beyond_its_reach() {
        let wire = |text: &str| Name::parse(text).unwrap().wire().to_vec();
        let first = wire("mx.a.third.net.");
        // The name begins within reach, and its parents lie beyond.
        for start in REACH - 12..REACH + 2 {
            let mut message = Rebuilder::new(0x8180, &wire("example.org."), kind::TXT);
            message.out.resize(start, 0);
            message.name(&first);
            let second = message.out.len();
            message.name(&wire("mx2.a.third.net."));
            let mut expanded = Vec::new();
            name::expand(&message.out, second, &mut expanded).unwrap();
            assert_eq!(expanded, wire("mx2.a.third.net."), "at {start:#x}");
        }
    }
}
