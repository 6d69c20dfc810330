//! Any bytes as a client's message: read, decided, answered, and the answer read back.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use oooi_dhcp::config::Config;
use oooi_dhcp::leases::Leases;
use oooi_dhcp::machines::Machines;
use oooi_dhcp::message::Message;
use oooi_dhcp::respond::{Action, Arrival, View, respond};
use oooi_dhcp::testing::fixture;
use oooi_dhcp::testing::packet::Answer;
use oooi_dhcp::time::Timestamp;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    fixture::config(|spec| {
        spec.network_config.search_domains = vec!["cluster.example.com".into(); 8];
        spec.network_config.mtu = Some(1400);
    })
});

fuzz_target!(|packet: &[u8]| {
    let Ok(message) = Message::parse(packet) else { return };
    let (machines, mut leases, now) = (Machines::default(), Leases::default(), Timestamp(1_700_000_000_000));
    for _ in 0..2 {
        let view = View { config: &CONFIG, leases: &leases, machines: &machines, now };
        let (lease, reply) = match respond(view, &message, Arrival::Broadcast) {
            Action::Probe { hold } => (Some(hold), None),
            Action::Offer { hold, reply } => (hold, Some(reply)),
            Action::Grant { lease, reply } => (Some(lease), Some(reply)),
            Action::Confirm { reply } | Action::Refuse { reply } => (None, Some(reply)),
            Action::Release { lease } | Action::Quarantine { lease } => (Some(lease), None),
            Action::Ignore(_) => (None, None),
        };
        if let Some(reply) = reply {
            let mut bytes = Vec::new();
            reply.encode(&CONFIG, &message, &mut bytes);
            assert!((300..=1472).contains(&bytes.len()), "{} bytes", bytes.len());
            assert_eq!(Answer { bytes }.kind(), reply.kind as u8);
        }
        if let Some(lease) = lease {
            leases.put(lease);
        }
    }
});
