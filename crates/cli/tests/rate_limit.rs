//! `oooi dns --rate-limit`: a client that asks too much by UDP is sent to TCP, and others are not touched.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const RATE: u16 = 20;

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
    let mut bytes = id.to_be_bytes().to_vec();
    bytes.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    bytes.extend(b"\x03api\x01x\x07example\x03com\x00\x00\x01\x00\x01");
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

fn start(port: u16, directory: &std::path::Path) -> Process {
    let manifest = directory.join("dnsserver.yaml");
    let text = format!(
        "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: DNSServer\nmetadata: {{name: x-dns}}\nspec:\n\
         \x20 networkConfig: {{serverIP: 127.0.0.1, proxyIP: 127.0.0.9, secondaryNetworkCIDR: 127.0.0.0/8, dnsPort: {port}}}\n\
         \x20 hostedClusterDomain: x.example.com\n\
         \x20 staticEntries: [{{hostname: api.x.example.com, ip: 127.0.0.9}}]\n"
    );
    std::fs::write(&manifest, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_oooi"));
    command
        .args(["dns", "--rate-limit", &RATE.to_string(), "-f"])
        .arg(manifest);
    for pages in [
        "--metrics-bind-address",
        "--health-bind-address",
        "--ready-bind-address",
    ] {
        command.args([pages, "127.0.0.1:0"]);
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
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let asked = question(7);
    stream.write_all(&u16::try_from(asked.len()).unwrap().to_be_bytes())?;
    stream.write_all(&asked)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_client_over_its_rate_is_sent_to_tcp_and_others_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = start(port, directory.path());
    // By TCP nothing is limited, so that this takes nothing from the rate.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while let Err(error) = by_tcp(port) {
        assert!(std::time::Instant::now() < deadline, "no answer: {error}");
        std::thread::yield_now();
    }

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
    // Each core has buckets of its own, but one client's socket is heard by one core. The questions take far less than
    // a second, in which the bucket fills once more.
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
