use super::*;
use hickory_proto::op::{Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, MX, NS, SOA};
use hickory_proto::rr::{Name as Hickory, RData, Record as Rr, RecordType};
use std::str::FromStr;

fn asked(text: &str, kind: u16) -> Asked {
    let name = Name::parse(text).unwrap().wire().into();
    Asked {
        id: 7,
        name,
        kind,
        dnssec_ok: false,
        spelling: true,
    }
}

fn host(text: &str) -> Hickory {
    Hickory::from_str(text).unwrap()
}

fn a(owner: &str, ttl: u32, last: u8) -> Rr {
    Rr::from_rdata(host(owner), ttl, RData::A(A::new(192, 0, 2, last)))
}

fn cname(owner: &str, target: &str) -> Rr {
    Rr::from_rdata(host(owner), 60, RData::CNAME(CNAME(host(target))))
}

fn soa(owner: &str, ttl: u32, minimum: u32) -> Rr {
    let soa = SOA::new(host("ns.example."), host("root.example."), 1, 2, 3, 4, minimum);
    Rr::from_rdata(host(owner), ttl, RData::SOA(soa))
}

/// An upstream's answer as an independent encoder writes it.
fn message(
    name: &str,
    kind: RecordType,
    answers: Vec<Rr>,
    authority: Vec<Rr>,
    additional: Vec<Rr>,
) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Response, OpCode::Query);
    message.add_query(Question::query(host(name), kind));
    message.metadata.recursion_available = true;
    message.add_answers(answers);
    message.add_authorities(authority);
    message.add_additionals(additional);
    message.to_vec().unwrap()
}

fn read(reply: &Reply) -> Message {
    Message::from_vec(&reply.message).unwrap()
}

#[test]
fn an_answer_is_kept_and_its_ttls_are_capped_and_found() {
    let wire = message(
        "www.example.",
        RecordType::A,
        vec![a("www.example.", 3600, 1), a("www.example.", 20, 2)],
        vec![],
        vec![],
    );
    let reply = Reply::read(&wire, &asked("www.example", kind::A), 300).unwrap();
    assert_eq!(reply.lifetime, 20);
    let ttls: Vec<u32> = reply
        .ttls
        .iter()
        .map(|&at| read_u32(&reply.message, at.into()).unwrap())
        .collect();
    assert_eq!(ttls, [300, 20]);
    assert_eq!(read(&reply).answers.len(), 2);
}

#[test]
fn an_alias_chain_is_kept_in_any_order_and_foreign_records_are_dropped() {
    let answers = vec![
        a("c.other.", 60, 1),
        cname("b.example.", "c.other."),
        a("victim.example.", 60, 66),
        cname("www.example.", "b.example."),
    ];
    let poison = vec![a("bank.example.", 60, 66)];
    let authority = vec![Rr::from_rdata(
        host("example."),
        60,
        RData::NS(NS(host("evil.example."))),
    )];
    let wire = message("www.example.", RecordType::A, answers, authority, poison);
    let reply = Reply::read(&wire, &asked("www.example", kind::A), 300).unwrap();
    let read = read(&reply);
    let owners: Vec<String> = read
        .answers
        .iter()
        .map(|record| record.name.to_string())
        .collect();
    assert_eq!(owners, ["c.other.", "b.example.", "www.example."]);
    assert!(read.authorities.is_empty() && read.additionals.is_empty());
}

#[test]
fn an_alias_chain_that_bites_its_tail_ends() {
    let answers = vec![
        cname("a.example.", "b.example."),
        cname("b.example.", "a.example."),
    ];
    let wire = message("a.example.", RecordType::A, answers, vec![], vec![]);
    let reply = Reply::read(&wire, &asked("a.example", kind::A), 300).unwrap();
    assert_eq!(
        reply.lifetime, 0,
        "it neither answers nor denies, so it is not kept"
    );
}

#[test]
fn a_negative_answer_lives_as_long_as_the_smaller_of_soa_ttl_and_minimum() {
    for (ttl, minimum, lifetime) in [(3600, 15, 15), (10, 900, 10), (3600, 900, 300)] {
        let wire = message(
            "no.example.",
            RecordType::A,
            vec![],
            vec![soa("example.", ttl, minimum)],
            vec![],
        );
        let reply = Reply::read(&wire, &asked("no.example", kind::A), 300).unwrap();
        assert_eq!(reply.lifetime, lifetime);
        assert_eq!(read(&reply).authorities.len(), 1);
    }
}

#[test]
fn a_negative_answer_without_soa_or_with_a_foreign_one_is_not_kept() {
    for authority in [vec![], vec![soa("other.", 60, 60)]] {
        let wire = message("no.example.", RecordType::A, vec![], authority, vec![]);
        let reply = Reply::read(&wire, &asked("no.example", kind::A), 300).unwrap();
        assert_eq!(reply.lifetime, 0);
        assert!(read(&reply).authorities.is_empty());
    }
}

