//! Real programs: they are started in the foreground, ended when dropped, and must be installed.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that runs until it is dropped.
pub struct Process {
    child: Child,
    pub address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end; its output. A missing program is a failure that names the package.
pub fn run(package: &str, command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot be run ({error}); install the package {package}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?} failed:\n{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// `dig` from an address; its output.
pub fn dig(from: IpAddr, to: SocketAddr, arguments: &[&str]) -> String {
    let mut command = Command::new("dig");
    command.args(["+tries=1", "+time=6", "-b", &from.to_string()]);
    command
        .args([&format!("@{}", to.ip()), "-p", &to.port().to_string()])
        .args(arguments);
    run("bind9-dnsutils", &mut command)
}

/// `kdig` from an address; its output.
pub fn kdig(from: IpAddr, to: SocketAddr, arguments: &[&str]) -> String {
    let mut command = Command::new("kdig");
    command.args(["+retry=0", "+time=6", "-b", &from.to_string()]);
    command
        .args([&format!("@{}", to.ip()), "-p", &to.port().to_string()])
        .args(arguments);
    run("knot-dnsutils", &mut command)
}

fn write(path: &Path, text: &str) {
    std::fs::File::create(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .expect("a file is written");
}

/// Starts a program and waits until it answers DNS.
fn start(package: &str, mut command: Command, folder: tempfile::TempDir, address: SocketAddr) -> Process {
    let log = std::fs::File::create(folder.path().join("log")).expect("a log file");
    let errors = log.try_clone().expect("a log file");
    let child = command
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?} cannot be run ({error}); install the package {package}"));
    let mut process = Process {
        child,
        address,
        _folder: folder,
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !answers(address) {
        let ended = process.child.try_wait().expect("its state");
        let log = || std::fs::read_to_string(process._folder.path().join("log")).unwrap_or_default();
        assert!(ended.is_none(), "{command:?} ended:\n{}", log());
        assert!(
            Instant::now() < deadline,
            "{command:?} does not answer:\n{}",
            log()
        );
    }
    process
}

/// One question that every server answers by itself; any answer will do.
fn answers(address: SocketAddr) -> bool {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket
        .set_read_timeout(Some(Duration::from_millis(100)))
        .expect("a timeout");
    let question = b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07version\x04bind\x00\x00\x10\x00\x03";
    socket.send_to(question, address).is_ok() && socket.recv(&mut [0; 512]).is_ok()
}

/// `unbound`; `settings` go below its `server:` clause, `rest` behind it.
pub fn unbound(address: SocketAddr, settings: &str, rest: &str) -> Process {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let config = format!(
        "server:\n  interface: {}@{}\n  do-daemonize: no\n  username: \"\"\n  chroot: \"\"\n  directory: \"{}\"\n  \
         pidfile: \"\"\n  use-syslog: no\n  access-control: 127.0.0.0/8 allow\n  do-not-query-localhost: no\n  \
         module-config: \"iterator\"\n{settings}\nremote-control:\n  control-enable: no\n{rest}\n",
        address.ip(),
        address.port(),
        path.display()
    );
    write(&path.join("unbound.conf"), &config);
    let mut command = Command::new("/usr/sbin/unbound");
    command.args(["-d", "-c"]).arg(path.join("unbound.conf"));
    start("unbound", command, folder, address)
}

/// `knotd` with these zones, a name and a text each; signed where `signed` is.
pub fn knot(address: SocketAddr, zones: &[(&str, &str)], signed: bool) -> Process {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let mut config = format!(
        "server:\n  listen: {}@{}\n  rundir: \"{p}\"\n  user: root\ndatabase:\n  storage: \"{p}\"\nlog:\n  - target: stderr\n    \
         any: warning\nzone:\n",
        address.ip(),
        address.port(),
        p = path.display()
    );
    let signing = if signed { "on" } else { "off" };
    for (zone, text) in zones {
        write(&path.join(zone), text);
        config += &format!(
            "  - domain: {zone}\n    storage: \"{}\"\n    file: {zone}\n    zonefile-sync: -1\n    \
             dnssec-signing: {signing}\n",
            path.display()
        );
    }
    write(&path.join("knot.conf"), &config);
    let mut command = Command::new("/usr/sbin/knotd");
    command.arg("-c").arg(path.join("knot.conf"));
    start("knot", command, folder, address)
}
