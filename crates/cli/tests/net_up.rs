//! `oooi up` on a veth, with dhclient, dig, curl and openssl as its clients. Needs root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod wire;

use std::process::Command;

use oooi_net::Network;
use wire::{MANIFEST, StopByPid, Wire, pid, until, write_executable};

#[test]
fn a_client_boots_through_it_and_edits_apply_live() {
    let wire = Wire::new();
    let (certificate, key) = (wire.path("cert.pem"), wire.path("key.pem"));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=api",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:api.up.example.com",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let _backend = wire.start(
        "openssl",
        &[
            "s_server",
            "-accept",
            "10.99.0.1:6443",
            "-cert",
            &certificate,
            "-key",
            &key,
            "-www",
            "-quiet",
        ],
    );
    let mut up = wire.up();

    // dhclient asks and tells its script, which sets the interface up; the host's own files are not touched.
    let script = wire.path("script");
    let body = "#!/bin/sh\n[ -n \"$new_ip_address\" ] && ip address replace $new_ip_address/24 dev $interface\nexit 0\n";
    write_executable(&script, body);
    let arguments = [
        "-1",
        "-v",
        "-sf",
        &script,
        "-lf",
        &wire.path("leases"),
        "-pf",
        &wire.path("pid"),
        "eth0",
    ];
    let asked = wire.client("dhclient", &arguments);
    let shown = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(shown.contains("bound to 192.168.100.100"), "{shown}");
    let _dhclient = StopByPid(wire.path("pid"));

    wire.dig("api.up.example.com", "192.168.100.4");
    let page = wire.client(
        "curl",
        &[
            "--silent",
            "--show-error",
            "--max-time",
            "10",
            "--cacert",
            &certificate,
            "--resolve",
            "api.up.example.com:6443:192.168.100.4",
            "https://api.up.example.com:6443/",
        ],
    );
    let body = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(
        body.contains("s_server"),
        "{body}{}",
        String::from_utf8_lossy(&page.stderr)
    );

    let entry = "clusterName: up, staticEntries: [{hostname: new.up.example.com, ip: 192.168.100.9}]";
    std::fs::write(
        wire.path("infra.yaml"),
        MANIFEST.replace("clusterName: up", entry),
    )
    .unwrap();
    wire.dig("new.up.example.com", "192.168.100.9");
    // A change that is wrong is refused, and what ran before goes on.
    std::fs::write(
        wire.path("infra.yaml"),
        MANIFEST.replace("192.168.100.3", "192.168.100.2"),
    )
    .unwrap();
    wire.dig("new.up.example.com", "192.168.100.9");

    rustix::process::kill_process(pid(&up.0), rustix::process::Signal::TERM).unwrap();
    assert!(up.0.wait().unwrap().success());
    assert_eq!(
        wire.host_addresses(),
        [] as [&str; 0],
        "its addresses stayed on the interface"
    );
}

#[test]
fn an_interface_that_is_not_there_is_named_at_once() {
    let wire = Wire::new();
    let mut command = wire.up_command("none0");
    let ended = wire.host.run(async move || command.output().unwrap()).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(shown.contains("there is no interface none0 here"), "{shown}");
}

#[test]
fn an_address_that_another_station_has_is_left_to_it() {
    let wire = Wire::new();
    wire.give_client("192.168.100.3/24");
    let mut command = wire.up_command("vlan0");
    let ended = wire.host.run(async move || command.output().unwrap()).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        shown.contains("192.168.100.3 is used on vlan0 already, by "),
        "{shown}"
    );
    assert!(shown.contains("change the one in the manifest"), "{shown}");
    assert_eq!(
        wire.host_addresses(),
        [] as [&str; 0],
        "nothing was put on the interface"
    );
}

#[test]
fn an_address_that_changes_in_the_file_changes_on_the_interface() {
    let wire = Wire::new();
    let mut up = wire.up_logged();
    wire.dig_by_itself();
    let moved = MANIFEST.replace(
        "proxy: {serverIP: 192.168.100.4",
        "proxy: {serverIP: 192.168.100.44",
    );
    std::fs::write(wire.path("infra.yaml"), moved).unwrap();
    wire.dig("api.up.example.com", "192.168.100.44");
    until(|| {
        let reached = wire.client.run(async || {
            tokio::net::TcpStream::connect("192.168.100.44:443")
                .await
                .map(drop)
        });
        reached.unwrap().map_err(|error| error.to_string())
    });
    let addresses = wire.host_addresses();
    assert!(
        !addresses.contains(&"192.168.100.4/24".to_owned()),
        "{addresses:?}"
    );
    assert_eq!(up.terminate(), Some(0));
    assert_eq!(
        wire.host_addresses(),
        [] as [&str; 0],
        "its addresses stayed on the interface"
    );
}

