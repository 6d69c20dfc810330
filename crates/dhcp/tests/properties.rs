//! No address belongs to two clients at once: not under any order of messages, restarts, failed writes and clock
//! jumps.
//!
//! The server is played without its shell: decisions, a table, and a store that survives restarts. Beside it runs
//! the truth, in real time: which client was told that it has which address, and until when.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use oooi_dhcp::config::Config;
use oooi_dhcp::lease::{Lease, State};
use oooi_dhcp::leases::Leases;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::machines::{Machine, Machines};
use oooi_dhcp::message::{Message, MessageType};
use oooi_dhcp::reply::Reply;
use oooi_dhcp::respond::{self, Action, Arrival, View, respond};
use oooi_dhcp::testing::fixture::{self, SERVER};
use oooi_dhcp::testing::packet::Packet;
use oooi_dhcp::time::Timestamp;
use proptest::prelude::*;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Discover {
        client: u8,
        rapid: bool,
    },
    /// The client takes what it was offered last, or an address that it made up.
    Select {
        client: u8,
        made_up: Option<u8>,
    },
    Reboot {
        client: u8,
        address: u8,
    },
    Renew {
        client: u8,
        address: u8,
    },
    Release {
        client: u8,
        address: u8,
    },
    Decline {
        client: u8,
        address: u8,
    },
    Wait {
        seconds: u16,
    },
    /// Another run begins. Between the two the wall clock steps, which a running server would not follow.
    Restart {
        jump: i32,
    },
    /// The next write fails.
    DiskFull,
}

fn step() -> impl Strategy<Value = Step> {
    let client = 0..6_u8;
    let address = 8..16_u8; // the pool and a little around it
    // Around the time of a lease, where it matters most, and far beyond.
    let jump = prop_oneof![Just(0), 1..70_i32, -9000..9000_i32];
    let seconds = prop_oneof![0..20_u16, 0..200_u16];
    prop_oneof![
        6 => (client.clone(), any::<bool>()).prop_map(|(client, rapid)| Step::Discover { client, rapid }),
        6 => (client.clone(), proptest::option::weighted(0.2, address.clone()))
            .prop_map(|(client, made_up)| Step::Select { client, made_up }),
        2 => (client.clone(), address.clone()).prop_map(|(client, address)| Step::Reboot { client, address }),
        2 => (client.clone(), address.clone()).prop_map(|(client, address)| Step::Renew { client, address }),
        1 => (client.clone(), address.clone()).prop_map(|(client, address)| Step::Release { client, address }),
        1 => (client, address).prop_map(|(client, address)| Step::Decline { client, address }),
        4 => seconds.prop_map(|seconds| Step::Wait { seconds }),
        3 => jump.prop_map(|jump| Step::Restart { jump }),
        1 => Just(Step::DiskFull),
    ]
}

struct World {
    config: Config,
    machines: Machines,
    leases: Leases,
    stored: HashMap<Ipv4Addr, Lease>,
    /// Real time since the beginning.
    real: Duration,
    /// How far the wall clock is off, in seconds.
    skew: i64,
    /// The server's clock when it started, and the real time then.
    started: (Timestamp, Duration),
    disk_full: bool,
    offered: HashMap<u8, Ipv4Addr>,
    /// Who was told to have an address, and until when, in real time.
    truth: HashMap<Ipv4Addr, (u8, Duration)>,
}

const BEGIN: u64 = 1_700_000_000_000;

impl World {
    fn new(probe: bool) -> Self {
        let config = fixture::config(|spec| {
            spec.lease_config.range_end = "192.168.100.13".into();
            spec.lease_config.lease_time = "60s".into();
            spec.lease_config.conflict_probe = Some(probe);
        });
        // Client 5 is a known machine, and clients 4 and 5 were cloned with one identifier.
        let machine = Machine {
            name: "worker".into(),
            address: None,
        };
        let now = Timestamp(BEGIN);
        World {
            leases: Leases::new(&config, vec![], now),
            machines: Machines::complete([(mac(5), machine)]),
            config,
            stored: HashMap::new(),
            real: Duration::ZERO,
            skew: 0,
            started: (now, Duration::ZERO),
            disk_full: false,
            offered: HashMap::new(),
            truth: HashMap::new(),
        }
    }

    fn now(&self) -> Timestamp {
        self.started.0.after(self.real - self.started.1)
    }

    fn restart(&mut self) {
        let wall = Timestamp((BEGIN as i64 + self.real.as_millis() as i64 + self.skew * 1000).max(0) as u64);
        let newest = self
            .stored
            .values()
            .map(|lease| lease.since)
            .max()
            .unwrap_or_default();
        self.started = (wall.max(newest), self.real);
        self.leases = Leases::new(&self.config, self.stored.values().cloned().collect(), self.now());
        if self.leases.doubt_time_since(newest, self.now()) {
            self.commit(None);
        }
    }

