//! Writing what a client gets.
//!
//! A [`Writer`] fills a buffer that its caller owns: header and question first, then records, then OPT.
//! Owner names are pointers into the question: all that this server answers by itself belongs to the asked
//! name or to one of its parents. What does not fit is cut by [`Writer::finish`]: the question stays, TC is
//! set, and the client comes back by TCP.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::query::Query;
use super::{CLASS_IN, HEADER, Rcode, UDP_LIMIT, flag, kind};

/// Octets of an OPT record without options.
const OPT: usize = 11;

/// An extended error (RFC 8914): tells people with `dig` why, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedError {
    /// Its number in the IANA registry.
    pub code: u16,
    /// A sentence for people.
    pub text: &'static str,
}

/// Where in the message a record's owner is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u16);

impl Owner {
    /// The asked name itself.
    pub const QUESTION: Owner = Owner(0xc000 | HEADER as u16);

    /// The parent of the asked name that is `len` octets long in wire form.
    pub fn parent(question_len: usize, len: usize) -> Owner {
        Owner(0xc000 | (HEADER + question_len.saturating_sub(len)) as u16)
    }
}

/// Fills one answer.
pub struct Writer<'b> {
    out: &'b mut [u8],
    at: usize,
    limit: usize,
    overflow: bool,
}

impl<'b> Writer<'b> {
    /// Begins the answer to `query`: its id, its question, and its RD and CD bits beside `flags`.
    ///
    /// `limit` is the most that the client takes; the buffer must hold the question at least, which one
    /// of 512 octets does.
    pub fn answer(
        out: &'b mut [u8],
        limit: usize,
        query: &Query<'_>,
        flags: u16,
        rcode: Rcode,
    ) -> Writer<'b> {
        let kept = query.flags & (flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
        let flags = flag::RESPONSE | kept | flags | (rcode.0 & 0xf);
        let limit = limit.min(out.len());
        let mut writer = Writer {
            out,
            at: 0,
            limit,
            overflow: false,
        };
        writer.put(&query.id.to_be_bytes());
        writer.put(&flags.to_be_bytes());
        writer.put(&[0, 1, 0, 0, 0, 0, 0, 0]);
        writer.put(query.question.name);
        writer.put(&query.question.kind.to_be_bytes());
        writer.put(&query.question.class.to_be_bytes());
        writer
    }

    /// Writes a whole answer without records to a message that could not be read as a question.
    ///
    /// `message` has a header; `question` octets behind it are repeated.
    pub fn reject(out: &mut [u8], message: &[u8], question: usize, rcode: Rcode, edns: bool) -> usize {
        let (Some(header), Some(asked)) = (message.get(..4), message.get(HEADER..HEADER + question)) else {
            return 0;
        };
        let flags = u16::from_be_bytes([header[2], header[3]]);
        let kept = flags & (flag::OPCODE | flag::RECURSION_DESIRED | flag::CHECKING_DISABLED);
        let limit = out.len();
        let mut writer = Writer {
            out,
            at: 0,
            limit,
            overflow: false,
        };
        writer.put(&header[..2]);
        writer.put(&(flag::RESPONSE | kept | (rcode.0 & 0xf)).to_be_bytes());
        writer.put(&[0, u8::from(question > 0), 0, 0, 0, 0, 0, 0]);
        writer.put(asked);
        writer.opt(edns, false, rcode, None);
        if writer.overflow { 0 } else { writer.at }
    }

    /// An A record in the answer section.
    pub fn a(&mut self, owner: Owner, ttl: u32, address: Ipv4Addr) {
        self.record(ANSWER, owner, kind::A, ttl, &address.octets());
    }

    /// An AAAA record in the answer section.
    pub fn aaaa(&mut self, owner: Owner, ttl: u32, address: Ipv6Addr) {
        self.record(ANSWER, owner, kind::AAAA, ttl, &address.octets());
    }

    /// A record in the answer section whose data are one uncompressed name (PTR, NS).
    pub fn named(&mut self, owner: Owner, kind: u16, ttl: u32, name: &[u8]) {
        self.record(ANSWER, owner, kind, ttl, name);
    }

