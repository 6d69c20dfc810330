//! A machine of its own: PID, mount, network and host-name namespaces with a small first process.
//!
//! When that process dies, the kernel kills all others in it and drops its mounts, interfaces, routes
//! and packet filters; so a machine is removed by one signal and cannot leak any of them. It dies with
//! the runner by a parent-death signal, `unshare --kill-child` passing the runner's on.
//!
//! Inside, `/run`, `/var/lib`, `/var/log` and the machine's `volatile` directory are empty file systems
//! in memory: what container runtime, kubelet and network plugins write there ends with the machine.
//! One veth pair, `eth0` inside, links the machine to the host for the API server; nothing is routed.

use std::{
    ffi::OsStr,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Error,
    error::Context,
    process::{self, Process},
    state::State,
    until,
};

/// What the first process does: take its own view of the system, say that it is there, reap.
///
/// The shell's `wait` reaps orphans, which reach the first process of a PID namespace as they reach
/// init. The id is read before `/proc` is replaced, so that it is the one that the host knows.
const INIT: &str = r#"
set -eu
read -r pid rest < /proc/self/stat
mount -t proc proc /proc
for directory in /run /var/lib /var/log "$STATE/volatile"; do
    mount -t tmpfs -o mode=755 testbed "$directory"
done
mount --make-rshared /
echo "$NAME" > /proc/sys/kernel/hostname
ip link set lo up
echo "$pid" > "$STATE/init.partial"
mv "$STATE/init.partial" "$STATE/init"
sleep infinity & wait
"#;

/// Directories that [`INIT`] replaces; what the machine needs cannot lie below them.
const REPLACED: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// Where a process runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    /// In the namespaces of this process.
    Here,
    /// In those of the machine with this first process.
    Machine(Pid),
}

impl Place {
    /// A command that will run there.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Here => Command::new(program),
            Self::Machine(init) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--target={}", init.as_raw_nonzero()));
                command.args(["--mount", "--net", "--pid", "--uts", "--"]);
                command.args(DIE_WITH_PARENT).arg(program);
                command
            }
        }
    }
}

/// Entering a PID namespace needs a child of `nsenter`; by this, killing `nsenter` kills that child.
pub(crate) const DIE_WITH_PARENT: [&str; 4] = ["setpriv", "--pdeathsig", "KILL", "--"];

/// A running machine. Dropping it ends all that runs in it.
pub(crate) struct Machine {
    init: Pid,
    unshare: Process,
    link: Link,
}

/// The veth pair to the host.
struct Link {
    name: String,
    address: Ipv4Addr,
}

impl Machine {
    /// Starts a machine called `name`.
    pub(crate) async fn start(state: &State, name: &str) -> Result<Self, Error> {
        let path = state.path();
        for hidden in REPLACED {
            if path.starts_with(hidden) {
                return Err(Error::HiddenCache(path.to_owned()));
            }
        }
        let volatile = volatile(path);
        fs::create_dir_all(&volatile).context(|| format!("cannot create {}", volatile.display()))?;
        let mut command = Command::new("unshare");
        command.args([
            "--fork",
            "--pid",
            "--kill-child=KILL",
            "--mount",
            "--net",
            "--uts",
        ]);
        command.args(["--propagation=private", "sh", "-c", INIT]);
        command.env("STATE", path).env("NAME", name);
        let mut unshare = Process::start("machine", command, &state.logs())?;

        let mut ended = None;
        let init = until(
            "the machine's first process",
            Duration::from_secs(10),
            async || {
                if let Err(error) = unshare.check() {
                    ended = Some(error);
                    return Ok(None);
                }
                init_of(path).map(Some).ok_or("no file `init`")
            },
        );
        let init = match init.await? {
            Some(init) => init,
            None => return Err(ended.unwrap_or(Error::NotRoot)),
        };
        let link = Link::create(init, state.claim_slot()?)?;
        Ok(Self { init, unshare, link })
    }

    /// Where to start processes in it.
    pub(crate) fn place(&self) -> Place {
        Place::Machine(self.init)
    }

    /// The address under which the host reaches it.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.link.address
    }
}

impl Link {
    /// Links a machine to the host by a veth pair.
    ///
    /// 198.18.0.0/15 is for benchmarks of isolated networks (RFC 2544): no real network has it.
    fn create(init: Pid, slot: usize) -> Result<Self, Error> {
        let name = format!("oooi{slot}");
        let network = 0xC612_0000 + 4 * u32::try_from(slot).unwrap_or(0);
        let [host, address] = [network + 1, network + 2].map(Ipv4Addr::from);
        // The slot is ours, so an interface of its name is one that the kernel is about to remove.
        let _ = ip(Place::Here, &format!("link delete {name}"));
        let pid = init.as_raw_nonzero();
        ip(
            Place::Here,
            &format!("link add {name} type veth peer name eth0 netns {pid}"),
        )?;
        ip(Place::Here, &format!("address add {host}/30 dev {name}"))?;
        ip(Place::Here, &format!("link set {name} up"))?;
        ip(
            Place::Machine(init),
            &format!("address add {address}/30 dev eth0"),
        )?;
        ip(Place::Machine(init), "link set eth0 up")?;
        Ok(Self { name, address })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // `unshare` ends after its child, and that child after everything in its PID namespace.
        let _ = kill_process(self.init, Signal::KILL);
        let _ = self.unshare.wait();
        // The kernel removes the pair with the network namespace, but some time later.
        let _ = ip(Place::Here, &format!("link delete {}", self.link.name));
    }
}

/// The first process of the machine with this state, as it announced itself.
pub(crate) fn init_of(state: &Path) -> Option<Pid> {
    Pid::from_raw(fs::read_to_string(state.join("init")).ok()?.trim().parse().ok()?)
}

/// The directory of a machine that lives in memory, by its path inside and outside.
pub(crate) fn volatile(state: &Path) -> PathBuf {
    state.join("volatile")
}

/// Runs `ip` with these words.
pub(crate) fn ip(place: Place, words: &str) -> Result<String, Error> {
    let mut command = place.command("ip");
    command.args(words.split(' '));
    process::output(command)
}
