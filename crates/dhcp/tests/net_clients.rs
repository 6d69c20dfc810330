//! Real clients in network namespaces: dhclient, udhcpc and dhcpcd get, renew, rebind, release and decline.
//!
//! Needs root and the Debian packages isc-dhcp-client, udhcpc, dhcpcd-base and isc-dhcp-relay. Nothing is skipped:
//! without them the tests fail and say so.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod netns;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use netns::relay::Relay;
use netns::{Home, Lan, Namespace, Process, await_that, read, serve};
use oooi_dhcp::lease::State;
use oooi_dhcp::mac::Mac;
use oooi_dhcp::message::MessageType;
use oooi_dhcp::testing::packet::Packet;

const SPEC: &str = "networkConfig:
  cidr: 192.168.100.0/24
  gateway: 192.168.100.1
  serverIP: 192.168.100.2
  dnsServers: [192.168.100.3, 192.168.100.4]
  mtu: 1400
  searchDomains: [lab.example.com]
  routes: [{destination: 10.20.0.0/16, gateway: 192.168.100.7}]
leaseConfig:
  rangeStart: 192.168.100.10
  rangeEnd: 192.168.100.20
  leaseTime: 1h
";

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, last)
}

fn with(more: &str) -> String {
    format!("{SPEC}{more}")
}

#[derive(Clone, Copy, Debug)]
enum Program {
    Dhclient,
    Udhcpc,
    Dhcpcd,
}

/// Does the same with each program at once, each on a link of its own.
fn with_each(body: impl Fn(Program) + Sync) {
    std::thread::scope(|scope| {
        for program in [Program::Dhclient, Program::Udhcpc, Program::Dhcpcd] {
            let body = &body;
            scope.spawn(move || body(program));
        }
    });
}

/// What a client tells its script: one line an event, `reason address gateway resolvers`.
const SCRIPT: &str = r#"#!/bin/sh
case "$1" in
  bound|renew|deconfig|nak|leasefail) reason=$1; new_ip_address=$ip; new_routers=$router; new_domain_name_servers=$dns ;;
esac
case "$reason" in
  BOUND|RENEW|REBIND|REBOOT|bound|renew)
    if [ -e "HOME/decline" ]; then rm "HOME/decline"; echo "declined $new_ip_address" >> "HOME/events"; exit 1; fi
    ip addr replace "$new_ip_address/24" dev "$interface" ;;
  EXPIRE|deconfig) ip addr flush dev "$interface" ;;
esac
echo "$reason $new_ip_address $new_routers $new_domain_name_servers" >> "HOME/events"
"#;

/// A real client on a station.
struct Client {
    home: tempfile::TempDir,
    process: Process,
    program: Program,
}

impl Client {
    fn start(program: Program, station: &Namespace) -> Self {
        Self::prepared(program, station, |_| {})
    }