    /// The minimal answer to ANY (RFC 8482, 4.2): one HINFO record that names the RFC.
    pub fn hinfo(&mut self, ttl: u32) {
        self.record(ANSWER, Owner::QUESTION, kind::HINFO, ttl, b"\x07RFC8482\x00");
    }

    /// An SOA record, in the answer section where it was asked for and in the authority section else.
    pub fn soa(&mut self, asked: bool, owner: Owner, ttl: u32, data: &[u8]) {
        self.record(
            if asked { ANSWER } else { AUTHORITY },
            owner,
            kind::SOA,
            ttl,
            data,
        );
    }

    /// Ends the message: OPT where the client spoke EDNS, an emptied answer with TC where it did not fit.
    /// Gives the length, 0 where even the question did not fit.
    pub fn finish(mut self, query: &Query<'_>, rcode: Rcode, error: Option<ExtendedError>) -> usize {
        let question_end = HEADER + query.question.len();
        let opt = if query.edns.is_some() { OPT } else { 0 };
        if self.overflow || self.at + opt > self.limit {
            if self.out.len() < question_end + opt {
                return 0;
            }
            self.at = question_end;
            self.limit = self.out.len();
            self.overflow = false;
            self.out[2] |= (flag::TRUNCATED >> 8) as u8;
            self.out[6..10].fill(0);
        }
        self.opt(query.edns.is_some(), query.dnssec_ok(), rcode, error);
        self.at
    }

    fn record(&mut self, section: usize, owner: Owner, kind: u16, ttl: u32, data: &[u8]) {
        let mut fixed = [0; 12];
        fixed[0..2].copy_from_slice(&owner.0.to_be_bytes());
        fixed[2..4].copy_from_slice(&kind.to_be_bytes());
        fixed[4..6].copy_from_slice(&CLASS_IN.to_be_bytes());
        fixed[6..10].copy_from_slice(&ttl.to_be_bytes());
        fixed[10..12].copy_from_slice(&(data.len() as u16).to_be_bytes());
        self.put(&fixed);
        self.put(data);
        self.count(section);
    }

    fn opt(&mut self, present: bool, dnssec_ok: bool, rcode: Rcode, error: Option<ExtendedError>) {
        if !present {
            return;
        }
        let at = self.at;
        let length = append_opt(&mut self.out[at..self.limit.max(at)], dnssec_ok, rcode, error);
        if length == 0 {
            self.overflow = true;
            return;
        }
        self.at += length;
        self.count(ADDITIONAL);
    }

    fn count(&mut self, section: usize) {
        if self.overflow {
            return;
        }
        let count = u16::from_be_bytes([self.out[section], self.out[section + 1]]) + 1;
        self.out[section..section + 2].copy_from_slice(&count.to_be_bytes());
    }

    fn put(&mut self, octets: &[u8]) {
        let end = self.at + octets.len();
        if self.overflow || end > self.limit {
            self.overflow = true;
            return;
        }
        self.out[self.at..end].copy_from_slice(octets);
        self.at = end;
    }
}

/// Places of the section counts in the header.
const ANSWER: usize = 6;
const AUTHORITY: usize = 8;
const ADDITIONAL: usize = 10;

/// Writes an OPT record at the start of `out`, with the extended error if there is room for it; gives its
/// length, 0 where not even a bare one fits. The caller counts it in the header.
pub(crate) fn append_opt(
    out: &mut [u8],
    dnssec_ok: bool,
    rcode: Rcode,
    error: Option<ExtendedError>,
) -> usize {
    if out.len() < OPT {
        return 0;
    }
    let extended = (rcode.0 >> 4) as u8;
    let size = (UDP_LIMIT as u16).to_be_bytes();
    let dnssec = if dnssec_ok { 0x80 } else { 0 };
    out[..OPT].copy_from_slice(&[
        0,
        0,
        kind::OPT as u8,
        size[0],
        size[1],
        extended,
        0,
        dnssec,
        0,
        0,
        0,
    ]);
    let Some(error) = error else { return OPT };
    let length = OPT + 6 + error.text.len();
    if out.len() < length {
        return OPT;
    }
    out[OPT - 2..OPT].copy_from_slice(&((6 + error.text.len()) as u16).to_be_bytes());
    out[OPT..OPT + 2].copy_from_slice(&15u16.to_be_bytes());
    out[OPT + 2..OPT + 4].copy_from_slice(&((2 + error.text.len()) as u16).to_be_bytes());
    out[OPT + 4..OPT + 6].copy_from_slice(&error.code.to_be_bytes());
    out[OPT + 6..length].copy_from_slice(error.text.as_bytes());
    length
}

