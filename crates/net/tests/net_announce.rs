//! A station whose address moved to other hardware, as its neighbours see it. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use oooi_net::{Namespace, Network, announce};
use tokio::net::UdpSocket;

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 4);

/// A station on the bridge `vlan`.
fn station(vlan: &Namespace, name: &'static str, address: &'static str) -> Namespace {
    let station = Namespace::new(name).unwrap();
    let inside = station.clone();
    vlan.run(async move || {
        let network = Network::open().unwrap();
        network.add_veth(name, "eth0", &inside).await.unwrap();
        network.attach(name, "vlan").await.unwrap();
    })
    .unwrap();
    station
        .run(async move || {
            let network = Network::open().unwrap();
            network.set_up("eth0").await.unwrap();
            network
                .add_address("eth0", address.parse().unwrap())
                .await
                .unwrap();
        })
        .unwrap();
    station
}

/// The hardware address of a station.
fn hardware(station: &Namespace) -> String {
    let read = async || Network::open().unwrap().state("eth0").await.unwrap().mac.unwrap();
    station
        .run(read)
        .unwrap()
        .map(|octet| format!("{octet:02x}"))
        .join(":")
}

/// What a station knows of the server's hardware.
fn known(station: &Namespace) -> Option<String> {
    let table = station.run(async || std::fs::read_to_string("/proc/thread-self/net/arp").unwrap());
    let table = table.unwrap();
    let row = table
        .lines()
        .find(|line| line.starts_with(&format!("{SERVER} ")))?;
    row.split_whitespace().nth(3).map(ToOwned::to_owned)
}

fn until_known(station: &Namespace, wanted: &str, mut act: impl FnMut()) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while known(station).as_deref() != Some(wanted) {
        assert!(
            Instant::now() < deadline,
            "{:?} is known, not {wanted}",
            known(station)
        );
        act();
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn whoever_knew_the_old_hardware_of_an_address_knows_the_new_one_at_once() {
    let vlan = Namespace::new("vlan").unwrap();
    vlan.run(async || Network::open().unwrap().add_bridge("vlan").await.unwrap())
        .unwrap();
    let client = station(&vlan, "client", "192.0.2.9/24");
    let old = station(&vlan, "old", "192.0.2.4/24");
    until_known(&client, &hardware(&old), || {
        let ask = async || {
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            socket.send_to(&[], (SERVER, 9)).await.unwrap();
        };
        client.run(ask).unwrap();
    });
    vlan.run(async || Network::open().unwrap().remove("old").await.unwrap())
        .unwrap();

    let new = station(&vlan, "new", "192.0.2.4/24");
    let (before, now) = (known(&client), hardware(&new));
    assert_ne!(before.as_deref(), Some(&*now), "it is to be found out");
    let announcing = new.spawn(async || announce(vec![SERVER.into()]).await).unwrap();
    until_known(&client, &now, || {});
    announcing.join().unwrap().unwrap();
}
