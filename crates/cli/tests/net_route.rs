//! `oooi route` in a pod on two networks, with a client beyond the gateway of the second one. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use oooi_net::{Namespace, Network};
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// The pod on the VLAN.
const SERVER: &str = "192.168.100.4:53";

/// Joins two namespaces: an interface and its address in each.
fn wire(
    from: &Namespace,
    near: (&'static str, &'static str),
    to: &Namespace,
    far: (&'static str, &'static str),
) {
    let other = to.clone();
    from.run(async move || {
        let network = Network::open().unwrap();
        network.add_veth(near.0, far.0, &other).await.unwrap();
    })
    .unwrap();
    for (namespace, (name, address)) in [(from, near), (to, far)] {
        namespace
            .run(async move || {
                let network = Network::open().unwrap();
                network.set_up(name).await.unwrap();
                network.add_address(name, address.parse().unwrap()).await.unwrap();
            })
            .unwrap();
    }
}

fn route(namespace: &Namespace, to: &'static str, by: &'static str) {
    namespace
        .run(async move || {
            let network = Network::open().unwrap();
            network
                .add_route(to.parse().unwrap(), by.parse().unwrap())
                .await
                .unwrap();
        })
        .unwrap();
}

fn oooi_route(pod: &Namespace, interface: &str, gateway: &str) -> Output {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", pod.path().display()));
    command.arg(env!("CARGO_BIN_EXE_oooi"));
    command.args(["route", "--interface", interface, "--gateway", gateway]);
    command.output().unwrap()
}

/// Whether the client beyond the gateway hears from the server.
fn is_answered(client: &Namespace) -> bool {
    client
        .run(async || {
            let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
            socket.connect(SERVER).await.unwrap();
            socket.send(b"?").await.unwrap();
            timeout(Duration::from_millis(500), socket.recv(&mut [0; 8]))
                .await
                .is_ok_and(|heard| heard.is_ok())
        })
        .unwrap()
}

#[test]
fn answers_leave_by_the_network_that_the_question_came_from() {
    let [pod, node, router, client] =
        ["pod", "node", "router", "client"].map(|name| Namespace::new(name).unwrap());
    wire(&pod, ("eth0", "10.244.0.7/24"), &node, ("pod0", "10.244.0.1/24"));
    wire(
        &pod,
        ("net1", "192.168.100.4/24"),
        &router,
        ("vlan", "192.168.100.1/24"),
    );
    wire(
        &client,
        ("eth0", "10.50.0.9/24"),
        &router,
        ("lan", "10.50.0.1/24"),
    );
    route(&pod, "0.0.0.0/0", "10.244.0.1");
    route(&client, "0.0.0.0/0", "10.50.0.1");
    router
        .run(async || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap())
        .unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let server = pod
        .spawn(async move || {
            let socket = UdpSocket::bind(SERVER.parse::<SocketAddr>().unwrap())
                .await
                .unwrap();
            ready.send(()).unwrap();
            let echo = async {
                let mut bytes = [0; 8];
                loop {
                    let (length, from) = socket.recv_from(&mut bytes).await.unwrap();
                    socket.send_to(&bytes[..length], from).await.unwrap();
                }
            };
            tokio::select! { () = echo => {}, _ = stopped => {} }
        })
        .unwrap();
    is_ready.recv().unwrap();

    assert!(
        !is_answered(&client),
        "the answer should leave by the pod network, and be lost"
    );
    for _ in 0..2 {
        let done = oooi_route(&pod, "net1", "192.168.100.1");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(is_answered(&client));
    }

    let wrong = oooi_route(&pod, "net1", "192.168.200.1");
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(
        said.contains("192.168.200.1 is not in a network of net1"),
        "{said}"
    );
    assert_eq!(oooi_route(&pod, "net9", "192.168.100.1").status.code(), Some(2));
    drop(stop);
    server.join().unwrap().unwrap();
}
