//! A tenant of the VLAN: where a worker of a hosted cluster would stand.
//!
//! A tenant is one sleeping process that holds a network, mount and host-name namespace. Its network
//! has nothing but loopback and `eth0`, a port of the bridge without an address; one that is a router gets
//! further ones. Its `/etc` has files of its own where a DHCP client writes: `resolv.conf`, `hosts`;
//! `/var/lib/dhcp` is its own too.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{
    Error,
    error::Context,
    machine::{DIE_WITH_PARENT, Place, ip},
    process::{self, Process},
    until,
};

/// Runs in the tenant's namespaces: its own files, then nothing.
const HOLD: &str = r#"
set -eu
mount -t tmpfs -o mode=755 tenant /run
mount -t tmpfs -o mode=755 tenant /var/lib
mkdir -p /var/lib/dhcp /var/lib/dhcpcd
# Often a link into /run, which is empty now.
resolver="$(readlink -m /etc/resolv.conf)"
if [ ! -e "$resolver" ]; then mkdir -p "${resolver%/*}"; : > "$resolver"; fi
mount --bind "$FILES/resolv.conf" "$resolver"
mount --bind "$FILES/hosts" /etc/hosts
echo "$NAME" > /proc/sys/kernel/hostname
ip link set lo up
: > "$FILES/up"
exec sleep infinity
"#;

/// Tells the tenants of this process apart, and their interfaces.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A network namespace on the VLAN. Dropping it removes it with its interfaces.
pub struct Tenant {
    name: String,
    machine: Place,
    // Dropped before the namespaces that they run in.
    programs: Vec<Process>,
    holder: Process,
    files: PathBuf,
}

impl Tenant {
    pub(crate) async fn start(state: &Path, machine: Place, vlan: &str, name: &str) -> Result<Self, Error> {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{count}", std::process::id());
        let files = state.join("tenants").join(format!("{name}-{id}"));
        let put = || -> std::io::Result<()> {
            fs::create_dir_all(&files)?;
            fs::write(files.join("resolv.conf"), "")?;
            fs::write(files.join("hosts"), "127.0.0.1 localhost\n")
        };
        put().context(|| format!("cannot create the files of tenant {name} in {}", files.display()))?;

        // Entered without its PID namespace, so that the holder is this process's own child, dies with it,
        // and can be named to the kernel by the id that we know.
        let Place::Machine(init) = machine else {
            return Err(Error::NotRoot);
        };
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", init.as_raw_nonzero()))
            .args(["--mount", "--net", "--uts", "--"]);
        command.args(["unshare", "--net", "--mount", "--uts", "sh", "-c", HOLD]);
        command.env("FILES", &files).env("NAME", name);
        let mut holder = Process::start("holder", command, &files)?;
        let up = files.join("up");
        let started = until(
            "the tenant's namespaces",
            Duration::from_secs(10),
            async || match holder.check() {
                Err(error) => Ok(Err(error)),
                Ok(()) if up.exists() => Ok(Ok(())),
                Ok(()) => Err("no file `up`"),
            },
        );
        started.await??;

        let tenant = Self {
            name: name.to_owned(),
            machine,
            programs: Vec::new(),
            holder,
            files,
        };
        tenant.plug(vlan, "eth0")?;
        Ok(tenant)
    }

    /// Puts an interface of its own on the bridge of a VLAN. The names at the bridge are unique by process and count.
    pub fn plug(&self, vlan: &str, interface: &str) -> Result<(), Error> {
        let Place::Machine(init) = self.machine else {
            return Err(Error::NotRoot);
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let port = format!("t{:x}-{count:x}", std::process::id());
        let mut add = Command::new("nsenter");
        add.arg(format!("--target={}", init.as_raw_nonzero()))
            .args(["--net", "--", "ip", "link", "add", &port, "type", "veth"]);
        add.args(["peer", "name", interface, "netns", &self.holder.id().to_string()]);
        process::output(add)?;
        ip(self.machine, &format!("link set {port} master {vlan} up"))?;
        self.run("ip", &["link", "set", interface, "up"]).map(drop)
    }

    /// Where the files of its own lie, and the logs of its programs.
    pub(crate) fn files(&self) -> &Path {
        &self.files
    }

    /// Keeps a program running as long as the tenant is there.
    pub(crate) fn keep(&mut self, program: Process) {
        self.programs.push(program);
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives `eth0` an address by hand, as `192.168.100.50/24`.
    pub fn address(&self, address: &str) -> Result<(), Error> {
        self.run("ip", &["address", "add", address, "dev", "eth0"])
            .map(drop)
    }

    /// A command that will run in the tenant, as a process of the machine.
    pub fn command(&self, program: &str) -> Command {
        let holder = format!("/proc/{}/ns", self.holder.id());
        let mut command = Command::new("nsenter");
        for (option, file) in [("mount", "mnt"), ("net", "net"), ("uts", "uts")] {
            command.arg(format!("--{option}={holder}/{file}"));
        }
        if let Place::Machine(init) = self.machine {
            command.arg(format!("--pid=/proc/{}/ns/pid", init.as_raw_nonzero()));
        }
        command.arg("--").args(DIE_WITH_PARENT).arg(program);
        command
    }

    /// Runs a command in the tenant and gives its standard output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        let mut command = self.command(program);
        command.args(arguments);
        process::output(command)
    }

    /// Starts a command that goes on beside the test, such as a server. It ends when the child is killed,
    /// and with the runner.
    pub fn spawn(&self, program: &str, arguments: &[&str]) -> Result<Child, Error> {
        let mut command = self.command(program);
        command.args(arguments);
        process::spawn(command).context(|| format!("cannot start {program} in tenant {}", self.name))
    }

    /// What a DHCP client or a test wrote as the tenant's resolver configuration.
    pub fn resolv_conf(&self) -> Result<String, Error> {
        let path = self.files.join("resolv.conf");
        fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // Goes with the state directory otherwise.
        let _ = fs::remove_dir_all(&self.files);
    }
}