    fn prepared(program: Program, station: &Namespace, prepare: impl FnOnce(&std::path::Path)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let script = home.path().join("script");
        std::fs::write(&script, SCRIPT.replace("HOME", home.path().to_str().unwrap())).unwrap();
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        prepare(home.path());
        let at = |name: &str| home.path().join(name).display().to_string();
        // dhcpcd keeps its state in fixed places; a mount namespace gives it its own.
        let line = match program {
            Program::Dhclient => {
                std::fs::write(
                    home.path().join("conf"),
                    "timeout 20;\nretry 2;\ninitial-interval 1;\n",
                )
                .unwrap();
                format!(
                    "exec dhclient -4 -d -v -cf {} -lf {} -pf {} -sf {} eth0",
                    at("conf"),
                    at("leases"),
                    at("pid"),
                    at("script")
                )
            }
            Program::Udhcpc => format!("exec udhcpc -f -R -a -t 5 -T 1 -A 1 -i eth0 -s {}", at("script")),
            Program::Dhcpcd => {
                let conf =
                    "option subnet_mask, routers, domain_name_servers, classless_static_routes\nnoipv4ll\n";
                std::fs::write(home.path().join("conf"), conf).unwrap();
                format!(
                    "mount -t tmpfs none /run && mkdir -p /var/lib/dhcpcd && mount -t tmpfs none /var/lib/dhcpcd && \
                     exec dhcpcd -4 -B -d -f {} -c {} eth0",
                    at("conf"),
                    at("script")
                )
            }
        };
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let child = station
            .command("/usr/bin/unshare")
            .args(["-m", "sh", "-c", &line])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Client {
            home,
            process: Process(child),
            program,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn events(&self) -> String {
        read(&self.file("events"))
    }

    /// Waits for an event and returns its line.
    fn event(&self, names: &[&str]) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let events = self.events();
            let told = |line: &&str| {
                line.split_whitespace()
                    .next()
                    .is_some_and(|name| names.contains(&name))
            };
            if let Some(line) = events.lines().find(told) {
                return line.to_owned();
            }
            let said = || format!("it told:\n{events}\nand said:\n{}", read(&self.file("log")));
            assert!(
                Instant::now() < deadline,
                "{:?} told no {names:?}; {}",
                self.program,
                said()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn bound(&self) -> Ipv4Addr {
        let line = self.event(&["BOUND", "bound", "REBOOT"]);
        line.split_whitespace()
            .nth(1)
            .and_then(|address| address.parse().ok())
            .expect(&line)
    }

    /// Gives the address back, as people tell each program to.
    fn release(&self, station: &Namespace, home: &Home, address: Ipv4Addr) {
        match self.program {
            Program::Dhclient => {
                let line = ["-r", "-d", "-lf", "leases", "-pf", "pid", "-sf", "script", "eth0"].map(|word| {
                    if word.starts_with('-') || word == "eth0" {
                        word.into()
                    } else {
                        self.file(word)
                    }
                });
                let released = station.command("dhclient").args(line).output().unwrap();
                assert!(released.status.success(), "{released:?}");
            }
            Program::Udhcpc => self.process.signal(libc::SIGTERM),
            Program::Dhcpcd => self.process.signal(libc::SIGALRM),
        }
        await_that(
            &format!("{:?} released: {}", self.program, read(&self.file("log"))),
            || {
                home.lease(address)
                    .is_some_and(|lease| lease.state == State::Released)
            },
        );
    }
}

#[test]
fn clients_get_their_address_and_give_it_back() {
    with_each(|program| {
        let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(SPEC));
        let server = serve(&lan, &home.spec(), &home.state());
        let station = lan.attach();
        let client = Client::start(program, &station);
        assert_eq!(client.bound(), ip(10), "{program:?}");
        let events = client.events();
        for value in ["192.168.100.1", "192.168.100.3 192.168.100.4"] {
            // dhcpcd leaves option 3 out when it has option 121, as it should.
            assert!(
                events.contains(value) || matches!(program, Program::Dhcpcd),
                "{program:?}: {events}"
            );
        }
        let lease = home.lease(ip(10)).expect("a stored lease");
        assert_eq!(lease.state, State::Bound);
        client.release(&station, &home, ip(10));
        drop(client);
        // The same station gets the same address again.
        assert_eq!(Client::start(program, &station).bound(), ip(10), "{program:?}");
        drop(server);
    });
}

#[test]
fn clients_renew_and_when_their_server_was_away_rebind() {
    let spec = SPEC.replace("1h", "10s");
    with_each(|program| {
        let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(&spec));
        let server = serve(&lan, &home.spec(), &home.state());
        let station = lan.attach();
        let client = Client::start(program, &station);
        let address = client.bound();
        let first = home.lease(address).unwrap();
        await_that("a renewal", || {
            home.lease(address).unwrap().expires > first.expires
        });
        // The server goes away past the time to renew, and another with the same state takes its place. What it
        // hears first is a broadcast.
        server.kill();
        let renewed = home.lease(address).unwrap();
        let rebind = std::time::UNIX_EPOCH + Duration::from_millis(renewed.expires.0 - 1_900);
        await_that("the time to rebind", || std::time::SystemTime::now() > rebind);
        let _server = serve(&lan, &home.spec(), &home.state());
        await_that("a rebinding", || {
            home.lease(address).unwrap().expires > renewed.expires
        });
        assert_eq!(home.lease(address).unwrap().state, State::Bound, "{program:?}");
        // The lease is stored before the client hears of it, and its script may put the address there anew.
        await_that("the address on the interface", || {
            let shown = station.run("ip -4 addr show dev eth0");
            shown.contains(&address.to_string())
        });
    });
}

#[test]
fn clients_decline_an_address_that_a_stranger_has_and_get_another() {
    with_each(|program| {
        let (mut lan, home) = (
            Lan::new("192.168.100.2/24"),
            Home::new(&with("  conflictProbe: false\n")),
        );
        let _server = serve(&lan, &home.spec(), &home.state());
        let stranger = lan.attach();
        stranger.run("ip addr add 192.168.100.10/24 dev eth0");
        let station = lan.attach();
        // udhcpc and dhcpcd ask by ARP themselves; dhclient leaves that to its script.
        let client = Client::prepared(program, &station, |home| {
            if matches!(program, Program::Dhclient) {
                std::fs::write(home.join("decline"), "").unwrap();
            }
        });
        assert_eq!(client.bound(), ip(11), "{program:?}");
        assert_eq!(home.lease(ip(10)).unwrap().state, State::Declined, "{program:?}");
        assert!(home.log().contains("event AddressConflict"), "{}", home.log());
    });
}

#[test]
fn the_server_finds_a_stranger_before_it_offers_its_address() {
    let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(SPEC));
    let _server = serve(&lan, &home.spec(), &home.state());
    let stranger = lan.attach();
    stranger.run("ip addr add 192.168.100.10/24 dev eth0");
    let station = lan.attach();
    let client = Client::start(Program::Dhclient, &station);
    assert_eq!(client.bound(), ip(11));
    await_that("the quarantine is stored", || {
        home.lease(ip(10))
            .is_some_and(|lease| lease.state == State::Declined)
    });
    assert!(
        home.log().contains("event AddressConflict: 192.168.100.10"),
        "{}",
        home.log()
    );
}

