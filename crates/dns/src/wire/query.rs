//! Reading what a client sends.
//!
//! [`Query::parse`] takes one datagram (or one TCP frame) and gives the question, or says what becomes of
//! the message: silence where an answer would be wrong (it is itself an answer, or has no header), an
//! error code where the RFCs name one. It borrows the message and copies only the folded name.

use super::name::{self, Folded};
use super::{CLASS_IN, HEADER, Rcode, flag, kind, read_u16};

/// A well-formed question.
pub struct Query<'m> {
    /// The id that the answer repeats.
    pub id: u16,
    /// The header's flags as they came.
    pub flags: u16,
    /// What is asked.
    pub question: Question<'m>,
    /// What the OPT record says, where there is one.
    pub edns: Option<Edns>,
}

/// The one question of a message.
pub struct Question<'m> {
    /// The name as it was spelt, in wire form.
    pub name: &'m [u8],
    /// The name in lower case, for comparisons.
    pub folded: Folded,
    /// The record type.
    pub kind: u16,
    /// The class; [`CLASS_IN`] in all that is answered.
    pub class: u16,
}

impl Question<'_> {
    /// Octets of the question section.
    pub fn len(&self) -> usize {
        self.name.len() + 4
    }

    /// A question has a name at least; this is for the pair of `len`.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// What a client says in its OPT record (RFC 6891); options are read over and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// The largest UDP answer that it takes.
    pub udp_size: u16,
    /// It wants DNSSEC records.
    pub dnssec_ok: bool,
}

/// What becomes of a message that holds no question to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// No answer leaves.
    Silence(Silence),
    /// An answer with this code leaves: the question where it was readable, nothing else.
    Code {
        /// The response code.
        rcode: Rcode,
        /// Octets of the readable question, 0 where there is none.
        question: usize,
        /// The client spoke EDNS, so the answer does as well.
        edns: bool,
    },
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Shorter than a header: there is no id to answer to.
    NoHeader,
    /// It is an answer. Answering answers makes loops.
    NotAQuestion,
}

impl<'m> Query<'m> {
    /// Reads one message.
    pub fn parse(message: &'m [u8]) -> Result<Query<'m>, Rejection> {
        let header: &[u8; HEADER] = message
            .first_chunk()
            .ok_or(Rejection::Silence(Silence::NoHeader))?;
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (id, flags) = (word(0), word(2));
        if flags & flag::RESPONSE != 0 {
            return Err(Rejection::Silence(Silence::NotAQuestion));
        }
        let plain = |rcode| Rejection::Code {
            rcode,
            question: 0,
            edns: false,
        };
        if flags & flag::OPCODE != 0 {
            return Err(plain(Rcode::NOTIMP));
        }
        // One question and nothing in front of the additional section: the rest has no meaning in a query.
        if word(4) != 1 || word(6) != 0 || word(8) != 0 {
            return Err(plain(Rcode::FORMERR));
        }
        let question = parse_question(message).ok_or(plain(Rcode::FORMERR))?;
        let asked = question.len();
        let refuse = |rcode, edns| Rejection::Code {
            rcode,
            question: asked,
            edns,
        };
        let edns = match parse_additional(message, HEADER + asked, word(10)) {
            Additional::Nothing => None,
            Additional::Edns(edns) => Some(edns),
            Additional::Malformed => return Err(refuse(Rcode::FORMERR, false)),
            Additional::UnknownVersion => return Err(refuse(Rcode::BADVERS, true)),
        };
        match question.kind {
            kind::OPT | kind::TSIG | kind::TKEY | kind::MAILA | kind::MAILB | 0 => {
                return Err(refuse(Rcode::FORMERR, edns.is_some()));
            }
            kind::AXFR | kind::IXFR => return Err(refuse(Rcode::REFUSED, edns.is_some())),
            _ => {}
        }
        if question.class != CLASS_IN {
            return Err(refuse(Rcode::REFUSED, edns.is_some()));
        }
        Ok(Query {
            id,
            flags,
            question,
            edns,
        })
    }

    /// The largest answer that may go back over UDP.
    pub fn udp_limit(&self) -> usize {
        match self.edns {
            // Smaller sizes than 512 are read as 512 (RFC 6891, 6.2.3).
            Some(edns) => usize::from(edns.udp_size).clamp(512, super::UDP_LIMIT),
            None => 512,
        }
    }

    /// Does the client want DNSSEC records?
    pub fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }
}

fn parse_question(message: &[u8]) -> Option<Question<'_>> {
    let octets = message.get(HEADER..)?;
    let len = name::skip(octets)?;
    let name = octets.get(..len)?;
    Some(Question {
        name,
        folded: Folded::new(name),
        kind: read_u16(octets, len)?,
        class: read_u16(octets, len + 2)?,
    })
}

enum Additional {
    Nothing,
    Edns(Edns),
    Malformed,
    UnknownVersion,
}

/// Reads the additional section: at most one OPT, and nothing after the last record.
fn parse_additional(message: &[u8], mut at: usize, count: u16) -> Additional {
    let mut found = Additional::Nothing;
    for _ in 0..count {
        let Some(owner) = name::skip_compressed(message, at) else {
            return Additional::Malformed;
        };
        let fixed = at + owner;
        let (Some(kind), Some(class), Some(version), Some(length)) = (
            read_u16(message, fixed),
            read_u16(message, fixed + 2),
            message.get(fixed + 5),
            read_u16(message, fixed + 8),
        ) else {
            return Additional::Malformed;
        };
        let data = fixed + 10;
        at = data + usize::from(length);
        let Some(options) = message.get(data..at) else {
            return Additional::Malformed;
        };
        if kind != kind::OPT {
            continue;
        }
        if owner != 1 || !matches!(found, Additional::Nothing) || !options_are_sound(options) {
            return Additional::Malformed;
        }
        if *version != 0 {
            found = Additional::UnknownVersion;
            continue;
        }
        let dnssec_ok = message[fixed + 6] & 0x80 != 0;
        found = Additional::Edns(Edns {
            udp_size: class,
            dnssec_ok,
        });
    }
    if at == message.len() {
        found
    } else {
        Additional::Malformed
    }
}

