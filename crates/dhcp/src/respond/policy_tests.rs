//! Who gets which address.

use super::*;
use crate::machines::Machine;
use oooi_api::dhcp_server::Reservation;

fn reserve(spec: &mut DhcpServerSpec, n: u8, address: Ipv4Addr) {
    spec.lease_config.reservations.push(Reservation {
        mac: Some(mac(n).to_string()),
        client_id: None,
        address: address.to_string(),
        hostname: Some(format!("node-{n}")),
    });
}

#[test]
fn a_reservation_is_its_clients_alone_inside_and_outside_the_range() {
    let mut world = World::new(|spec| {
        spec.lease_config.range_end = "192.168.100.11".into();
        reserve(spec, 1, ip(10));
        reserve(spec, 2, ip(200));
    });
    assert_eq!(world.lease(3), ip(11));
    assert_eq!(
        silence(&world.send(discover(4).requested(ip(10)))),
        Silence::NoFreeAddress
    );
    assert_eq!((world.lease(1), world.lease(2)), (ip(10), ip(200)));
    assert_eq!(
        world.leases.get(ip(200)).unwrap().host_name.as_deref(),
        Some("node-2")
    );
    assert_eq!(
        refused(&world.send(reboot(3, ip(10)))),
        "the address is not in the pool"
    );
}

#[test]
fn a_client_moves_to_its_reservation_once_the_address_is_free() {
    let mut world = World::new(|_| {});
    assert_eq!((world.lease(1), world.lease(2)), (ip(10), ip(11)));
    world.config = fixture::config(|spec| reserve(spec, 2, ip(10)));
    world.wait(60);
    assert_eq!(
        granted(&world.send(renew(2, ip(11)))),
        ip(11),
        "the other client still has it"
    );
    assert_eq!(
        refused(&world.send(renew(1, ip(10)))),
        "the address is not in the pool"
    );
    world.wait(3600);
    assert_eq!(
        refused(&world.send(renew(2, ip(11)))),
        "another address is reserved for this client"
    );
    assert_eq!(world.lease(2), ip(10));
}

#[test]
fn unknown_clients_are_left_to_others_on_a_shared_network() {
    let mut world = World::new(|spec| {
        spec.lease_config.unknown_clients = Some(UnknownClients::Ignore);
        reserve(spec, 1, ip(10));
    });
    world.machines = Machines::complete([machine(2)]);
    assert_eq!(world.lease(1), ip(10));
    assert_eq!(world.lease(2), ip(11));
    assert_eq!(
        world.leases.get(ip(11)).unwrap().host_name.as_deref(),
        Some("worker-2")
    );
    assert_eq!(silence(&world.send(discover(3))), Silence::UnknownClient);
    // Refused only where no other server can have the say: in our range, or our own client.
    assert_eq!(silence(&world.send(reboot(3, ip(77)))), Silence::NotOurs);
    assert_eq!(silence(&world.send(reboot(3, ELSEWHERE))), Silence::NotOurs);
    assert_eq!(
        refused(&world.send(reboot(3, ip(12)))),
        "this server does not serve unknown clients"
    );
    assert_eq!(
        refused(&world.send(reboot(2, ELSEWHERE))),
        "the address is not of this network"
    );
}

fn machine(n: u8) -> (Mac, Machine) {
    let machine = Machine {
        name: format!("worker-{n}").into(),
        address: None,
    };
    (mac(n), machine)
}

#[test]
fn until_all_machines_are_known_those_with_a_lease_are_served_and_nobody_is_refused() {
    let mut world = World::new(|spec| spec.lease_config.unknown_clients = Some(UnknownClients::Ignore));
    world.machines = Machines::complete([machine(1), machine(2)]);
    let (one, two) = (world.lease(1), world.lease(2));
    world.send(Packet::new(MessageType::Release, mac(2)).ciaddr(two));

    // As after a restart: the leases are there, and no machine yet.
    world.machines = Machines::default();
    world.wait(1800);
    assert_eq!(granted(&world.send(renew(1, one).client_id(b"\xffinitrd"))), one);
    let lease = world.leases.get(one).unwrap();
    assert!(lease.machine, "it goes when the machine goes");
    assert_eq!(lease.host_name.as_deref(), Some("worker-1"));
    assert_eq!(offered(&world.send(discover(1))), one);
    for packet in [
        renew(2, two),
        reboot(3, ip(12)),
        reboot(3, ELSEWHERE),
        select(3, one),
        discover(3),
    ] {
        assert_eq!(silence(&world.send(packet)), Silence::UnknownClient);
    }

    world.machines = Machines::complete([machine(1)]);
    assert_eq!(
        refused(&world.send(reboot(3, ip(12)))),
        "this server does not serve unknown clients"
    );
}