#[test]
fn another_server_on_the_link_is_reported_by_its_answers_and_by_clients_that_chose_it() {
    let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(SPEC));
    let _server = serve(&lan, &home.spec(), &home.state());
    let (intruder, station) = (lan.attach(), lan.attach());
    intruder.run("ip addr add 192.168.100.66/24 dev eth0");
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let offer = Packet::new(MessageType::Offer, mac)
        .at(0, &[2])
        .server(ip(66))
        .build();
    intruder.broadcast(67, 68, &offer);
    await_that("its answer is heard", || {
        home.log()
            .contains("event RogueServer: the DHCP server 192.168.100.66")
    });
    let request = Packet::new(MessageType::Request, mac)
        .server(ip(67))
        .requested(ip(70))
        .build();
    station.broadcast(68, 67, &request);
    await_that("its client is heard", || {
        home.log()
            .contains("event RogueServer: the DHCP server 192.168.100.67")
    });
}

#[test]
fn a_packet_that_is_no_message_is_in_the_log_with_its_sender() {
    let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(SPEC));
    let _server = serve(&lan, &home.spec(), &home.state());
    let station = lan.attach();
    let packet = Packet::new(MessageType::Discover, Mac([2, 0, 0, 0, 0, 9]));
    let packet = packet.at(4, &[0xab, 0xcd, 0, 1]).build();
    station.broadcast(68, 67, &packet[..100]);
    let says = |line: &str| {
        let parts = ["ignored a packet", "02:00:00:00:00:09", "abcd0001", "truncated"];
        parts.iter().all(|part| line.contains(part))
    };
    await_that("it is logged", || home.log().lines().any(says));
}

