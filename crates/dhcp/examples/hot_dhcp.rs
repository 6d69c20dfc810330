//! The hot functions of DHCP, to count their instructions: `hot_dhcp discover|renew COUNT` (see bench/regress.py).

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Duration;

use oooi_dhcp::leases::Leases;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::message::{Message, MessageType};
use oooi_dhcp::options::code;
use oooi_dhcp::respond::{Action, Arrival, View, respond};
use oooi_dhcp::testing::fixture;
use oooi_dhcp::testing::packet::Packet;
use oooi_dhcp::time::Timestamp;

type Failure = Box<dyn std::error::Error>;

const START: Timestamp = Timestamp(1_700_000_000_000);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// What a node's client asks for: mask, router, servers, names, MTU, routes.
const WISHES: [u8; 9] = [1, 3, 6, 12, 15, 26, 28, 119, 121];
const HELD: u16 = 1000;

fn packet(kind: MessageType, client: u16) -> Packet {
    let [high, low] = client.to_be_bytes();
    Packet::new(kind, Mac([2, 0, 0, 0, high, low])).option(code::PARAMETER_LIST, &WISHES)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, count] = arguments.as_slice() else {
        return Err("usage: hot_dhcp discover|renew COUNT".into());
    };
    let config = fixture::config(|spec| {
        spec.network_config.cidr = "10.0.0.0/16".into();
        spec.network_config.gateway = "10.0.0.1".into();
        spec.network_config.server_ip = SERVER.to_string();
        spec.lease_config.range_start = "10.0.1.0".into();
        spec.lease_config.range_end = "10.0.99.255".into();
    });
    let machines = Machines::default();
    let mut leases = Leases::new(&config, vec![], START);
    for client in 0..HELD {
        let address = Ipv4Addr::from(0x0a00_0100 + u32::from(client));
        let request = packet(MessageType::Request, client)
            .requested(address)
            .server(SERVER);
        let bytes = request.build();
        let message = Message::parse(&bytes)?;
        let view = View {
            config: &config,
            leases: &leases,
            machines: &machines,
            now: START,
        };
        match respond(view, &message, Arrival::Broadcast) {
            Action::Grant { lease, .. } => leases.put(lease),
            other => return Err(format!("client {client} got {other:?}").into()),
        }
    }
    let bytes = match what.as_str() {
        "discover" => packet(MessageType::Discover, HELD).build(),
        "renew" => packet(MessageType::Request, 7)
            .ciaddr(Ipv4Addr::new(10, 0, 1, 7))
            .build(),
        _ => return Err(format!("{what} is neither discover nor renew").into()),
    };
    let view = View {
        config: &config,
        leases: &leases,
        machines: &machines,
        now: START.after(Duration::from_secs(1800)),
    };
    for _ in 0..count.parse()? {
        let message = Message::parse(black_box(&bytes))?;
        let action = respond(view, &message, Arrival::Broadcast);
        if matches!(black_box(action), Action::Ignore(_)) {
            return Err("no answer".into());
        }
    }
    Ok(())
}
