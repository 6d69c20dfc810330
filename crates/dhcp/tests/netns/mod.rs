//! A network of our own: a bridge in a network namespace, and a namespace for each station on it.
//!
//! Namespaces have no names: a file descriptor holds each, and dropping it removes the namespace with all that is
//! in it. Tests that use them need root, and fail without it.

#![allow(
    dead_code,
    unsafe_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "each test uses a part of it; entering a namespace before exec has no safe wrapper"
)]

pub mod relay;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A network namespace.
pub struct Namespace(OwnedFd);

impl Namespace {
    pub fn new() -> Self {
        let open = || {
            // SAFETY: only this thread, which ends here, changes its namespace.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(
                result,
                0,
                "cannot make a network namespace: {}; run as root",
                std::io::Error::last_os_error()
            );
            File::open("/proc/thread-self/ns/net").expect("the namespace of a thread")
        };
        let namespace = Namespace(std::thread::spawn(open).join().expect("a namespace").into());
        namespace.run("ip link set lo up");
        namespace
    }

    /// A command that will run inside.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let fd: RawFd = self.0.as_raw_fd();
        // SAFETY: setns is a bare system call and touches no memory of the parent.
        unsafe {
            command.pre_exec(move || match libc::setns(fd, libc::CLONE_NEWNET) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        command
    }

    /// Runs a command inside, which must succeed, and returns what it prints.
    pub fn run(&self, line: &str) -> String {
        let mut words = line.split_whitespace();
        let output = self
            .command(words.next().unwrap())
            .args(words)
            .output()
            .expect(line);
        assert!(
            output.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Broadcasts one packet on the station's link.
    pub fn broadcast(&self, from: u16, to: u16, packet: &[u8]) {
        self.enter(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, from)).unwrap();
            socket2::SockRef::from(&socket)
                .bind_device(Some(b"eth0"))
                .unwrap();
            socket.set_broadcast(true).unwrap();
            socket.send_to(packet, (Ipv4Addr::BROADCAST, to)).unwrap();
        });
    }

    /// Runs a function in a thread inside.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let fd = self.0.as_raw_fd();
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                // SAFETY: only this thread, which ends with the function, changes its namespace.
                assert_eq!(unsafe { libc::setns(fd, libc::CLONE_NEWNET) }, 0);
                body()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// A link with a bridge `br0` in the middle; the server stands on the bridge.
pub struct Lan {
    pub server: Namespace,
    stations: u8,
}

impl Lan {
    /// A link on which the server has this address.
    pub fn new(address: &str) -> Self {
        let server = Namespace::new();
        server.run("ip link add br0 type bridge");
        server.run(&format!("ip addr add {address} dev br0"));
        server.run("ip link set br0 up");
        Lan { server, stations: 0 }
    }

    /// A new station, whose interface is `eth0`.
    pub fn attach(&mut self) -> Namespace {
        self.stations += 1;
        let (station, port) = (Namespace::new(), format!("p{}", self.stations));
        self.server.run(&format!(
            "ip link add {port} type veth peer name eth0 netns {}",
            station.path()
        ));
        self.server.run(&format!("ip link set {port} master br0 up"));
        station.run("ip link set eth0 up");
        station
    }

    /// A new station on a link of its own, and before it a router with `eth0` here and `eth1` there.
    pub fn attach_behind_router(&mut self) -> (Namespace, Namespace) {
        let (router, station) = (self.attach(), Namespace::new());
        router.run(&format!(
            "ip link add eth1 type veth peer name eth0 netns {}",
            station.path()
        ));
        router.run("ip link set eth1 up");
        station.run("ip link set eth0 up");
        (router, station)
    }
}

/// A process that ends with its owner.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: i32) {
        // SAFETY: the process is our child and not waited for yet, so its number is its own.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }

    /// Ends it as nothing can prepare for.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The example server on the bridge of a link, once it is ready.
pub fn serve(lan: &Lan, spec: &Path, directory: &Path) -> Process {
    serve_with(lan, spec, directory, &[])
}

/// The same with variables of its environment.
pub fn serve_with(lan: &Lan, spec: &Path, directory: &Path, variables: &[(&str, &Path)]) -> Process {
    let deps = std::env::current_exe().unwrap();
    let program = deps.parent().unwrap().parent().unwrap().join("examples/serve");
    assert!(
        program.exists(),
        "{} is missing: `cargo test -p oooi-dhcp` builds it",
        program.display()
    );
    let log = File::create(directory.with_extension("log")).unwrap();
    let mut child = lan
        .server
        .command(program)
        .args([spec.as_os_str(), "br0".as_ref(), directory.as_os_str()])
        .env("RUST_LOG", "oooi_dhcp=debug")
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(
        line,
        "ready\n",
        "the server did not start: {}",
        read(&directory.with_extension("log"))
    );
    Process(child)
}

/// Waits until something is so.
pub fn await_that(what: &str, mut so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !so() {
        assert!(started.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// A directory with the specification of a server in it, the state beside.
pub struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub fn new(spec: &str) -> Self {
        let home = Home {
            directory: tempfile::tempdir().unwrap(),
        };
        home.write(spec);
        home
    }

    pub fn write(&self, spec: &str) {
        std::fs::write(self.spec(), spec).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn spec(&self) -> PathBuf {
        self.path().join("spec.yaml")
    }

    pub fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub fn log(&self) -> String {
        read(&self.state().with_extension("log"))
    }

    pub fn leases(&self) -> Vec<oooi_dhcp::lease::Lease> {
        oooi_dhcp::ledger::list(&self.state()).unwrap()
    }

    pub fn lease(&self, address: Ipv4Addr) -> Option<oooi_dhcp::lease::Lease> {
        self.leases().into_iter().find(|lease| lease.address == address)
    }
}
