//! What holds for every answer of an upstream, not only for those that somebody thought of.

#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use hickory_proto::op::{Message, MessageType, OpCode, Query as Question, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, MX, NS, PTR, SOA, SRV, TXT};
use hickory_proto::rr::{Name as Host, RData, Record, RecordType};
use oooi_dns::cache::{Age, Cache, Entry, Hit, Key};
use oooi_dns::wire::name::{Folded, Name};
use oooi_dns::wire::query::Query;
use oooi_dns::wire::reply::{Asked, Reply};
use proptest::prelude::*;
use std::sync::Arc;

const CAP: u32 = 600;

/// A few names that are often equal, parents of each other, or neither.
fn name() -> impl Strategy<Value = Host> {
    let label = prop::sample::select(vec!["a", "B", "www", "Example", "x1"]);
    prop::collection::vec(label, 1..5)
        .prop_map(|labels| Host::from_ascii(format!("{}.", labels.join("."))).expect("a name"))
}

fn record() -> impl Strategy<Value = Record> {
    let data = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| RData::A(A(octets.into()))),
        name().prop_map(|name| RData::CNAME(CNAME(name))),
        name().prop_map(|name| RData::NS(NS(name))),
        name().prop_map(|name| RData::PTR(PTR(name))),
        (any::<u16>(), name()).prop_map(|(preference, name)| RData::MX(MX::new(preference, name))),
        (any::<u16>(), name()).prop_map(|(port, name)| RData::SRV(SRV::new(1, 2, port, name))),
        (name(), name(), any::<u32>())
            .prop_map(|(host, mailbox, minimum)| RData::SOA(SOA::new(host, mailbox, 1, 2, 3, 4, minimum))),
        "[a-z]{0,20}".prop_map(|text| RData::TXT(TXT::new(vec![text]))),
    ];
    (name(), any::<u32>(), data).prop_map(|(owner, ttl, data)| Record::from_rdata(owner, ttl, data))
}

/// An upstream's message, whose first records are likely to belong to the question.
fn message() -> impl Strategy<Value = Message> {
    let kind = prop::sample::select(vec![
        RecordType::A,
        RecordType::CNAME,
        RecordType::MX,
        RecordType::SRV,
    ]);
    let code = prop::sample::select(vec![
        ResponseCode::NoError,
        ResponseCode::NXDomain,
        ResponseCode::ServFail,
    ]);
    let records = || prop::collection::vec(record(), 0..6);
    (name(), kind, code, records(), records(), any::<[bool; 6]>()).prop_map(
        |(asked, kind, code, mut answers, authority, owned)| {
            for (record, owned) in answers.iter_mut().zip(owned) {
                if owned {
                    record.name = asked.clone();
                }
            }
            let mut message = Message::new(7, MessageType::Response, OpCode::Query);
            message.metadata.response_code = code;
            message.add_query(Question::query(asked, kind));
            message.add_answers(answers);
            message.add_authorities(authority);
            message
        },
    )
}

fn asked(message: &Message) -> Asked {
    let query = &message.queries[0];
    let mut wire = Vec::new();
    for label in query.name().iter() {
        wire.push(label.len() as u8);
        wire.extend(label);
    }
    wire.push(0);
    Asked {
        id: 7,
        name: wire.into(),
        kind: query.query_type().into(),
        dnssec_ok: false,
        spelling: true,
    }
}

