//! The protocol, message by message; who gets what is in `policy`.

use super::*;
use crate::mac::Mac;
use crate::testing::fixture::{self, SERVER};
use crate::testing::packet::Packet;
use oooi_api::dhcp_server::DhcpServerSpec;

const T0: Timestamp = Timestamp(1_700_000_000_000);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 100, last)
}

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

/// A server without a shell: what it stores it knows at once.
struct World {
    config: Config,
    leases: Leases,
    machines: Machines,
    now: Timestamp,
}

impl World {
    fn new(more: impl FnOnce(&mut DhcpServerSpec)) -> Self {
        let config = fixture::config(more);
        World {
            leases: Leases::new(&config, vec![], T0),
            config,
            machines: Machines::default(),
            now: T0,
        }
    }

    fn send(&mut self, packet: Packet) -> Action {
        self.send_as(packet, Arrival::Broadcast)
    }

    fn send_as(&mut self, packet: Packet, arrival: Arrival) -> Action {
        let packet = packet.build();
        let message = Message::parse(&packet).unwrap();
        let view = View {
            config: &self.config,
            leases: &self.leases,
            machines: &self.machines,
            now: self.now,
        };
        let action = respond(view, &message, arrival);
        match action.clone() {
            Action::Probe { hold: lease }
            | Action::Offer {
                hold: Some(lease), ..
            }
            | Action::Grant { lease, .. }
            | Action::Release { lease }
            | Action::Quarantine { lease } => self.leases.put(lease),
            Action::Offer { hold: None, .. }
            | Action::Confirm { .. }
            | Action::Refuse { .. }
            | Action::Ignore(_) => {}
        }
        action
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// The address that a client gets by four messages.
    fn lease(&mut self, n: u8) -> Ipv4Addr {
        let address = offered(&self.send(discover(n)));
        granted(&self.send(select(n, address)));
        address
    }
}

fn discover(n: u8) -> Packet {
    Packet::new(MessageType::Discover, mac(n))
}

fn select(n: u8, address: Ipv4Addr) -> Packet {
    Packet::new(MessageType::Request, mac(n))
        .server(SERVER)
        .requested(address)
}

fn reboot(n: u8, address: Ipv4Addr) -> Packet {
    Packet::new(MessageType::Request, mac(n)).requested(address)
}

fn renew(n: u8, address: Ipv4Addr) -> Packet {
    Packet::new(MessageType::Request, mac(n)).ciaddr(address)
}

fn offered(action: &Action) -> Ipv4Addr {
    match action {
        Action::Offer { reply, .. } => reply.yiaddr,
        other => panic!("no offer: {other:?}"),
    }
}

fn granted(action: &Action) -> Ipv4Addr {
    match action {
        Action::Grant { reply, .. } | Action::Confirm { reply } => reply.yiaddr,
        other => panic!("no grant: {other:?}"),
    }
}

fn refused(action: &Action) -> &'static str {
    match action {
        Action::Refuse { reply } => reply.message.unwrap(),
        other => panic!("no refusal: {other:?}"),
    }
}

fn silence(action: &Action) -> Silence {
    match action {
        Action::Ignore(silence) => *silence,
        other => panic!("not silent: {other:?}"),
    }
}

#[test]
fn a_client_gets_the_same_address_again_also_after_its_lease_expired() {
    let mut world = World::new(|_| {});
    let address = world.lease(1);
    world.lease(2);
    world.wait(2 * 3600);
    assert_eq!(world.lease(1), address);
    world.send(Packet::new(MessageType::Release, mac(1)).ciaddr(address));
    assert_eq!(world.lease(1), address);
}

