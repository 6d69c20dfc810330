//! Two views from two network namespaces, asked by the resolvers of glibc and musl.
//!
//! Needs root, iproute2, bind9-dnsutils and musl-tools; it says so and fails where one is missing.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

mod support;

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use oooi_api::report::Recorded;
use oooi_dns::{Config, Listeners, Names, Options, Server};
use support::process::run;
use support::{spec, until};
use tokio::sync::{oneshot, watch};

/// Network namespaces of one test; they are removed when it ends.
struct Lab {
    names: Vec<String>,
}

fn ip(arguments: &[&str]) {
    run("iproute2", Command::new("ip").args(arguments));
}

impl Lab {
    /// A server between two networks, with one client in each.
    fn build() -> Lab {
        let names: Vec<String> = ["srv", "node", "pod"]
            .iter()
            .map(|name| format!("dns{}{name}", std::process::id()))
            .collect();
        let lab = Lab { names };
        for name in &lab.names {
            ip(&["netns", "add", name]);
            ip(&["-n", name, "link", "set", "lo", "up"]);
        }
        lab.wire("vlan", &lab.names[1], "10.77.0.3/24", "10.77.0.20/24");
        lab.wire("pod", &lab.names[2], "10.78.0.3/24", "10.78.0.20/24");
        lab
    }

    fn wire(&self, link: &str, client: &str, server_address: &str, client_address: &str) {
        let server = &self.names[0];
        let kind = ["type", "veth", "peer", "name", "eth0", "netns", client];
        ip(&[&["-n", server, "link", "add", link][..], &kind].concat());
        for (name, device, address) in [
            (server.as_str(), link, server_address),
            (client, "eth0", client_address),
        ] {
            ip(&["-n", name, "address", "add", address, "dev", device]);
            ip(&["-n", name, "link", "set", device, "up"]);
        }
    }

    /// Runs a program in a namespace, with a `resolv.conf` that names one resolver.
    fn run(&self, at: usize, resolver: &str, folder: &Path, program: &[&str]) -> (bool, String) {
        let file = folder.join(format!("resolv-{at}.conf"));
        std::fs::write(
            &file,
            format!("nameserver {resolver}\noptions timeout:2 attempts:1\n"),
        )
        .expect("a file");
        // In a mount namespace of its own, so that nothing of the host changes.
        let script = format!("mount --bind {} /etc/resolv.conf && exec \"$@\"", file.display());
        let mut command = Command::new("ip");
        command
            .args([
                "netns",
                "exec",
                &self.names[at],
                "unshare",
                "-m",
                "sh",
                "-c",
                &script,
                "sh",
            ])
            .args(program);
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("{command:?} cannot be run ({error})"));
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    /// Binds in the server's namespace: a thread goes there, and its sockets stay there.
    fn bind(&self, addresses: &[SocketAddr]) -> Listeners {
        let path = format!("/var/run/netns/{}", self.names[0]);
        let bind = || {
            let namespace = File::open(&path).expect("the namespace");
            let kind = rustix::thread::LinkNameSpaceType::Network;
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(kind)).expect("to go there");
            Listeners::bind(addresses, &[], 2).expect("its addresses can be bound")
        };
        std::thread::scope(|scope| scope.spawn(bind).join().expect("the thread ends"))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).status();
        }
    }
}

/// A program that asks musl's resolver.
fn musl_program(folder: &Path) -> PathBuf {
    let source = folder.join("lookup.c");
    let text = r#"
#include <netdb.h>
#include <stdio.h>
#include <arpa/inet.h>
int main(int argc, char **argv) {
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
    int error = getaddrinfo(argv[1], NULL, &hints, &found);
    if (error) { printf("%s\n", gai_strerror(error)); return 2; }
    for (; found; found = found->ai_next) {
        char text[64];
        getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
        printf("%s\n", text);
    }
    return 0;
}
"#;
    std::fs::write(&source, text).expect("a file");
    let program = folder.join("lookup");
    run(
        "musl-tools",
        Command::new("musl-gcc")
            .args(["-static", "-o"])
            .arg(&program)
            .arg(&source),
    );
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn glibc_and_musl_resolve_each_in_their_own_view() {
    assert!(
        rustix::process::geteuid().is_root(),
        "network namespaces need root; run this test as root"
    );
    let lab = Lab::build();
    let folder = tempfile::tempdir().expect("a folder");
    let lookup = musl_program(folder.path());
    let spec = spec(|spec| {
        spec.network_config.server_ip = "10.77.0.3/24".into();
        spec.network_config.proxy_ip = "10.77.0.4".into();
        spec.static_entries[0].ip = "10.77.0.4".into();
        spec.static_entries[1].ip = "10.77.0.4".into();
        spec.static_entries[2].ip = "10.77.0.9".into();
    });
    let config = Config::from_spec(&spec).expect("a sound specification");
    let addresses = ["10.77.0.3:53", "10.78.0.3:53"].map(|text| text.parse().expect("an address"));
    let listeners = lab.bind(&addresses);
    let server = Server::new(Options::default(), listeners.cores());
    let probes = server.probes();
    let (_config, config) = watch::channel(Arc::new(config));
    let mut names = Names::default();
    names.add("worker-1", IpAddr::from([10, 77, 0, 20]));
    let (_names, names) = watch::channel(Arc::new(names));
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(async move {
        let shutdown = async { drop(stopped.await) };
        server
            .run(listeners, config, names, Arc::new(Recorded::default()), shutdown)
            .await
    });
    until("the server is ready", || probes.is_ready()).await;

    let lookup = lookup.to_str().expect("a path").to_owned();
    let checks = move || {
        let node = |program: &[&str]| lab.run(1, "10.77.0.3", folder.path(), program);
        let pod = |program: &[&str]| lab.run(2, "10.78.0.3", folder.path(), program);
        let first = |(good, text): (bool, String)| {
            assert!(good, "{text}");
            text.split_whitespace().next().unwrap_or_default().to_owned()
        };
        for name in ["api.hub.example.com", "console.apps.hub.example.com"] {
            assert_eq!(
                first(node(&["getent", "ahostsv4", name])),
                "10.77.0.4",
                "glibc on the VLAN"
            );
            assert_eq!(first(node(&[&lookup, name])), "10.77.0.4", "musl on the VLAN");
            assert_eq!(
                first(pod(&["getent", "hosts", name])),
                "172.30.0.9",
                "glibc in a pod"
            );
            assert_eq!(first(pod(&[&lookup, name])), "172.30.0.9", "musl in a pod");
        }
        let (good, text) = node(&["getent", "hosts", "10.77.0.20"]);
        assert!(good && text.contains("worker-1.hub.example.com"), "{text}");
        assert!(
            !node(&["getent", "hosts", "missing.hub.example.com"]).0,
            "glibc: a missing name"
        );
        assert!(
            !node(&[&lookup, "missing.hub.example.com"]).0,
            "musl: a missing name"
        );
        // The pod's answer must come from the pod's address, or its resolver would not take it.
        let (_, text) = pod(&["dig", "+tries=1", "api.hub.example.com"]);
        assert!(text.contains("SERVER: 10.78.0.3#53"), "{text}");
    };
    tokio::task::spawn_blocking(checks)
        .await
        .expect("the checks pass");
    drop(stop);
    running.await.expect("it ends").expect("in order");
}