#[test]
fn until_all_machines_are_known_one_whose_lease_is_over_is_served_from_offer_to_lease() {
    let mut world = World::new(|spec| spec.lease_config.unknown_clients = Some(UnknownClients::Ignore));
    world.machines = Machines::complete([machine(1)]);
    let address = world.lease(1);
    world.machines = Machines::default();
    world.wait(7200);
    assert_eq!(offered(&world.send(discover(1))), address);
    assert_eq!(granted(&world.send(select(1, address))), address);
}

#[test]
fn a_clone_gets_no_machines_address_while_machines_are_not_known() {
    let mut world = World::new(|_| {});
    world.machines = Machines::complete([machine(1)]);
    let address = offered(&world.send(discover(1).client_id(b"\xffclone")));
    granted(&world.send(select(1, address).client_id(b"\xffclone")));
    world.machines = Machines::default();
    let other = offered(&world.send(discover(2).client_id(b"\xffclone")));
    assert_ne!(other, address);
    granted(&world.send(select(2, other).client_id(b"\xffclone")));
    world.wait(1800);
    assert_eq!(
        offered(&world.send(discover(1).client_id(b"\xffclone"))),
        address,
        "nor does the machine get the clone's"
    );
}

#[test]
fn machines_cloned_with_one_identifier_get_an_address_each() {
    let mut world = World::new(|_| {});
    world.machines = Machines::complete([machine(1), machine(2)]);
    let first = offered(&world.send(discover(1).client_id(b"\xffclone")));
    let second = offered(&world.send(discover(2).client_id(b"\xffclone")));
    assert_ne!(first, second);
    // Nor does a clone that is no machine get one of theirs, and it keeps its own.
    let third = offered(&world.send(discover(3).client_id(b"\xffclone")));
    assert!(third != first && third != second);
    offered(&world.send(discover(2).client_id(b"\xffclone")));
    assert_eq!(offered(&world.send(discover(3).client_id(b"\xffclone"))), third);
    // And one machine keeps its address when its boot stages name themselves differently.
    assert_eq!(offered(&world.send(discover(1).client_id(b"\xffother"))), first);
}

#[test]
fn a_machine_gets_the_address_that_it_is_known_to_have_if_nobody_had_it() {
    let mut world = World::new(|_| {});
    let machine = |n, last| {
        (
            mac(n),
            Machine {
                name: "w".into(),
                address: Some(ip(last)),
            },
        )
    };
    world.machines = Machines::complete([machine(1, 17), machine(2, 17), machine(3, 99)]);
    assert_eq!(
        (world.lease(1), world.lease(2), world.lease(3)),
        (ip(17), ip(10), ip(11))
    );
}

#[test]
fn an_address_is_probed_before_its_first_offer_and_only_then() {
    let mut world = World::new(|spec| spec.lease_config.conflict_probe = None);
    let Action::Probe { hold } = world.send(discover(1)) else {
        panic!("no probe")
    };
    assert_eq!(silence(&world.send(discover(1))), Silence::ProbeUnderWay);
    assert_eq!(
        silence(&world.send(select(1, hold.address))),
        Silence::ProbeUnderWay
    );
    let Action::Probe { hold: other } = world.send(discover(2)) else {
        panic!("no probe")
    };
    assert_ne!(hold.address, other.address);
    world.leases.put(Lease {
        state: State::Offered,
        ..hold.clone()
    });
    assert_eq!(world.lease(1), hold.address);
    // A stranger answered for the second address: it is kept from everybody.
    world
        .leases
        .put(conflict(other.address, mac(99), &world.config, world.now));
    let Action::Probe { hold: third } = world.send(discover(2)) else {
        panic!("no probe")
    };
    assert!(third.address != other.address && third.address != hold.address);
    // A relayed client is on another link.
    assert!(matches!(
        world.send(discover(3).giaddr(ip(9))),
        Action::Offer { .. }
    ));
}

#[test]
fn two_messages_do_for_a_client_that_asks_for_it() {
    let mut world = World::new(|_| {});
    let Action::Grant { reply, lease } = world.send(discover(1).option(80, &[])) else {
        panic!("no grant")
    };
    assert!(reply.rapid && reply.kind == MessageType::Ack && lease.state == State::Bound);
}

#[test]
fn what_was_just_stored_is_confirmed_without_storing_it_again() {
    let mut world = World::new(|_| {});
    let address = world.lease(1);
    world.wait(2);
    let Action::Confirm { reply } = world.send(select(1, address)) else {
        panic!("stored again")
    };
    assert_eq!(reply.times.unwrap().lease, 3598);
    world.wait(10);
    assert!(matches!(world.send(select(1, address)), Action::Grant { .. }));
}