#[test]
fn an_expired_lease_is_offered_to_another_when_nothing_else_is_free() {
    let mut world = World::new(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    assert_eq!(world.lease(1), ip(10));
    assert_eq!(silence(&world.send(discover(2))), Silence::NoFreeAddress);
    world.wait(3600);
    assert_eq!(world.lease(2), ip(10));
    assert_eq!(
        refused(&world.send(renew(1, ip(10)))),
        "the address belongs to another client"
    );
}

#[test]
fn the_four_states_of_a_request() {
    let mut world = World::new(|_| {});
    let address = world.lease(1);
    world.wait(60);
    assert_eq!(granted(&world.send(reboot(1, address))), address);
    world.wait(60);
    assert_eq!(
        granted(&world.send_as(renew(1, address), Arrival::Unicast)),
        address
    );
    world.wait(60);
    assert_eq!(granted(&world.send(renew(1, address))), address);
    assert_eq!(
        world.leases.get(address).unwrap().expires,
        world.now.after(Duration::from_secs(3600))
    );
    // A client that chose another server is left to it.
    let other = Packet::new(MessageType::Request, mac(1))
        .server(ip(77))
        .requested(address);
    assert_eq!(silence(&world.send(other)), Silence::OtherServer);
}

#[test]
fn a_wrong_address_is_refused_where_we_have_the_say() {
    let mut world = World::new(|_| {});
    let address = world.lease(1);
    assert_eq!(
        refused(&world.send(reboot(1, ELSEWHERE))),
        "the address is not of this network"
    );
    assert_eq!(
        refused(&world.send(reboot(2, address))),
        "the address belongs to another client"
    );
    assert_eq!(
        refused(&world.send(reboot(2, ip(15)))),
        "no lease of the address is known"
    );
    assert_eq!(
        refused(&world.send(renew(2, ip(200)))),
        "the address is not in the pool"
    );
    assert_eq!(
        refused(&world.send(select(2, address))),
        "the address belongs to another client"
    );
    assert_eq!(
        silence(&world.send(Packet::new(MessageType::Request, mac(2)))),
        Silence::NoAddress
    );
}

#[test]
fn an_offer_that_was_forgotten_by_a_restart_is_still_granted() {
    let mut world = World::new(|_| {});
    let address = offered(&world.send(discover(1)));
    world.leases = Leases::new(&world.config, vec![], world.now);
    assert_eq!(granted(&world.send(select(1, address))), address);
    let other = "another address was offered or leased to this client";
    assert_eq!(
        refused(&world.send(select(1, ip(15)))),
        other,
        "one address a client"
    );
}

#[test]
fn a_lease_outside_a_new_range_is_refused_at_renewal() {
    let mut world = World::new(|_| {});
    let address = world.lease(1);
    world.config = fixture::config(|spec| spec.lease_config.range_start = "192.168.100.15".into());
    world.leases.adopt(&world.config, world.now);
    assert_eq!(
        refused(&world.send(renew(1, address))),
        "the address is not in the pool"
    );
    assert_eq!(world.lease(1), ip(15));
}

#[test]
fn a_declined_address_is_kept_from_everybody_for_a_while() {
    let mut world = World::new(|spec| spec.lease_config.range_end = "192.168.100.11".into());
    let address = world.lease(1);
    let stranger = Packet::new(MessageType::Decline, mac(2))
        .server(SERVER)
        .requested(address);
    assert_eq!(silence(&world.send(stranger)), Silence::NotItsAddress);
    let decline = Packet::new(MessageType::Decline, mac(1))
        .server(SERVER)
        .requested(address);
    assert!(matches!(world.send(decline), Action::Quarantine { .. }));
    assert_eq!(world.lease(1), ip(11));
    assert_eq!(silence(&world.send(discover(2))), Silence::NoFreeAddress);
    assert_eq!(
        refused(&world.send(reboot(1, address))),
        "another station uses the address"
    );
    world.wait(3600);
    assert_eq!(world.lease(2), address);
}

#[test]
fn only_its_own_client_gives_an_address_back() {
    let mut world = World::new(|_| {});
    let address = world.lease(1);
    let release = |n| {
        Packet::new(MessageType::Release, mac(n))
            .server(SERVER)
            .ciaddr(address)
    };
    assert_eq!(silence(&world.send(release(2))), Silence::NotItsAddress);
    assert!(matches!(world.send(release(1)), Action::Release { .. }));
    assert_eq!(silence(&world.send(release(1))), Silence::NotItsAddress);
}

#[test]
fn inform_gets_options_but_no_lease() {
    let mut world = World::new(|_| {});
    let Action::Confirm { reply } = world.send(Packet::new(MessageType::Inform, mac(1)).ciaddr(ip(99)))
    else {
        panic!()
    };
    assert_eq!(
        (reply.yiaddr, reply.times, reply.to),
        (Ipv4Addr::UNSPECIFIED, None, Destination::Address(ip(99)))
    );
    assert_eq!(
        silence(&world.send(Packet::new(MessageType::Inform, mac(1)))),
        Silence::NoAddress
    );
    assert_eq!(
        silence(&world.send(Packet::new(MessageType::Inform, mac(1)).ciaddr(ELSEWHERE))),
        Silence::OtherNetwork
    );
}

#[test]
fn answers_go_where_the_client_can_hear_them() {
    let mut world = World::new(|_| {});
    let to = |action: Action| match action {
        Action::Offer { reply, .. } | Action::Grant { reply, .. } | Action::Refuse { reply } => reply.to,
        other => panic!("{other:?}"),
    };
    assert_eq!(to(world.send(discover(1))), Destination::Hardware(mac(1), ip(10)));
    assert_eq!(to(world.send(discover(1).broadcast())), Destination::Broadcast);
    assert_eq!(
        to(world.send(discover(1).giaddr(ip(9)))),
        Destination::Relay(ip(9))
    );
    world.lease(1);
    world.wait(60);
    assert_eq!(to(world.send(renew(1, ip(10)))), Destination::Address(ip(10)));
    assert_eq!(to(world.send(renew(2, ip(10)))), Destination::Broadcast);
}

#[test]
fn a_relay_on_another_network_is_left_alone() {
    let mut world = World::new(|_| {});
    assert_eq!(
        silence(&world.send(discover(1).giaddr(ELSEWHERE))),
        Silence::OtherNetwork
    );
    // Unless it says that its client is on ours (RFC 3527).
    let selected = discover(1)
        .giaddr(ELSEWHERE)
        .option(82, &[1, 1, 9, 5, 4, 192, 168, 100, 0]);
    assert_eq!(offered(&world.send(selected)), ip(10));
}

#[path = "policy_tests.rs"]
mod policy;
