//! The server is killed at random moments under load, again and again: no acknowledged lease is lost and no address
//! is given twice. Needs root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use netns::relay::{Relay, client};
use netns::{Home, Lan, serve};
use oooi_dhcp::lease::State;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::testing::packet::{Answer, Packet};

const SPEC: &str = "networkConfig:
  cidr: 10.77.0.0/16
  gateway: 10.77.0.1
  serverIP: 10.77.0.2
leaseConfig:
  rangeStart: 10.77.1.0
  rangeEnd: 10.77.255.254
  leaseTime: 24h
";

const ROUNDS: u32 = 200;
const IN_FLIGHT: u32 = 24;
/// Acknowledgements that are heard in each round before the server dies, at least and at most, and how long a slow disk
/// has for them. All leases are read again in each round: more of them would only cost time.
const AT_STAKE: std::ops::Range<u32> = 3..16;
const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that come without end, and what they were told.
struct Crowd {
    relay: Relay,
    next: u32,
    /// Whom each address was acknowledged to.
    told: HashMap<Ipv4Addr, Mac>,
    acknowledged: u32,
}

impl Crowd {
    fn arrive(&mut self) {
        let [_, a, b, c] = self.next.to_be_bytes();
        self.next += 1;
        self.relay.discover(Mac([2, 7, 7, a, b, c]));
    }

    fn hear(&mut self, answer: &Answer) {
        let (mac, address) = (client(answer), answer.yiaddr());
        match answer.kind() {
            2 => self.relay.select(mac, address),
            5 => {
                self.acknowledged += 1;
                let before = self.told.insert(address, mac);
                assert!(
                    before.is_none_or(|other| other == mac),
                    "{address} was given to {mac} and to {before:?}"
                );
                // Some renew at once, so that later records of an address are at stake too.
                if self.next.is_multiple_of(5) {
                    let renewal = Packet::new(oooi_dhcp::message::MessageType::Request, mac).ciaddr(address);
                    self.relay.send(renewal);
                }
                self.arrive();
            }
            other => panic!("an answer of type {other}"),
        }
    }

    /// Keeps the server busy until so many leases more are acknowledged, and others are on their way.
    fn load(&mut self, leases: u32) {
        self.relay.wait(Some(Duration::from_millis(5)));
        (0..IN_FLIGHT).for_each(|_| self.arrive());
        let (enough, patience) = (self.acknowledged + leases, Instant::now() + PATIENCE);
        while self.acknowledged < enough {
            assert!(Instant::now() < patience, "hardly an answer within {PATIENCE:?}");
            match self.relay.receive() {
                Some(answer) => self.hear(&answer),
                None => self.arrive(),
            }
        }
    }

    /// Hears what left the server before it was killed.
    fn drain(&mut self) {
        self.relay.wait(None);
        while let Some(answer) = self.relay.receive() {
            self.hear(&answer);
        }
    }
}

#[test]
fn two_hundred_kills_lose_no_acknowledged_lease_and_give_none_twice() {
    let (mut lan, home) = (Lan::new("10.77.0.2/16"), Home::new(SPEC));
    let station = lan.attach();
    station.run("ip addr add 10.77.0.9/16 dev eth0");
    let relay = station.enter(|| Relay::new(Ipv4Addr::new(10, 77, 0, 9), Ipv4Addr::new(10, 77, 0, 2)));
    let mut crowd = Crowd {
        relay,
        next: 1,
        told: HashMap::new(),
        acknowledged: 0,
    };
    let mut random = 0x2545_f491_u64;
    for round in 1..=ROUNDS {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let server = serve(&lan, &home.spec(), &home.state());
        let span = u64::from(AT_STAKE.end - AT_STAKE.start);
        crowd.load(AT_STAKE.start + u32::try_from((random >> 33) % span).unwrap());
        server.kill();
        crowd.drain();
        let stored: HashMap<Ipv4Addr, Mac> = home
            .leases()
            .into_iter()
            .filter(|lease| lease.state == State::Bound)
            .map(|lease| (lease.address, lease.mac))
            .collect();
        for (address, mac) in &crowd.told {
            assert_eq!(
                stored.get(address),
                Some(mac),
                "round {round}: {address} was acknowledged and is lost"
            );
        }
    }
    println!("{} leases survived {ROUNDS} kills", crowd.told.len());
}