/// Are these options whole? None of them is used.
fn options_are_sound(mut options: &[u8]) -> bool {
    while !options.is_empty() {
        let Some(length) = read_u16(options, 2) else {
            return false;
        };
        let Some(rest) = options.get(4 + usize::from(length)..) else {
            return false;
        };
        options = rest;
    }
    true
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `dig api.Example.com A` with EDNS size 1232, DO and a cookie, as captured.
    pub(crate) fn captured() -> Vec<u8> {
        let mut message = b"\xab\xcd\x01\x20\x00\x01\x00\x00\x00\x00\x00\x01".to_vec();
        message.extend(b"\x03api\x07Example\x03com\x00\x00\x01\x00\x01");
        message.extend(b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x0c");
        message.extend(b"\x00\x0a\x00\x08\x01\x02\x03\x04\x05\x06\x07\x08");
        message
    }

    fn code(message: &[u8]) -> Option<Rcode> {
        match Query::parse(message) {
            Err(Rejection::Code { rcode, .. }) => Some(rcode),
            _ => None,
        }
    }

    #[test]
    fn a_question_with_edns_is_read() {
        let message = captured();
        let query = Query::parse(&message).ok().unwrap();
        assert_eq!(query.id, 0xabcd);
        assert_eq!(query.question.name, b"\x03api\x07Example\x03com\x00");
        assert_eq!(query.question.folded.wire(), b"\x03api\x07example\x03com\x00");
        assert_eq!((query.question.kind, query.question.class), (kind::A, CLASS_IN));
        assert_eq!(
            query.edns,
            Some(Edns {
                udp_size: 1232,
                dnssec_ok: true
            })
        );
        assert_eq!(query.udp_limit(), 1232);
    }

    #[test]
    fn no_prefix_of_a_question_is_taken_for_a_question() {
        let message = captured();
        for len in 0..message.len() {
            let outcome = Query::parse(&message[..len]);
            assert!(
                outcome.is_err(),
                "the first {len} octets were taken for a question"
            );
            if len < HEADER {
                assert_eq!(outcome.err(), Some(Rejection::Silence(Silence::NoHeader)));
            }
        }
    }

    #[test]
    fn a_single_flipped_bit_never_panics_and_never_changes_more_than_it_says() {
        let message = captured();
        let mut accepted = 0;
        for bit in 0..message.len() * 8 {
            let mut flipped = message.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(query) = Query::parse(&flipped) {
                accepted += 1;
                assert_eq!(name::skip(query.question.name), Some(query.question.name.len()));
            }
        }
        assert!(
            accepted > 100,
            "only {accepted} variants were accepted: the parser refuses too much"
        );
    }

    #[test]
    fn an_answer_is_met_with_silence() {
        let mut message = captured();
        message[2] |= 0x80;
        assert_eq!(
            Query::parse(&message).err(),
            Some(Rejection::Silence(Silence::NotAQuestion))
        );
    }

    #[test]
    fn each_kind_of_bad_question_gets_the_code_of_its_rfc() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut message = captured();
            change(&mut message);
            code(&message)
        };
        assert_eq!(with(&|m| m[2] |= 0x28), Some(Rcode::NOTIMP), "UPDATE");
        assert_eq!(with(&|m| m[5] = 0), Some(Rcode::FORMERR), "no question");
        assert_eq!(with(&|m| m[5] = 2), Some(Rcode::FORMERR), "two questions");
        assert_eq!(
            with(&|m| m[7] = 1),
            Some(Rcode::FORMERR),
            "an answer in a question"
        );
        assert_eq!(
            with(&|m| m[12] = 0xc0),
            Some(Rcode::FORMERR),
            "a pointer in the question"
        );
        assert_eq!(
            with(&|m| m.push(0)),
            Some(Rcode::FORMERR),
            "octets behind the end"
        );
        assert_eq!(with(&|m| m[32] = 3), Some(Rcode::REFUSED), "class CHAOS");
        assert_eq!(with(&|m| m[30] = 252), Some(Rcode::REFUSED), "AXFR");
        assert_eq!(with(&|m| m[30] = 41), Some(Rcode::FORMERR), "OPT as a question");
        assert_eq!(with(&|m| m[39] = 1), Some(Rcode::BADVERS), "EDNS version 1");
        assert_eq!(
            with(&|m| {
                m[11] = 2;
                m.extend(b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00");
            }),
            Some(Rcode::FORMERR),
            "two OPT records"
        );
    }

    #[test]
    fn a_client_without_edns_gets_512_octets_and_none_gets_more_than_1232() {
        let mut message = captured();
        message.truncate(33);
        message[11] = 0;
        assert_eq!(Query::parse(&message).ok().unwrap().udp_limit(), 512);
        let mut large = captured();
        large[36..38].copy_from_slice(&4096u16.to_be_bytes());
        assert_eq!(Query::parse(&large).ok().unwrap().udp_limit(), 1232);
        large[36..38].copy_from_slice(&100u16.to_be_bytes());
        assert_eq!(Query::parse(&large).ok().unwrap().udp_limit(), 512);
    }
}
