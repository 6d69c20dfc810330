//! `oooi dns` as a process: its pages, its flags, and a manifest that changes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RATE: u16 = 20;

/// As long as a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A question for `api.x.example.com`, an address wanted.
fn question(id: u16) -> Vec<u8> {
    question_for("api", id)
}

/// A question for a host of `x.example.com`.
fn question_for(host: &str, id: u16) -> Vec<u8> {
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    bytes.push(u8::try_from(host.len()).unwrap());
    bytes.extend(host.as_bytes());
    bytes.extend(b"\x01x\x07example\x03com\x00\x00\x01\x00\x01");
    bytes
}

/// Whether the answer has TC.
fn is_truncated(answer: &[u8]) -> bool {
    answer[2] & 0x02 != 0
}

fn answers(answer: &[u8]) -> u16 {
    u16::from_be_bytes([answer[6], answer[7]])
}

/// A free port of 127.0.0.1, for UDP and TCP.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Writes the manifest of a server at this port.
fn write_manifest(port: u16, directory: &Path) -> PathBuf {
    write_manifests(port, directory, "")
}

/// The same with other manifests beside it.
fn write_manifests(port: u16, directory: &Path, others: &str) -> PathBuf {
    let manifest = directory.join("dnsserver.yaml");
    let text = format!(
        "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: DNSServer\nmetadata: {{name: x-dns}}\nspec:\n\
         \x20 networkConfig: {{serverIP: 127.0.0.1, proxyIP: 127.0.0.9, secondaryNetworkCIDR: 127.0.0.0/8, dnsPort: {port}}}\n\
         \x20 hostedClusterDomain: x.example.com\n\
         \x20 staticEntries: [{{hostname: api.x.example.com, ip: 127.0.0.9}}]\n{others}"
    );
    // Whole from one moment to the next: nobody reads half of it.
    let draft = directory.join("draft");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, &manifest).unwrap();
    manifest
}

/// Starts a server at this port; pages are where the arguments say, else anywhere.
fn start(port: u16, directory: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oooi"));
    command
        .arg("dns")
        .args(arguments)
        .arg("-f")
        .arg(write_manifest(port, directory));
    for pages in [
        "--metrics-bind-address",
        "--health-bind-address",
        "--ready-bind-address",
    ] {
        if !arguments.contains(&pages) {
            command.args([pages, "127.0.0.1:0"]);
        }
    }
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let process = Process(child);
    // Read for as long as it runs, or a full pipe would stop it.
    std::thread::spawn(move || log.lines().for_each(drop));
    process
}

/// Asks once by TCP, as a client does that got TC.
fn by_tcp(port: u16) -> std::io::Result<Vec<u8>> {
    ask_by_tcp(port, &question(7))
}

fn ask_by_tcp(port: u16, asked: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(&u16::try_from(asked.len()).unwrap().to_be_bytes())?;
    stream.write_all(asked)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Waits until there is an answer by TCP.
fn until_it_answers(port: u16) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = by_tcp(port) {
        assert!(Instant::now() < deadline, "no answer: {error}");
        std::thread::yield_now();
    }
}

/// The status and the text of a page.
fn page(port: u16, path: &str) -> std::io::Result<(String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = text.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned();
    Ok((status, body))
}

#[test]
fn health_and_ready_have_a_page_each_that_says_so_while_it_serves() {
    let directory = tempfile::tempdir().unwrap();
    let [port, health, ready] = [free_port(), free_port(), free_port()];
    let at = [health, ready].map(|port| format!("127.0.0.1:{port}"));
    let arguments = ["--health-bind-address", &at[0], "--ready-bind-address", &at[1]];
    let _server = start(port, directory.path(), &arguments);
    until_it_answers(port);
    let ok = ("200".to_owned(), "ok".to_owned());
    assert_eq!(page(health, "/health").unwrap(), ok);
    assert_eq!(page(ready, "/ready").unwrap(), ok);
    assert_eq!(page(health, "/ready").unwrap().0, "404");
    assert_eq!(page(ready, "/health").unwrap().0, "404");
}

#[test]
fn another_port_in_the_manifest_is_listened_on_and_the_old_one_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let [old, new] = [free_port(), free_port()];
    let _server = start(old, directory.path(), &[]);
    until_it_answers(old);
    write_manifest(new, directory.path());
    until_it_answers(new);
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", old)).is_ok() {
        assert!(Instant::now() < deadline, "the old port is still open");
        std::thread::yield_now();
    }
}

#[test]
fn machines_of_the_manifests_have_names_while_they_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = start(port, directory.path(), &[]);
    until_it_answers(port);
    let machine = "---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker-1}
spec:
  domain: {devices: {interfaces: [{name: vlan, macAddress: '02:00:00:00:00:07'}]}}
  networks: [{name: vlan, multus: {networkName: vlan}}]
status: {interfaces: [{name: vlan, mac: '02:00:00:00:00:07', ipAddress: 127.0.0.17}]}
";
    for (others, known) in [(machine, true), ("", false)] {
        write_manifests(port, directory.path(), others);
        let is_known = || {
            let answer = ask_by_tcp(port, &question_for("worker-1", 7)).unwrap();
            answers(&answer) == 1 && answer.ends_with(&[127, 0, 0, 17])
        };
        let deadline = Instant::now() + PATIENCE;
        while is_known() != known {
            assert!(Instant::now() < deadline, "it should be known: {known}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_client_over_its_rate_is_sent_to_tcp_and_others_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = start(port, directory.path(), &["--rate-limit", &RATE.to_string()]);
    // By TCP nothing is limited, so that this takes nothing from the rate.
    until_it_answers(port);

    let greedy = UdpSocket::bind("127.0.0.1:0").unwrap();
    greedy.connect(("127.0.0.1", port)).unwrap();
    let asked = 10 * RATE;
    for id in 0..asked {
        greedy.send(&question(id)).unwrap();
    }
    greedy.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut answer = [0; 512];
    let (mut whole, mut truncated) = (0, 0);
    while let Ok(length) = greedy.recv(&mut answer) {
        if is_truncated(&answer[..length]) {
            assert_eq!(answers(&answer[..length]), 0);
            truncated += 1;
        } else {
            assert_eq!(answers(&answer[..length]), 1);
            whole += 1;
        }
    }
    // The questions take far less than a second, in which the bucket fills once more.
    assert!(
        (RATE..=2 * RATE).contains(&whole),
        "{whole} of {asked} were answered"
    );
    assert!(truncated > 0, "nobody was sent to TCP");
    assert!(whole + truncated < asked, "the rest is dropped");
    assert_eq!(answers(&by_tcp(port).unwrap()), 1);

    let modest = UdpSocket::bind("127.0.0.2:0").unwrap();
    modest.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    modest.send_to(&question(1), ("127.0.0.1", port)).unwrap();
    let length = modest.recv(&mut answer).unwrap();
    assert!(!is_truncated(&answer[..length]));
}