#[test]
fn a_dhcp_server_by_itself_says_who_has_its_address_and_ends_when_its_interface_is_gone() {
    let wire = Wire::new();
    wire.give_client("192.168.100.2/24");
    let manifest = wire.path("dhcpserver.yaml");
    let text = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: DHCPServer\nmetadata: {name: up-dhcp}\nspec:\n  \
                networkConfig: {cidr: 192.168.100.0/24, gateway: 192.168.100.1, serverIP: 192.168.100.2}\n  \
                leaseConfig: {rangeStart: 192.168.100.100, rangeEnd: 192.168.100.200}\n";
    std::fs::write(&manifest, text).unwrap();
    let state = wire.path("state");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oooi"));
    command.args([
        "dhcp",
        "-f",
        &manifest,
        "--interface",
        "vlan0",
        "--state-dir",
        &state,
    ]);
    let mut dhcp = wire.logged(command);
    dhcp.says("serving DHCP");
    dhcp.says("another station has the server's address");
    wire.host
        .run(async || Network::open().unwrap().remove("vlan0").await.unwrap())
        .unwrap();
    dhcp.says("oooi: the interface vlan0 is gone: bring it back");
    assert_eq!(dhcp.process.0.wait().unwrap().code(), Some(1));
}

#[test]
fn a_port_that_is_taken_stops_one_server_alone_until_it_is_free() {
    let wire = Wire::new();
    let address = "192.168.100.3/24".parse().unwrap();
    let put = async move || {
        Network::open()
            .unwrap()
            .add_address("vlan0", address)
            .await
            .unwrap();
    };
    wire.host.run(put).unwrap();
    let taken = wire
        .host
        .run(async || std::net::UdpSocket::bind("192.168.100.3:53").unwrap())
        .unwrap();
    let mut up = wire.up_logged();
    up.says("cannot listen on UDP 192.168.100.3:53: another server has it");
    // The others go on: the gateway takes connections.
    wire.give_client("192.168.100.99/24");
    until(|| {
        let reached = wire.client.run(async || {
            tokio::net::TcpStream::connect("192.168.100.4:443")
                .await
                .map(drop)
        });
        reached.unwrap().map_err(|error| error.to_string())
    });
    drop(taken);
    wire.dig("api.up.example.com", "192.168.100.4");
    assert_eq!(up.terminate(), Some(0), "it recovered");
}

#[test]
fn a_server_that_does_not_run_at_the_end_is_told_by_the_exit_code() {
    let wire = Wire::new();
    let mut up = wire.up_logged();
    wire.dig_by_itself();
    wire.host
        .run(async || Network::open().unwrap().remove("vlan0").await.unwrap())
        .unwrap();
    up.says("the server failed; the others go on");
    up.says("there is no interface vlan0");
    assert_eq!(up.terminate(), Some(1));
}

#[test]
fn without_the_right_to_add_addresses_it_says_how_to() {
    use std::os::unix::process::CommandExt;
    let wire = Wire::new();
    // Others may not be allowed into the directory of the build.
    let open = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let (binary, manifest) = (open.path().join("oooi"), open.path().join("infra.yaml"));
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_oooi"))
        .arg(&binary)
        .status();
    assert!(copied.unwrap().success());
    std::fs::write(&manifest, MANIFEST).unwrap();
    let mut command = Command::new(binary);
    command
        .args(["up", "--interface", "vlan0", "--state-dir", "/nonexistent", "-f"])
        .arg(manifest)
        .uid(65534)
        .gid(65534);
    let ended = wire.host.run(async move || command.output().unwrap()).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        shown.contains("ip address add 192.168.100.2/24 dev vlan0"),
        "{shown}"
    );
}

#[test]
fn a_virtual_machine_in_the_file_gives_its_node_a_name_by_dhcp_and_by_dns() {
    let wire = Wire::new();
    let mac = wire
        .client
        .run(async || Network::open().unwrap().state("eth0").await.unwrap().mac.unwrap())
        .unwrap();
    let mac: Vec<String> = mac.iter().map(|octet| format!("{octet:02x}")).collect();
    let machine = format!(
        "---\napiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {{name: pool-a-x7}}\n\
         spec: {{domain: {{devices: {{interfaces: [{{name: vlan, macAddress: \"{}\"}}]}}}}}}\n",
        mac.join(":")
    );
    std::fs::write(wire.path("infra.yaml"), format!("{MANIFEST}{machine}")).unwrap();
    let _up = wire.up();
    let script = wire.path("script");
    let seen = wire.path("seen");
    write_executable(
        &script,
        &format!("#!/bin/sh\necho \"$new_host_name\" >> {seen}\nexit 0\n"),
    );
    let (leases, pid) = (wire.path("leases"), wire.path("pid"));
    wire.client(
        "dhclient",
        &["-1", "-sf", &script, "-lf", &leases, "-pf", &pid, "eth0"],
    );
    let _dhclient = StopByPid(pid);
    let names = std::fs::read_to_string(&seen).unwrap();
    assert!(names.lines().any(|line| line == "pool-a-x7"), "{names}");
    // The lease gives the name to DNS, and takes it away with it.
    wire.give_client("192.168.100.99/24");
    wire.dig("pool-a-x7.up.example.com", "192.168.100.100");
    let mut release = Command::new(env!("CARGO_BIN_EXE_oooi"));
    release.args([
        "leases",
        "--state-dir",
        &wire.path("state"),
        "release",
        "192.168.100.100",
    ]);
    let released = release.output().unwrap();
    assert!(
        released.status.success(),
        "{}",
        String::from_utf8_lossy(&released.stderr)
    );
    wire.dig("pool-a-x7.up.example.com", "");
}