    /// Whether the lease was stored.
    fn store(&mut self, lease: Lease) -> bool {
        self.commit(Some(lease))
    }

    fn commit(&mut self, lease: Option<Lease>) -> bool {
        if std::mem::take(&mut self.disk_full) {
            return false;
        }
        for lease in self.leases.owed(self.now()).into_iter().chain(lease) {
            self.stored.insert(lease.address, lease.clone());
            self.leases.put(lease);
        }
        self.leases.settled();
        true
    }

    fn send(&mut self, client: u8, packet: &Packet) {
        let packet = packet.clone().build();
        let message = Message::parse(&packet).unwrap();
        let view = View {
            config: &self.config,
            leases: &self.leases,
            machines: &self.machines,
            now: self.now(),
        };
        match respond(view, &message, Arrival::Broadcast) {
            Action::Probe { hold } => {
                // The network answers a probe as things are in truth.
                let holder = self
                    .truth
                    .get(&hold.address)
                    .filter(|(_, until)| *until > self.real);
                match holder {
                    Some((holder, _)) if *holder != client => {
                        let conflict =
                            respond::conflict(hold.address, mac(*holder), &self.config, self.now());
                        self.leases.put(conflict.clone());
                        self.store(conflict);
                    }
                    _ => self.leases.put(Lease {
                        state: State::Offered,
                        ..hold
                    }),
                }
                self.send(client, &Packet::from(packet));
            }
            Action::Offer { hold, reply } => {
                if let Some(hold) = hold {
                    self.leases.put(hold);
                }
                self.offered.insert(client, reply.yiaddr);
            }
            Action::Grant { lease, reply } => {
                if self.store(lease) {
                    self.told(client, &reply);
                }
            }
            Action::Confirm { reply } => self.told(client, &reply),
            Action::Release { lease } | Action::Quarantine { lease } => drop(self.store(lease)),
            Action::Refuse { .. } => self.truth.retain(|address, (holder, _)| {
                // A client that is refused stops using the address that it asked for.
                *holder != client || Some(*address) != message.requested && *address != message.ciaddr
            }),
            Action::Ignore(_) => {}
        }
    }

    fn told(&mut self, client: u8, reply: &Reply) {
        let until = self.real + Duration::from_secs(reply.times.unwrap().lease.into());
        let before = self.truth.insert(reply.yiaddr, (client, until));
        if let Some((other, until)) = before {
            assert!(
                other == client || until <= self.real,
                "{} was given to client {client} while client {other} had it",
                reply.yiaddr
            );
        }
        let last = reply.yiaddr.octets()[3];
        assert!((10..=13).contains(&last), "{} is not in the pool", reply.yiaddr);
    }

    fn step(&mut self, step: &Step) {
        let packet = |kind, client: u8| {
            let packet = Packet::new(kind, mac(client));
            if client >= 4 {
                packet.client_id(b"\xffclone")
            } else {
                packet
            }
        };
        match *step {
            Step::Discover { client, rapid } => {
                let discover = packet(MessageType::Discover, client);
                self.send(client, &if rapid { discover.option(80, &[]) } else { discover });
            }
            Step::Select { client, made_up } => {
                let address = made_up.map(ip).or(self.offered.remove(&client));
                if let Some(address) = address {
                    self.send(
                        client,
                        &packet(MessageType::Request, client)
                            .server(SERVER)
                            .requested(address),
                    );
                }
            }
            Step::Reboot { client, address } => {
                self.send(
                    client,
                    &packet(MessageType::Request, client).requested(ip(address)),
                );
            }
            Step::Renew { client, address } => {
                self.send(client, &packet(MessageType::Request, client).ciaddr(ip(address)));
            }
            Step::Release { client, address } => {
                if self
                    .truth
                    .get(&ip(address))
                    .is_some_and(|(holder, _)| *holder == client)
                {
                    self.truth.remove(&ip(address));
                }
                self.send(client, &packet(MessageType::Release, client).ciaddr(ip(address)));
            }
            Step::Decline { client, address } => {
                if self
                    .truth
                    .get(&ip(address))
                    .is_some_and(|(holder, _)| *holder == client)
                {
                    self.truth.remove(&ip(address));
                }
                self.send(
                    client,
                    &packet(MessageType::Decline, client)
                        .server(SERVER)
                        .requested(ip(address)),
                );
            }
            Step::Wait { seconds } => self.real += Duration::from_secs(seconds.into()),
            Step::Restart { jump } => {
                self.skew += i64::from(jump);
                self.restart();
            }
            Step::DiskFull => self.disk_full = true,
        }
    }
}

fn mac(client: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, client])
}

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, last)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_given_twice_whatever_happens(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new(true);
        steps.iter().for_each(|step| world.step(step));
    }

    #[test]
    fn no_address_is_given_twice_without_probes_either(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new(false);
        steps.iter().for_each(|step| world.step(step));
    }
}
