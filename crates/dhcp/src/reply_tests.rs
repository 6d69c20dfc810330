use super::*;
use crate::testing::fixture;
use crate::testing::packet::{Answer, Packet};
use oooi_api::dhcp_server::{DhcpOption, DhcpServerSpec, StaticRoute};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const YOURS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 10);

fn ack() -> Reply {
    Reply {
        kind: MessageType::Ack,
        yiaddr: YOURS,
        times: Some(Times::new(Duration::from_secs(3600), MAC, [0; 4])),
        host_name: Some("worker-1".into()),
        message: None,
        rapid: false,
        to: Destination::Broadcast,
    }
}

fn encode(more: impl FnOnce(&mut DhcpServerSpec), reply: &Reply, request: &[u8]) -> (Answer, Vec<u8>) {
    let mut bytes = vec![1, 2, 3];
    let left_out = reply.encode(
        &fixture::config(more),
        &Message::parse(request).unwrap(),
        &mut bytes,
    );
    (Answer { bytes }, left_out)
}

fn option(code: i32, value: &str) -> DhcpOption {
    DhcpOption {
        code,
        value: value.into(),
        format: None,
    }
}

#[test]
fn an_answer_has_what_every_client_needs_whatever_it_asks_for() {
    let request = Packet::new(MessageType::Request, MAC)
        .option(code::PARAMETER_LIST, &[6])
        .build();
    let (answer, left_out) = encode(|_| {}, &ack(), &request);
    assert_eq!(answer.codes(), [53, 54, 51, 58, 59, 1, 6]);
    assert_eq!(answer.bytes.len(), 300);
    assert_eq!(
        (answer.bytes[0], &answer.bytes[4..8], answer.yiaddr()),
        (2, &MAC.0[2..], YOURS)
    );
    assert_eq!(answer.option(1).unwrap(), [255, 255, 255, 0]);
    assert_eq!(answer.option(51).unwrap(), 3600_u32.to_be_bytes());
    assert!(left_out.is_empty());
}

#[test]
fn options_come_in_the_order_that_the_client_wants_each_once() {
    let request = Packet::new(MessageType::Request, MAC)
        .option(code::PARAMETER_LIST, &[12, 3, 99, 12, 1, 6])
        .build();
    let (answer, _) = encode(|_| {}, &ack(), &request);
    assert_eq!(answer.codes(), [53, 54, 51, 58, 59, 1, 12, 3, 6]);
    assert_eq!(answer.option(12).unwrap(), b"worker-1");
}

#[test]
fn a_client_that_names_no_options_gets_all() {
    let (answer, _) = encode(
        |spec| {
            spec.options = vec![
                option(43, "0x0102"),
                option(66, "192.168.100.5"),
                option(67, "boot.efi"),
            ];
        },
        &ack(),
        &Packet::new(MessageType::Request, MAC).build(),
    );
    assert_eq!(answer.codes(), [53, 54, 51, 58, 59, 1, 3, 6, 12, 28, 43, 66, 67]);
    // Boot loaders that know no options read the header.
    assert_eq!(&answer.bytes[20..24], [192, 168, 100, 5]);
    assert_eq!(&answer.bytes[108..117], b"boot.efi\0");
}

#[test]
fn identifier_and_relay_information_are_repeated_and_the_relay_comes_last() {
    let request = Packet::new(MessageType::Request, MAC)
        .giaddr(Ipv4Addr::new(192, 168, 100, 9))
        .option(code::RELAY_AGENT, &[1, 2, 0, 7])
        .client_id(&[0, 1, 2])
        .option(code::PARAMETER_LIST, &[3])
        .build();
    let (answer, _) = encode(|_| {}, &ack(), &request);
    assert_eq!(answer.codes(), [53, 54, 51, 58, 59, 61, 1, 3, 82]);
    assert_eq!(answer.option(82).unwrap(), [1, 2, 0, 7]);
    assert_eq!(answer.option(61).unwrap(), [0, 1, 2]);
}

#[test]
fn a_nak_tells_nothing_but_its_reason_and_is_broadcast_by_relays() {
    let reply = Reply {
        kind: MessageType::Nak,
        yiaddr: Ipv4Addr::UNSPECIFIED,
        times: None,
        message: Some("no"),
        ..ack()
    };
    let request = Packet::new(MessageType::Request, MAC)
        .giaddr(Ipv4Addr::new(192, 168, 100, 9))
        .ciaddr(YOURS)
        .build();
    let (answer, _) = encode(|_| {}, &reply, &request);
    assert_eq!(answer.codes(), [53, 54, 56]);
    assert_eq!(answer.bytes[10], 0x80);
    assert_eq!(answer.bytes[12..24], [0; 12]);
}

