use super::*;
use crate::testing::packet::Packet;

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn full() -> Vec<u8> {
    Packet::new(MessageType::Request, MAC)
        .secs(7)
        .broadcast()
        .ciaddr(Ipv4Addr::new(10, 0, 0, 9))
        .giaddr(Ipv4Addr::new(10, 0, 0, 1))
        .requested(Ipv4Addr::new(10, 0, 0, 9))
        .server(Ipv4Addr::new(10, 0, 0, 2))
        .client_id(&[1, 2, 0, 0, 0, 0, 1])
        .option(code::HOST_NAME, b"worker-1")
        .option(code::PARAMETER_LIST, &[1, 3, 6, 121])
        .option(code::RELAY_AGENT, &[1, 2, 0, 7])
        .build()
}

#[test]
fn a_message_is_read_field_by_field() {
    let packet = full();
    let message = Message::parse(&packet).unwrap();
    assert_eq!(message.kind, MessageType::Request);
    assert_eq!((message.secs, message.mac), (7, MAC));
    assert!(message.wants_broadcast() && message.is_relayed());
    assert_eq!(message.ciaddr, Ipv4Addr::new(10, 0, 0, 9));
    assert_eq!(message.requested, Some(Ipv4Addr::new(10, 0, 0, 9)));
    assert_eq!(message.server, Some(Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(message.host_name(), Some("worker-1"));
}

#[test]
fn who_sent_a_packet_that_is_no_message_is_read_as_far_as_it_goes() {
    let packet = full();
    let read = |length| (xid(&packet[..length]), mac(&packet[..length]));
    let sent = Message::parse(&packet).unwrap().xid;
    assert_eq!(read(7), (None, None));
    assert_eq!(read(33), (Some(sent), None));
    assert_eq!(read(34), (Some(sent), Some(MAC)));
    let mut token_ring = packet.clone();
    token_ring[1] = 6;
    assert_eq!(mac(&token_ring), None);
}

#[test]
fn every_prefix_of_a_message_is_refused_or_read_without_harm() {
    let packet = full();
    for length in 0..packet.len() {
        match Message::parse(&packet[..length]) {
            Ok(message) => assert_eq!(message.kind, MessageType::Request, "{length}"),
            Err(Malformed::Truncated) => assert!(length < HEADER + 4, "{length}"),
            Err(Malformed::Option(_) | Malformed::NoType) => assert!(length >= HEADER + 4, "{length}"),
            Err(other) => panic!("{length}: {other}"),
        }
    }
}

#[test]
fn every_single_byte_can_be_anything() {
    let packet = full();
    for at in 0..packet.len() {
        for value in [0, 1, 52, 53, 127, 128, 254, 255] {
            let mut changed = packet.clone();
            changed[at] = value;
            // Whatever comes out, reading on must be safe.
            if let Ok(message) = Message::parse(&changed) {
                let _ = (message.identity(), message.host_name());
            }
        }
    }
}

#[test]
fn what_is_no_request_of_an_ethernet_client_is_refused_by_reason() {
    let discover = || Packet::new(MessageType::Discover, MAC);
    let cases = [
        (discover().at(0, &[2]), Malformed::NotARequest(2)),
        (discover().at(1, &[32]), Malformed::Hardware),
        (discover().at(2, &[17]), Malformed::Hardware),
        (discover().at(28, &[0xff; 6]), Malformed::Hardware),
        (discover().at(28, &[0; 6]), Malformed::Hardware),
        (discover().at(3, &[17]), Malformed::Hops(17)),
        (discover().at(236, &[0]), Malformed::Cookie),
        (Packet::new(MessageType::Offer, MAC), Malformed::Type(2)),
        (discover().at(242, &[99]), Malformed::Type(99)),
        (
            discover().option(code::MESSAGE_TYPE, &[3]),
            Malformed::Option(code::MESSAGE_TYPE),
        ),
        (
            discover().option(code::REQUESTED_ADDRESS, &[1, 2, 3]),
            Malformed::Option(code::REQUESTED_ADDRESS),
        ),
        (discover().client_id(&[1]), Malformed::ClientId(1)),
        (discover().client_id(&[1; 300]), Malformed::ClientId(300)),
    ];
    for (packet, expected) in cases {
        assert_eq!(Message::parse(&packet.build()).unwrap_err(), expected);
    }
}

#[test]
fn a_client_without_identifier_is_named_by_its_hardware() {
    let with = Packet::new(MessageType::Discover, MAC)
        .client_id(&[1, 2, 0, 0, 0, 0, 1])
        .build();
    let without = Packet::new(MessageType::Discover, MAC).build();
    assert_eq!(
        Message::parse(&with).unwrap().identity(),
        Message::parse(&without).unwrap().identity()
    );
}

#[test]
fn a_host_name_that_could_harm_a_terminal_or_a_zone_is_dropped() {
    let name = |option: u8, value: &[u8]| {
        let packet = Packet::new(MessageType::Discover, MAC)
            .option(option, value)
            .build();
        Message::parse(&packet).unwrap().host_name().map(str::to_owned)
    };
    assert_eq!(
        name(code::HOST_NAME, b"node.example\0").as_deref(),
        Some("node.example")
    );
    assert_eq!(
        name(code::FQDN, b"\0\0\0node.example").as_deref(),
        Some("node.example")
    );
    for bad in [
        &b""[..],
        b"\x1b[2J",
        b"a b",
        b"a\0b",
        "näh".as_bytes(),
        &[b'a'; 254],
    ] {
        assert_eq!(name(code::HOST_NAME, bad), None, "{bad:?}");
    }
}
