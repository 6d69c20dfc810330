use super::*;
use crate::wire::kind;
use crate::wire::name::Name;
use crate::wire::reply::Asked;
use hickory_proto::op::Message;

fn question(name: &str, flags: u16, edns: Option<(u16, bool)>) -> Vec<u8> {
    let mut message = vec![0xbe, 0xef];
    message.extend(flags.to_be_bytes());
    message.extend([0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())]);
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend(label.bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    if let Some((size, dnssec_ok)) = edns {
        message.extend([0, 0, 41]);
        message.extend(size.to_be_bytes());
        message.extend([0, 0, if dnssec_ok { 0x80 } else { 0 }, 0, 0, 0]);
    }
    message
}

/// An upstream's answer to `www.example` with so many A records.
fn reply(records: u16, ttl: u32, flags: u16) -> Reply {
    let name = Name::parse("www.example").unwrap();
    let mut message = vec![0, 7];
    message.extend((flag::RESPONSE | flags).to_be_bytes());
    message.extend([0, 1]);
    message.extend(records.to_be_bytes());
    message.extend([0; 4]);
    message.extend(name.wire());
    message.extend([0, 1, 0, 1]);
    for last in 0..records {
        message.extend([0xc0, 12, 0, 1, 0, 1]);
        message.extend(ttl.to_be_bytes());
        message.extend([0, 4, 192, 0, (last >> 8) as u8, last as u8]);
    }
    let asked = Asked {
        id: 7,
        name: name.wire().into(),
        kind: kind::A,
        dnssec_ok: false,
        spelling: true,
    };
    Reply::read(&message, &asked, 3600).unwrap()
}

fn write(entry: &Entry, question: &[u8], limit: usize, age: Age) -> Message {
    let query = Query::parse(question).ok().unwrap();
    let mut out = [0; 4096];
    let length = entry.write(&mut out, limit, &query, age);
    assert!(length <= limit.max(HEADER + query.question.len() + 11));
    Message::from_vec(&out[..length]).unwrap()
}

#[test]
fn a_hit_has_the_clients_id_spelling_and_the_rest_of_the_ttl() {
    let entry = Entry::new(reply(2, 300, 0), 100);
    let answer = write(
        &entry,
        &question("WwW.eXample", 0x0100, None),
        512,
        Age::Fresh(17),
    );
    assert_eq!(answer.metadata.id, 0xbeef);
    assert_eq!(answer.queries[0].name().to_string(), "WwW.eXample.");
    assert_eq!(answer.answers[0].name.to_string(), "WwW.eXample.");
    assert!(answer.answers.iter().all(|record| record.ttl == 283));
    assert!(answer.metadata.recursion_desired && answer.metadata.recursion_available);
}

#[test]
fn opt_is_there_for_those_who_speak_edns_only() {
    let entry = Entry::new(reply(1, 300, 0), 0);
    assert!(
        write(&entry, &question("www.example", 0x0100, None), 512, Age::Fresh(0))
            .edns
            .is_none()
    );
    let with = write(
        &entry,
        &question("www.example", 0x0100, Some((1232, true))),
        1232,
        Age::Fresh(0),
    );
    assert!(with.edns.unwrap().flags().dnssec_ok);
}

#[test]
fn ad_is_passed_on_to_those_who_asked_for_it() {
    let entry = Entry::new(reply(1, 300, flag::AUTHENTIC), 0);
    let authentic = |flags, edns| {
        write(&entry, &question("www.example", flags, edns), 512, Age::Fresh(0))
            .metadata
            .authentic_data
    };
    assert!(!authentic(0x0100, None));
    assert!(authentic(0x0120, None));
    assert!(authentic(0x0100, Some((1232, true))));
}

#[test]
fn an_answer_too_long_for_the_client_is_cut_with_tc() {
    let entry = Entry::new(reply(60, 300, 0), 0);
    let cut = write(&entry, &question("www.example", 0x0100, None), 512, Age::Fresh(1));
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    let whole = write(
        &entry,
        &question("www.example", 0x0100, Some((1232, false))),
        1232,
        Age::Fresh(1),
    );
    assert_eq!(whole.answers.len(), 60);
}