#[cfg(test)]
mod tests {
    use super::super::query::tests::captured;
    use super::*;
    use hickory_proto::op::{Message, ResponseCode};
    use hickory_proto::rr::RecordType;

    fn with_query<T>(message: &[u8], test: impl FnOnce(&Query<'_>) -> T) -> T {
        test(&Query::parse(message).ok().unwrap())
    }

    #[test]
    fn an_independent_parser_reads_what_is_written() {
        let message = captured();
        let mut out = [0; 512];
        let len = with_query(&message, |query| {
            let mut writer = Writer::answer(&mut out, 512, query, flag::AUTHORITATIVE, Rcode::NOERROR);
            writer.a(Owner::QUESTION, 30, Ipv4Addr::new(10, 0, 0, 4));
            writer.a(Owner::QUESTION, 30, Ipv4Addr::new(10, 0, 0, 5));
            writer.finish(query, Rcode::NOERROR, None)
        });
        let read = Message::from_vec(&out[..len]).unwrap();
        assert_eq!(read.metadata.id, 0xabcd);
        assert!(read.metadata.authoritative);
        assert_eq!(read.metadata.response_code, ResponseCode::NoError);
        assert_eq!(read.answers.len(), 2);
        assert_eq!(read.answers[0].name.to_string(), "api.Example.com.");
        assert_eq!(read.answers[0].record_type(), RecordType::A);
        assert!(read.edns.is_some());
    }

    #[test]
    fn an_answer_that_does_not_fit_is_cut_to_the_question_with_tc() {
        let message = captured();
        let mut out = [0; 1232];
        let len = with_query(&message, |query| {
            let mut writer = Writer::answer(&mut out, 512, query, 0, Rcode::NOERROR);
            for last in 0..100 {
                writer.a(Owner::QUESTION, 30, Ipv4Addr::new(10, 0, 0, last));
            }
            writer.finish(query, Rcode::NOERROR, None)
        });
        let read = Message::from_vec(&out[..len]).unwrap();
        assert!(read.metadata.truncation);
        assert!(read.answers.is_empty());
        assert!(
            read.edns.is_some(),
            "a client that speaks EDNS gets OPT in a cut answer, too"
        );
    }

    #[test]
    fn an_extended_error_is_left_out_before_the_answer_is_cut() {
        let message = captured();
        let text = "this sentence is here to be left out";
        for limit in 33 + 11..160 {
            let mut out = [0; 160];
            let len = with_query(&message, |query| {
                let writer = Writer::answer(&mut out, limit, query, 0, Rcode::REFUSED);
                writer.finish(query, Rcode::REFUSED, Some(ExtendedError { code: 18, text }))
            });
            assert!(len <= limit, "{len} octets where {limit} were allowed");
            let read = Message::from_vec(&out[..len]).unwrap();
            assert!(read.edns.is_some());
            assert!(!read.metadata.truncation);
        }
    }

    #[test]
    fn a_rejection_repeats_the_readable_question_and_the_extended_code() {
        let message = captured();
        let mut out = [0; 512];
        let len = Writer::reject(&mut out, &message, 21, Rcode::BADVERS, true);
        let read = Message::from_vec(&out[..len]).unwrap();
        assert_eq!(u16::from(read.metadata.response_code), Rcode::BADVERS.0);
        assert_eq!(read.queries.len(), 1);
        assert_eq!(
            Writer::reject(&mut out, &message, 0, Rcode::FORMERR, false),
            HEADER
        );
    }
}
