use super::*;
use std::time::Duration;

fn group(policy: UpstreamPolicy) -> Group {
    let member = |last| {
        let target = Target::Plain(SocketAddr::from(([127, 0, 0, last], 53)));
        Arc::new(Member::new(target, last.to_string()))
    };
    Group {
        zone: Name::root(),
        policy,
        members: (1..=3).map(member).collect(),
        turn: AtomicUsize::new(0),
    }
}

#[test]
fn sequential_keeps_the_order_and_puts_lost_ones_last() {
    let group = group(UpstreamPolicy::Sequential);
    assert_eq!(group.order(b"\x01a\x00"), [0, 1, 2]);
    for _ in 0..3 {
        group.members[0].failed(0);
    }
    assert_eq!(group.order(b"\x01a\x00"), [1, 2, 0]);
}

#[test]
fn round_robin_begins_with_each_in_turn() {
    let group = group(UpstreamPolicy::RoundRobin);
    let first: Vec<usize> = (0..6).map(|_| group.order(b"\x01a\x00")[0]).collect();
    assert_eq!(first, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn fastest_begins_with_the_fastest_and_looks_at_the_others_now_and_then() {
    let group = group(UpstreamPolicy::Fastest);
    for (member, millis) in group.members.iter().zip([30, 10, 20]) {
        member.answered(Duration::from_millis(millis));
    }
    let first: Vec<usize> = (0..2 * EXPLORE).map(|_| group.order(b"\x01a\x00")[0]).collect();
    assert_eq!(first.iter().filter(|&&at| at == 1).count(), 2 * EXPLORE - 2);
    assert!(first.contains(&0) && first.contains(&2));
}

#[test]
fn one_that_asks_us_in_turn_for_a_zone_is_not_asked_for_it() {
    let group = group(UpstreamPolicy::Sequential);
    let zone = Name::parse("hub.example").unwrap();
    assert!(group.members[1].set_loop(&zone, true));
    assert!(!group.members[1].set_loop(&zone, true), "no news");
    assert_eq!(
        group.order(Name::parse("api.hub.example").unwrap().wire()),
        [0, 2]
    );
    assert_eq!(group.order(Name::parse("www.example").unwrap().wire()), [0, 1, 2]);
    assert!(group.members[1].set_loop(&zone, false));
    assert_eq!(
        group.order(Name::parse("api.hub.example").unwrap().wire()),
        [0, 1, 2]
    );
}

#[test]
fn edns_is_tried_again_minutes_after_an_upstream_stumbled_over_it() {
    let group = group(UpstreamPolicy::Sequential);
    let member = &group.members[0];
    assert!(member.takes_edns(0));
    member.leave_edns_out(1000);
    assert!(!member.takes_edns(1000 + PLAIN_PAUSE - 1));
    assert!(member.takes_edns(1000 + PLAIN_PAUSE));
}