#[test]
fn a_route_brings_the_default_route_with_it() {
    let route = StaticRoute {
        destination: "10.20.0.0/14".into(),
        gateway: "192.168.100.7".into(),
    };
    let request = Packet::new(MessageType::Request, MAC)
        .option(code::PARAMETER_LIST, &[121, 3])
        .build();
    let (answer, _) = encode(|spec| spec.network_config.routes = vec![route], &ack(), &request);
    assert_eq!(
        answer.option(121).unwrap(),
        [14, 10, 20, 192, 168, 100, 7, 0, 192, 168, 100, 1]
    );
    assert_eq!(answer.option(3).unwrap(), [192, 168, 100, 1]);
}

#[test]
fn a_long_option_is_split_where_the_client_takes_it_and_left_out_where_not() {
    let long = "x".repeat(700);
    let wants = |size: u16| {
        let packet = Packet::new(MessageType::Request, MAC).option(code::PARAMETER_LIST, &[224, 6]);
        packet.option(code::MAX_MESSAGE_SIZE, &size.to_be_bytes()).build()
    };
    let (answer, left_out) = encode(
        |spec| spec.options = vec![option(224, &long)],
        &ack(),
        &wants(1500),
    );
    assert_eq!(answer.option(224).unwrap(), long.as_bytes());
    assert!(left_out.is_empty() && answer.bytes.len() <= 1472);
    let (answer, left_out) = encode(|spec| spec.options = vec![option(224, &long)], &ack(), &wants(0));
    assert_eq!((answer.option(224), left_out.as_slice()), (None, &[224][..]));
    assert!(answer.option(6).is_some() && answer.bytes.len() <= 548);
}

#[test]
fn what_does_not_fit_into_the_options_goes_to_the_other_fields() {
    let values: Vec<DhcpOption> = (0..6).map(|at| option(224 + at, &"y".repeat(50))).collect();
    let request = Packet::new(MessageType::Request, MAC)
        .giaddr(Ipv4Addr::new(192, 168, 100, 9))
        .option(code::RELAY_AGENT, &[7; 40])
        .option(code::PARAMETER_LIST, &[224, 225, 226, 227, 228, 229])
        .build();
    let (answer, left_out) = encode(|spec| spec.options = values, &ack(), &request);
    assert!(answer.bytes.len() <= 548, "{}", answer.bytes.len());
    assert!(left_out.is_empty(), "{left_out:?}");
    for code in 224..230 {
        assert_eq!(answer.option(code).unwrap().len(), 50, "{code}");
    }
    assert_eq!(answer.option(82).unwrap(), [7; 40]);
}

#[test]
fn clients_renew_at_different_times_within_the_bounds() {
    let times: Vec<Times> = (0..200)
        .map(|n| Times::new(Duration::from_secs(3600), Mac([2, 0, 0, 0, 0, n]), [n; 4]))
        .collect();
    for Times { lease, renew, rebind } in &times {
        assert!(*lease == 3600 && (1620..=1800).contains(renew) && (2970..=3150).contains(rebind));
    }
    let distinct: std::collections::BTreeSet<u32> = times.iter().map(|times| times.renew).collect();
    assert!(distinct.len() > 50, "{}", distinct.len());
    let short = Times::new(Duration::from_secs(1), MAC, [0; 4]);
    assert!(short.renew <= short.rebind && short.rebind <= short.lease);
}

#[test]
fn no_answer_is_longer_than_its_client_takes_whatever_it_must_repeat() {
    for relay in [0, 100, 255, 256, 290, 600, 1400] {
        for id in [2, 100, 255] {
            for size in [0_u16, 576, 1000, 65535] {
                let request = Packet::new(MessageType::Request, MAC)
                    .giaddr(Ipv4Addr::new(192, 168, 100, 9))
                    .client_id(&vec![3; id])
                    .option(code::RELAY_AGENT, &vec![7; relay])
                    .option(code::MAX_MESSAGE_SIZE, &size.to_be_bytes())
                    .build();
                let (answer, left_out) = encode(|_| {}, &ack(), &request);
                let longest = usize::from(size.clamp(576, 1500)) - 28;
                assert!(
                    answer.bytes.len() <= longest,
                    "{relay} {id} {size}: {}",
                    answer.bytes.len()
                );
                let repeated = answer.option(code::RELAY_AGENT).map(|value| value.len());
                assert_eq!(
                    repeated.is_none(),
                    left_out.contains(&code::RELAY_AGENT),
                    "{relay} {id} {size}"
                );
                assert!(repeated.is_none_or(|length| length == relay) && answer.kind() == 5);
            }
        }
    }
}