/// The client's question, with its own id and spelling.
fn question(asked: &Asked, id: u16) -> Vec<u8> {
    let mut wire = id.to_be_bytes().to_vec();
    wire.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    wire.extend(&asked.name);
    wire.extend(asked.kind.to_be_bytes());
    wire.extend([0, 1]);
    wire.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    wire
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_cached_answer_equals_the_fresh_one_but_for_id_and_ttl(message in message(), age in 0u32..CAP, ids: [u16; 2]) {
        let asked = asked(&message);
        let wire = message.to_vec().expect("a message can be written");
        let reply = Reply::read(&wire, &asked, CAP).expect("a sound message is read");
        let lifetime = reply.lifetime;
        let ttls = reply.ttls.clone();
        let cache = Cache::new(1 << 20);
        let entry = Arc::new(Entry::new(reply, 1000));
        let folded = Folded::new(&asked.name);
        let key = Key::new(&folded, asked.kind, false, false);
        cache.store(key.octets(), &entry);

        let write = |entry: &Entry, id, age| {
            let question = question(&asked, id);
            let query = Query::parse(&question).expect("a sound question");
            let mut out = vec![0; 65_535];
            let length = entry.write(&mut out, 65_535, &query, age);
            out.truncate(length);
            out
        };
        let fresh = write(&entry, ids[0], Age::Fresh(0));
        match cache.find(&key, 1000 + age) {
            Hit::Fresh { entry: cached, age: found, .. } => {
                prop_assert_eq!(found, age);
                let mut expected = fresh;
                expected[..2].copy_from_slice(&ids[1].to_be_bytes());
                for &at in &ttls {
                    let at = usize::from(at);
                    let ttl = u32::from_be_bytes(expected[at..at + 4].try_into().expect("four octets"));
                    expected[at..at + 4].copy_from_slice(&(ttl - age).to_be_bytes());
                }
                prop_assert_eq!(write(&cached, ids[1], Age::Fresh(age)), expected);
            }
            Hit::Stale { .. } => prop_assert!(age >= lifetime && lifetime > 0),
            Hit::Miss => prop_assert!(lifetime == 0),
        }
    }

    #[test]
    fn what_is_kept_can_be_read_by_others_and_is_part_of_what_came(message in message()) {
        let asked = asked(&message);
        let wire = message.to_vec().expect("a message can be written");
        let reply = Reply::read(&wire, &asked, CAP).expect("a sound message is read");
        let kept = Message::from_vec(&reply.message).expect("what is kept can be read");
        let again = Reply::read(&reply.message, &Asked { id: 0, ..asked.clone() }, CAP);
        prop_assert_eq!(again.as_ref(), Ok(&reply), "what is kept is clean: reading it again changes nothing");
        prop_assert_eq!(kept.metadata.response_code, message.metadata.response_code);
        prop_assert!(kept.additionals.is_empty());
        for record in &kept.answers {
            let same = |came: &&Record| came.name == record.name && came.data == record.data;
            prop_assert!(message.answers.iter().any(|came| same(&came)), "{record:?} was made up");
            prop_assert!(record.ttl <= CAP);
        }
        for record in kept.answers.iter().chain(&kept.authorities) {
            prop_assert!(reply.lifetime <= record.ttl);
        }
    }

    #[test]
    fn of_a_damaged_answer_nothing_unclean_is_kept(
        message in message(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        dnssec_ok: bool,
    ) {
        let asked = Asked { dnssec_ok, ..asked(&message) };
        let mut wire = message.to_vec().expect("a message can be written");
        for (at, octet) in damage {
            let at = at.index(wire.len());
            wire[at] = octet;
        }
        if let Ok(reply) = Reply::read(&wire, &asked, CAP) {
            let again = Reply::read(&reply.message, &Asked { id: 0, ..asked }, CAP).expect("it can be read again");
            prop_assert_eq!(again.message, reply.message);
        }
    }

    #[test]
    fn no_octets_make_a_parser_panic(wire in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Query::parse(&wire);
        let asked = Asked { id: 7, name: Name::parse("a.example").expect("a name").wire().into(), kind: 1, dnssec_ok: true, spelling: false };
        let _ = Reply::read(&wire, &asked, CAP);
        // The same behind a header and question that fit, so that the records are reached.
        let mut reached = vec![0, 7, 0x80, 0, 0, 1, 0, 2, 0, 2, 0, 1];
        reached.extend(&asked.name);
        reached.extend([0, 1, 0, 1]);
        reached.extend(&wire);
        let _ = Reply::read(&reached, &asked, CAP);
    }
}