fn stored(cache: &Cache, reply: Reply, now: u32) -> Key {
    let key = Key::new(
        &Folded::new(Name::parse("www.example").unwrap().wire()),
        kind::A,
        false,
        false,
    );
    cache.store(key.octets(), &Arc::new(Entry::new(reply, now)));
    key
}

#[test]
fn an_answer_is_fresh_for_its_ttl_then_stale_for_a_day_then_gone() {
    let cache = Cache::new(1 << 20);
    let key = stored(&cache, reply(1, 60, 0), 1000);
    assert!(matches!(cache.find(&key, 1059), Hit::Fresh { age: 59, .. }));
    assert!(matches!(
        cache.find(&key, 1060),
        Hit::Stale { resting: false, .. }
    ));
    assert!(matches!(cache.find(&key, 1059 + STALE), Hit::Stale { .. }));
    assert!(matches!(cache.find(&key, 1060 + STALE), Hit::Miss));
}

#[test]
fn after_a_failure_an_old_answer_rests_for_half_a_minute() {
    let cache = Cache::new(1 << 20);
    let key = stored(&cache, reply(1, 60, 0), 0);
    let Hit::Stale { entry, .. } = cache.find(&key, 100) else {
        panic!("not stale")
    };
    entry.rest(100);
    assert!(matches!(cache.find(&key, 129), Hit::Stale { resting: true, .. }));
    assert!(matches!(cache.find(&key, 130), Hit::Stale { resting: false, .. }));
    let old = write(&entry, &question("www.example", 0x0100, None), 512, Age::Stale);
    assert_eq!(old.answers[0].ttl, STALE_TTL);
}

#[test]
fn a_failure_is_remembered_for_a_moment_and_never_stale() {
    let cache = Cache::new(1 << 20);
    let key = stored(&cache, reply(0, 0, Rcode::SERVFAIL.0), 0);
    assert!(matches!(cache.find(&key, FAILURE - 1), Hit::Fresh { .. }));
    assert!(matches!(cache.find(&key, FAILURE), Hit::Miss));
}

#[test]
fn what_must_not_be_kept_is_not() {
    let cache = Cache::new(1 << 20);
    let key = stored(&cache, reply(1, 0, 0), 0);
    assert!(matches!(cache.find(&key, 0), Hit::Miss));
}

#[test]
fn a_hot_answer_is_fetched_anew_once_in_the_last_tenth_of_its_time() {
    let cache = Cache::new(1 << 20);
    let key = stored(&cache, reply(1, 100, 0), 0);
    let refresh = |now| matches!(cache.find(&key, now), Hit::Fresh { refresh: true, .. });
    assert!((0..10).all(|now| !refresh(now)));
    assert!(!refresh(89));
    assert!(refresh(90));
    assert!(!refresh(91), "one caller is enough");
    let Hit::Fresh { entry, .. } = cache.find(&key, 92) else {
        panic!("not fresh")
    };
    entry.refresh_ended();
    assert!(refresh(93), "a failed fetch is tried again");
}

#[test]
fn a_hundred_thousand_names_stay_within_the_bound() {
    let bound = 1 << 20;
    let cache = Cache::new(bound);
    for number in 0u32..100_000 {
        let key = [&number.to_be_bytes()[..], b"some name"].concat();
        cache.store(&key, &Arc::new(Entry::new(reply(1, 60, 0), 0)));
    }
    assert!(cache.octets() <= bound as u64, "{} octets", cache.octets());
    assert!(cache.len() > 1000, "only {} entries are left", cache.len());
}

#[test]
fn questions_that_may_be_answered_differently_have_different_keys() {
    let name = Folded::new(Name::parse("www.example").unwrap().wire());
    let keys = [
        Key::new(&name, kind::A, false, false),
        Key::new(&name, kind::AAAA, false, false),
        Key::new(&name, kind::A, true, false),
        Key::new(&name, kind::A, false, true),
    ];
    let distinct: std::collections::HashSet<&[u8]> = keys.iter().map(Key::octets).collect();
    assert_eq!(distinct.len(), 4);
}
