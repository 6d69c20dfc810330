//! Packets that real clients sent, and every prefix and every corruption of them.
//!
//! Each file in `captured/` has one packet a line: a DISCOVER and a REQUEST of one client.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::net::Ipv4Addr;

use oooi_dhcp::leases::Leases;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::message::{Malformed, Message, MessageType};
use oooi_dhcp::respond::{Action, Arrival, View, respond};
use oooi_dhcp::testing::fixture;
use oooi_dhcp::time::Timestamp;
use proptest::prelude::*;

const CAPTURES: [&str; 3] = [
    include_str!("captured/dhclient.hex"),
    include_str!("captured/udhcpc.hex"),
    include_str!("captured/dhcpcd.hex"),
];

fn packets() -> Vec<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let packet = |line: &str| line.as_bytes().chunks(2).map(byte).collect();
    CAPTURES
        .iter()
        .flat_map(|capture| capture.lines())
        .map(packet)
        .collect()
}

#[test]
fn every_captured_packet_is_understood() {
    let packets = packets();
    assert_eq!(packets.len(), 6);
    for (at, packet) in packets.iter().enumerate() {
        let message = Message::parse(packet).unwrap();
        let discover = at % 2 == 0;
        assert_eq!(
            message.kind,
            if discover {
                MessageType::Discover
            } else {
                MessageType::Request
            },
            "packet {at}"
        );
        assert_eq!(message.mac.to_string(), "02:00:00:00:00:01");
        let server = (!discover).then_some(Ipv4Addr::new(10, 77, 0, 2));
        assert_eq!(
            (message.server, message.requested.is_some()),
            (server, !discover),
            "packet {at}"
        );
        assert!(
            message
                .options
                .parameter_list
                .is_some_and(|list| list.contains(&1)),
            "packet {at}"
        );
    }
}

#[test]
fn every_prefix_of_a_captured_packet_is_refused_or_read_alike() {
    for packet in packets() {
        let whole = Message::parse(&packet).unwrap();
        for length in 0..packet.len() {
            match Message::parse(&packet[..length]) {
                Ok(message) => assert_eq!(
                    (message.kind, message.mac, message.xid),
                    (whole.kind, whole.mac, whole.xid)
                ),
                Err(Malformed::Truncated | Malformed::Option(_) | Malformed::NoType) => {}
                Err(other) => panic!("{length} bytes: {other}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_corrupted_packet_does_no_harm(
        which in 0..6_usize,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
        tail in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut packet = packets()[which].clone();
        packet.extend(tail);
        for (at, value) in changes {
            let at = at.index(packet.len());
            packet[at] = value;
        }
        if let Ok(message) = Message::parse(&packet) {
            let config = fixture::config(|spec| spec.network_config.mtu = Some(1400));
            let (leases, machines) = (Leases::default(), Machines::default());
            let view = View { config: &config, leases: &leases, machines: &machines, now: Timestamp(1) };
            if let Action::Offer { reply, .. } | Action::Grant { reply, .. } | Action::Refuse { reply } =
                respond(view, &message, Arrival::Broadcast)
            {
                let mut answer = Vec::new();
                reply.encode(&config, &message, &mut answer);
                prop_assert!((300..=1472).contains(&answer.len()));
                prop_assert_eq!(&answer[4..8], &packet[4..8]);
            }
        }
    }
}
