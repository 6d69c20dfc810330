//! Questions of a real client and what real servers answered, every prefix of them, and every flipped bit.
//!
//! Each file in `captured/` has two lines an exchange: the question, as `dig` asked it, and the answer of the server that
//! the file is named after, by UDP.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "tests"
)]

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use oooi_dns::wire::query::Query;
use oooi_dns::wire::reply::{Asked, Mismatch, Reply};

const CAP: u32 = 600;

const CAPTURES: [&str; 3] = [
    include_str!("captured/knot.hex"),
    include_str!("captured/unbound.hex"),
    include_str!("captured/dnsmasq.hex"),
];

/// A question and its answer.
struct Exchange {
    question: Vec<u8>,
    answer: Vec<u8>,
}

impl Exchange {
    fn asked(&self) -> Asked {
        let query = Query::parse(&self.question).ok().unwrap();
        Asked {
            id: query.id,
            name: query.question.name.into(),
            kind: query.question.kind,
            dnssec_ok: query.edns.is_some_and(|edns| edns.dnssec_ok),
            spelling: true,
        }
    }

    fn read(&self) -> Result<Reply, Mismatch> {
        Reply::read(&self.answer, &self.asked(), CAP)
    }
}

fn exchanges() -> Vec<Exchange> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let message = |line: &str| -> Vec<u8> { line.as_bytes().chunks(2).map(byte).collect() };
    let mut exchanges = Vec::new();
    for capture in CAPTURES {
        let lines: Vec<&str> = capture.lines().collect();
        exchanges.extend(lines.chunks(2).map(|pair| Exchange {
            question: message(pair[0]),
            answer: message(pair[1]),
        }));
    }
    exchanges
}

/// Every message that differs from this one in a bit.
fn flipped(message: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..message.len() * 8).map(|bit| {
        let mut flipped = message.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    })
}

#[test]
fn of_every_captured_answer_what_answers_the_question_is_kept() {
    let exchanges = exchanges();
    assert_eq!(exchanges.len(), 41);
    let mut truncated = 0;
    for exchange in exchanges {
        let sent = Message::from_vec(&exchange.answer).unwrap();
        let reply = match exchange.read() {
            Err(Mismatch::Truncated) if sent.metadata.truncation => {
                truncated += 1;
                continue;
            }
            other => other.unwrap_or_else(|mismatch| panic!("{mismatch}: {sent}")),
        };
        let kept = Message::from_vec(&reply.message).unwrap();
        assert_eq!(kept.metadata.response_code, sent.metadata.response_code);
        assert_eq!(kept.answers.len(), sent.answers.len(), "{sent}\nkept: {kept}");
        for (kept, sent) in kept.answers.iter().zip(&sent.answers) {
            assert!(sent.ttl >= kept.ttl);
        }
        let denies = sent.metadata.response_code == ResponseCode::NXDomain || sent.answers.is_empty();
        let soa = |message: &Message| {
            let authority = message.authorities.iter();
            authority
                .filter(|record| record.record_type() == RecordType::SOA)
                .count()
        };
        assert_eq!(soa(&kept), usize::from(denies), "{sent}\nkept: {kept}");
        // An alias that leads elsewhere is no answer to remember.
        let wanted = sent.queries[0].query_type();
        let answers = sent.answers.iter().any(|record| record.record_type() == wanted);
        assert_eq!(reply.lifetime > 0, denies || answers, "{sent}");
    }
    assert_eq!(truncated, 3, "one of each server");
}

#[test]
fn no_prefix_of_a_captured_message_is_taken_for_the_whole() {
    for exchange in exchanges() {
        for length in 0..exchange.question.len() {
            assert!(
                Query::parse(&exchange.question[..length]).is_err(),
                "{length} octets"
            );
        }
        let asked = exchange.asked();
        for length in 0..exchange.answer.len() {
            let read = Reply::read(&exchange.answer[..length], &asked, CAP);
            assert!(read.is_err(), "{length} octets");
        }
    }
}

#[test]
fn with_any_bit_flipped_a_captured_message_does_no_harm() {
    let mut read = 0;
    for exchange in exchanges() {
        for question in flipped(&exchange.question) {
            let _ = Query::parse(&question);
        }
        let asked = exchange.asked();
        let again = Asked {
            id: 0,
            ..asked.clone()
        };
        for answer in flipped(&exchange.answer) {
            let Ok(reply) = Reply::read(&answer, &asked, CAP) else {
                continue;
            };
            read += 1;
            let clean = Reply::read(&reply.message, &again, CAP).unwrap();
            assert_eq!(clean.message, reply.message, "what is kept is clean");
            for at in reply.ttls.iter().map(|at| usize::from(*at)) {
                let ttl = u32::from_be_bytes(reply.message[at..at + 4].try_into().unwrap());
                assert!(ttl <= CAP && reply.lifetime <= ttl);
            }
        }
    }
    assert!(read > 10_000, "only {read} were read: too much is refused");
}