#[test]
fn a_failure_is_read_but_not_kept() {
    let mut wire = message(
        "www.example.",
        RecordType::A,
        vec![],
        vec![soa("example.", 60, 60)],
        vec![],
    );
    wire[3] |= 2;
    let reply = Reply::read(&wire, &asked("www.example", kind::A), 300).unwrap();
    assert_eq!((reply.rcode, reply.lifetime), (Rcode::SERVFAIL, 0));
    assert_eq!(read(&reply).metadata.response_code, ResponseCode::ServFail);
}

#[test]
fn answers_to_other_questions_are_told_apart() {
    let wire = message(
        "www.example.",
        RecordType::A,
        vec![a("www.example.", 60, 1)],
        vec![],
        vec![],
    );
    let as_asked = |asked: &Asked| Reply::read(&wire, asked, 300).err();
    assert_eq!(as_asked(&asked("www.example", kind::A)), None);
    assert_eq!(as_asked(&asked("www.other.", kind::A)), Some(Mismatch::Foreign));
    assert_eq!(
        as_asked(&asked("www.example", kind::AAAA)),
        Some(Mismatch::Foreign)
    );
    assert_eq!(
        as_asked(&Asked {
            id: 8,
            ..asked("www.example", kind::A)
        }),
        Some(Mismatch::Foreign)
    );
    let shouted = Asked {
        name: b"\x03wWw\x07example\x00".to_vec().into(),
        ..asked("www.example", kind::A)
    };
    assert_eq!(as_asked(&shouted), Some(Mismatch::Spelling));
    assert_eq!(
        as_asked(&Asked {
            spelling: false,
            ..shouted
        }),
        None
    );
    let mut cut = wire.clone();
    cut[2] |= 2;
    assert_eq!(
        Reply::read(&cut, &asked("www.example", kind::A), 300).err(),
        Some(Mismatch::Truncated)
    );
}

#[test]
fn names_in_data_survive_the_loss_of_the_records_that_they_pointed_to() {
    let answers = vec![
        a("deep.mail.hoster.", 60, 9),
        Rr::from_rdata(
            host("example."),
            60,
            RData::MX(MX::new(10, host("mx.deep.mail.hoster."))),
        ),
    ];
    let wire = message("example.", RecordType::MX, answers, vec![], vec![]);
    let reply = Reply::read(&wire, &asked("example", kind::MX), 300).unwrap();
    let read = read(&reply);
    assert_eq!(read.answers.len(), 1);
    assert_eq!(
        read.answers[0].data,
        RData::MX(MX::new(10, host("mx.deep.mail.hoster.")))
    );
}

#[test]
fn no_prefix_and_no_single_flipped_bit_of_an_answer_panics() {
    let answers = vec![cname("www.example.", "b.example."), a("b.example.", 60, 1)];
    let wire = message(
        "www.example.",
        RecordType::A,
        answers,
        vec![soa("example.", 60, 60)],
        vec![a("x.example.", 1, 1)],
    );
    let asked = asked("www.example", kind::A);
    for len in 0..wire.len() {
        assert!(
            Reply::read(&wire[..len], &asked, 300).is_err(),
            "{len} of {} octets",
            wire.len()
        );
    }
    let mut read = 0;
    for bit in 0..wire.len() * 8 {
        let mut flipped = wire.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(reply) = Reply::read(&flipped, &asked, 300) {
            read += 1;
            for &at in &reply.ttls {
                assert!(read_u32(&reply.message, at.into()).unwrap() <= 300);
            }
        }
    }
    assert!(read > 50);
}

#[test]
fn a_record_without_data_does_not_borrow_those_of_the_next() {
    let mut wire = message(
        "no.example.",
        RecordType::A,
        vec![],
        vec![soa("example.", 60, 60)],
        vec![],
    );
    // A signature of no octets in the authority section, and behind it what would make it one of an NSEC.
    wire[9] = 2;
    wire.extend([0xc0, 15, 0, 46, 0, 1, 0, 0, 0, 60, 0, 0]);
    wire.extend([0, 47]);
    let asked = Asked {
        dnssec_ok: true,
        ..asked("no.example", kind::A)
    };
    let reply = Reply::read(&wire, &asked, 300).unwrap();
    assert_eq!(
        u16::from_be_bytes([reply.message[8], reply.message[9]]),
        1,
        "the SOA alone is kept"
    );
}

#[test]
fn an_extended_code_is_a_failure_for_clients() {
    let mut wire = message(
        "www.example.",
        RecordType::A,
        vec![a("www.example.", 60, 1)],
        vec![],
        vec![],
    );
    wire[11] = 1;
    wire.extend([0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0]); // BADVERS
    let reply = Reply::read(&wire, &asked("www.example", kind::A), 300).unwrap();
    assert_eq!(
        (reply.rcode, reply.edns, reply.lifetime),
        (Rcode::SERVFAIL, true, 0)
    );
    assert_eq!(read(&reply).metadata.response_code, ResponseCode::ServFail);
    assert!(read(&reply).answers.is_empty());
}