#[test]
fn one_hardware_address_under_many_names_cannot_empty_the_pool() {
    let mut world = World::new(|spec| spec.lease_config.range_end = "192.168.100.100".into());
    for n in 0..=255_u8 {
        let action = world.send(discover(1).client_id(&[9, n]));
        assert_eq!(
            matches!(action, Action::Offer { .. }),
            usize::from(n) < MAX_PER_MAC,
            "{n}: {action:?}"
        );
    }
    assert_eq!(world.lease(2), ip(10 + MAX_PER_MAC as u8));
    world.wait(31);
    assert!(
        matches!(world.send(discover(1).client_id(&[9, 200])), Action::Offer { .. }),
        "offers expire"
    );
}

#[test]
fn replicas_share_the_clients_and_stand_in_for_each_other() {
    let second = ip(4);
    let shared = |own| {
        let mut world =
            World::new(|spec| spec.network_config.additional_server_ips = vec![second.to_string()]);
        world.config.server = own;
        world
    };
    let (mut one, mut two) = (shared(SERVER), shared(second));
    for n in 1..=9 {
        let answers = [one.send(discover(n)), two.send(discover(n))];
        let silent = answers
            .iter()
            .filter(|action| **action == Action::Ignore(Silence::OtherReplica))
            .count();
        assert_eq!(silent, 1, "client {n}");
    }
    for world in [&mut one, &mut two] {
        assert!((20..25).all(|n| matches!(world.send(discover(n).secs(4)), Action::Offer { .. })));
    }
    // Renewals reach one replica alone, and it answers whoever gave the lease.
    let taken = (1..=9).find(|n| world_lease(&mut one, *n).is_some()).unwrap();
    let lease = world_lease(&mut one, taken).unwrap();
    two.leases.put(Lease {
        state: State::Bound,
        ..lease.clone()
    });
    assert_eq!(
        granted(&two.send_as(renew(taken, lease.address), Arrival::Unicast)),
        lease.address
    );
    // So does any that hears a client whose replica is gone, if the lease is known to be its own; it refuses nobody else's.
    assert_eq!(granted(&two.send(renew(taken, lease.address))), lease.address);
    let others = Action::Ignore(Silence::OtherReplica);
    let other = (1..=9).find(|n| two.send(discover(*n)) == others).unwrap();
    assert_eq!(two.send(renew(other, ip(99))), others);
}

fn world_lease(world: &mut World, n: u8) -> Option<Lease> {
    world.leases.of_mac(mac(n)).next().cloned()
}

#[test]
fn clients_of_a_replaced_server_keep_free_addresses_during_the_grace() {
    let until: jiff::Timestamp = T0.after(Duration::from_secs(60)).into();
    let mut world = World::new(|spec| spec.lease_config.migration_grace = Some(until.to_string()));
    assert_eq!(granted(&world.send(renew(1, ip(15)))), ip(15));
    assert_eq!(granted(&world.send(reboot(2, ip(16)))), ip(16));
    assert_eq!(
        refused(&world.send(renew(3, ip(15)))),
        "the address belongs to another client"
    );
    assert!(
        matches!(world.send(discover(4)), Action::Probe { .. }),
        "nothing new without a probe"
    );
    world.wait(60);
    assert_eq!(
        refused(&world.send(renew(5, ip(17)))),
        "no lease of the address is known"
    );
    assert!(matches!(world.send(discover(6)), Action::Offer { .. }));
}

#[test]
fn a_client_of_a_replaced_server_keeps_the_address_that_it_answered_a_probe_for() {
    let until: jiff::Timestamp = T0.after(Duration::from_secs(60)).into();
    let mut world = World::new(|spec| spec.lease_config.migration_grace = Some(until.to_string()));
    for last in [15, 16, 17] {
        let quarantine = conflict(ip(last), mac(last), &world.config, world.now);
        world.leases.put(quarantine);
    }
    assert_eq!(granted(&world.send(renew(15, ip(15)))), ip(15));
    assert_eq!(granted(&world.send(reboot(16, ip(16)))), ip(16));
    assert_eq!(
        refused(&world.send(renew(1, ip(17)))),
        "another station uses the address"
    );
    world.wait(60);
    assert_eq!(
        refused(&world.send(renew(17, ip(17)))),
        "another station uses the address"
    );
}

#[test]
fn an_offer_made_before_an_outage_gives_nobody_what_another_may_still_have() {
    let mut world = World::new(|spec| spec.lease_config.range_end = "192.168.100.10".into());
    assert_eq!(world.lease(1), ip(10));
    world.wait(7200);
    let offer = world.send(discover(2));
    assert!(matches!(offer, Action::Offer { .. }), "{offer:?}");
    world
        .leases
        .hold_expired_until(world.now.after(Duration::from_secs(3600)));
    assert_eq!(
        refused(&world.send(select(2, ip(10)))),
        "the address belongs to another client"
    );
    assert_eq!(silence(&world.send(discover(2))), Silence::NoFreeAddress);
    assert_eq!(world.lease(1), ip(10), "its own client gets it again");
}