#[test]
fn a_change_of_the_manifest_applies_without_a_restart_and_a_bad_one_does_not() {
    let (mut lan, home) = (
        Lan::new("192.168.100.2/24"),
        Home::new(&SPEC.replace("1h", "10s")),
    );
    let server = serve(&lan, &home.spec(), &home.state());
    let station = lan.attach();
    let client = Client::start(Program::Dhclient, &station);
    assert_eq!(client.bound(), ip(10));
    home.write(&SPEC.replace("rangeStart: 192.168.100.10", "rangeStart: 192.168.200.10"));
    server.signal(libc::SIGHUP);
    await_that("the bad one is refused", || {
        home.log().contains("refused: spec.leaseConfig.rangeStart")
    });
    home.write(&SPEC.replace("rangeStart: 192.168.100.10", "rangeStart: 192.168.100.15"));
    server.signal(libc::SIGHUP);
    await_that("the good one applies", || {
        home.log().contains("the configuration changed")
    });
    // At its renewal the client is refused and starts over.
    await_that("the client moves", || {
        client
            .events()
            .lines()
            .any(|line| line.starts_with("BOUND 192.168.100.15 "))
    });
    assert!(
        home.log().contains("the address is not in the pool"),
        "{}",
        home.log()
    );
}

#[test]
fn a_lease_is_released_by_hand_while_the_server_runs() {
    let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(SPEC));
    let _server = serve(&lan, &home.spec(), &home.state());
    let station = lan.attach();
    let client = Client::start(Program::Dhclient, &station);
    let address = client.bound();
    let now = oooi_dhcp::time::Timestamp::wall();
    assert!(oooi_dhcp::ledger::release(&home.state(), address, now).unwrap());
    await_that("it is stored", || {
        home.lease(address).unwrap().state == State::Released
    });
    assert!(!oooi_dhcp::ledger::release(&home.state(), ip(20), now).unwrap());
}

#[test]
fn a_relay_gets_the_answers_for_its_clients_with_its_information() {
    let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(SPEC));
    let _server = serve(&lan, &home.spec(), &home.state());
    let station = lan.attach();
    station.run("ip addr add 192.168.100.9/24 dev eth0");
    let relay = station.enter(|| Relay::new(ip(9), ip(2)));
    relay.wait(Some(Duration::from_secs(5)));
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let information = [1, 4, b'p', b'o', b'r', b't'];
    relay.send(Packet::new(MessageType::Discover, mac).option(82, &information));
    let offer = relay.expect("an offer");
    assert_eq!(
        (offer.kind(), offer.yiaddr(), offer.option(82).unwrap()),
        (2, ip(10), information.to_vec())
    );
    relay.select(mac, offer.yiaddr());
    assert_eq!(relay.expect("an ACK").kind(), 5);
    relay.select(Mac([2, 0, 0, 0, 0, 8]), ip(10));
    let nak = relay.expect("a NAK");
    assert_eq!((nak.kind(), nak.bytes[10]), (6, 0x80), "a relay broadcasts a NAK");
}

#[test]
fn clients_behind_a_real_relay_get_renew_and_release() {
    let spec = SPEC.replace("1h", "10s");
    with_each(|program| {
        let (mut lan, home) = (Lan::new("192.168.100.2/24"), Home::new(&spec));
        let _server = serve(&lan, &home.spec(), &home.state());
        // One network on two links: the router answers for those on the other one, and forwards what is unicast.
        let (router, station) = lan.attach_behind_router();
        router.run("ip addr add 192.168.100.9/24 dev eth0");
        router.run("ip addr add 192.168.100.8/32 dev eth1");
        router.run("ip route add 192.168.100.10/32 dev eth1");
        router.enter(|| {
            for setting in ["ip_forward", "conf/eth0/proxy_arp", "conf/eth1/proxy_arp"] {
                std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), "1").expect(setting);
            }
        });
        // It adds option 82, and drops answers that do not repeat it.
        let relay = router
            .command("dhcrelay")
            .args(["-4", "-d", "--no-pid", "-a", "-D", "-id", "eth1", "-iu", "eth0"])
            .arg("192.168.100.2")
            .stderr(std::fs::File::create(home.path().join("relay.log")).unwrap())
            .spawn()
            .expect("dhcrelay, of the package isc-dhcp-relay");
        let _relay = Process(relay);
        let client = Client::start(program, &station);
        assert_eq!(client.bound(), ip(10), "{program:?}");
        let first = home.lease(ip(10)).expect("a stored lease");
        await_that(&format!("{program:?} renews past the relay"), || {
            home.lease(ip(10)).unwrap().expires > first.expires
        });
        client.release(&station, &home, ip(10));
    });
}
