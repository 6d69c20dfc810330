//! The wall clock is set a day forward and back, while the server runs and between two runs: no acknowledged lease is
//! lost and no address is given twice. Needs root and a C compiler.
//!
//! A process cannot have a wall clock of its own, and the host's is not ours to set: so the server, which is linked
//! dynamically here, gets another `clock_gettime` before the system's. The clock that counts real seconds stays.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use netns::relay::{Relay, client};
use netns::{Home, Lan, Process, serve_with};
use oooi_dhcp::lease::State;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::message::MessageType;
use oooi_dhcp::testing::packet::{Answer, Packet};
use oooi_dhcp::time::Timestamp;

/// Ten addresses, for an hour each: all of them are over on the next day.
const SPEC: &str = "networkConfig:
  cidr: 10.78.0.0/16
  gateway: 10.78.0.1
  serverIP: 10.78.0.2
leaseConfig:
  rangeStart: 10.78.1.0
  rangeEnd: 10.78.1.9
  leaseTime: 1h
";
const ADDRESSES: u8 = 10;
const DAY: i64 = 24 * 3600;

/// The wall clock that the server sees.
struct WallClock {
    shim: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    fn new(home: &Home) -> Self {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/wall_clock.c");
        let [shim, offset] = ["wall_clock.so", "offset"].map(|name| home.path().join(name));
        let mut compile = Command::new("cc");
        let built = compile
            .args(["-shared", "-fPIC", "-o"])
            .arg(&shim)
            .arg(source)
            .status()
            .expect("a C compiler");
        assert!(built.success());
        let clock = WallClock { shim, offset };
        clock.set(0);
        clock
    }

    /// Sets it so many seconds ahead of the real one, in one step.
    fn set(&self, seconds: i64) {
        let partial = self.offset.with_extension("partial");
        std::fs::write(&partial, seconds.to_string()).unwrap();
        std::fs::rename(partial, &self.offset).unwrap();
    }

    fn serve(&self, lan: &Lan, home: &Home) -> Process {
        let variables = [("LD_PRELOAD", self.shim.as_path()), ("WALL_CLOCK", &self.offset)];
        serve_with(lan, &home.spec(), &home.state(), &variables)
    }
}

/// Those who have an address, and a stranger who wants one.
struct Clients {
    relay: Relay,
    holders: HashMap<Mac, Ipv4Addr>,
}

impl Clients {
    fn answer(&self, packet: impl Fn() -> Packet) -> Option<Answer> {
        let mac: [u8; 6] = packet().build()[28..34].try_into().unwrap();
        // A server that starts may not hear the first one, and what is late for another client is not for this one.
        (0..3).find_map(|_| {
            self.relay.send(packet());
            std::iter::from_fn(|| self.relay.receive()).find(|answer| client(answer) == Mac(mac))
        })
    }

    fn arrive(&mut self, mac: Mac) {
        let offer = self
            .answer(|| Packet::new(MessageType::Discover, mac))
            .expect("an offer");
        self.relay.select(mac, offer.yiaddr());
        let answer = self.relay.expect("an answer");
        assert_eq!(answer.kind(), 5, "the offer is acknowledged");
        let other = self.holders.values().find(|address| **address == answer.yiaddr());
        assert_eq!(other, None, "given twice");
        self.holders.insert(mac, answer.yiaddr());
    }

    /// Everybody keeps what they have, and there is nothing for a stranger, who asks first.
    fn check(&self, home: &Home, when: &str) {
        let offered = self.answer(|| Packet::new(MessageType::Discover, Mac([2, 7, 8, 1, 1, 1])));
        let offered = offered.map(|answer| answer.yiaddr());
        assert_eq!(
            offered, None,
            "{when}: a stranger is offered an address that has its holder"
        );
        for (mac, address) in &self.holders {
            let renewed = self
                .answer(|| Packet::new(MessageType::Request, *mac).ciaddr(*address))
                .map(|answer| (answer.kind(), answer.yiaddr()));
            assert_eq!(renewed, Some((5, *address)), "{when}: the renewal of {mac}");
            let stored = home.lease(*address).unwrap();
            assert_eq!(
                (stored.mac, stored.state),
                (*mac, State::Bound),
                "{when}: {address}"
            );
        }
    }
}

#[test]
fn a_wall_clock_that_jumps_a_day_takes_no_lease_and_gives_none_twice() {
    let (mut lan, home) = (Lan::new("10.78.0.2/16"), Home::new(SPEC));
    let clock = WallClock::new(&home);
    let station = lan.attach();
    station.run("ip addr add 10.78.0.9/16 dev eth0");
    let relay = station.enter(|| Relay::new(Ipv4Addr::new(10, 78, 0, 9), Ipv4Addr::new(10, 78, 0, 2)));
    relay.wait(Some(Duration::from_secs(1)));
    let mut clients = Clients {
        relay,
        holders: HashMap::new(),
    };
    let mut server = clock.serve(&lan, &home);
    (0..ADDRESSES).for_each(|number| clients.arrive(Mac([2, 7, 8, 0, 0, number])));
    for offset in [DAY, -DAY, 0] {
        clock.set(offset);
        clients.check(&home, &format!("{offset} s ahead, while it runs"));
    }
    for offset in [DAY, -DAY, 0] {
        server.kill();
        clock.set(offset);
        server = clock.serve(&lan, &home);
        clients.check(&home, &format!("{offset} s ahead, after a start"));
        if offset == DAY {
            let since = home
                .lease(clients.holders[&Mac([2, 7, 8, 0, 0, 0])])
                .unwrap()
                .since;
            let ahead = since.since(Timestamp::wall());
            assert!(
                ahead > Duration::from_secs(23 * 3600),
                "the clock did not jump: {ahead:?}"
            );
        }
    }
}
