//! A machine of its own: PID, mount, network and host-name namespaces with a small first process.
//!
//! When that process dies, the kernel kills all others in it and drops its mounts, interfaces, routes
//! and packet filters; so a machine is removed by one signal and cannot leak any of them. It dies with
//! the runner by a parent-death signal, `unshare --kill-child` passing the runner's on.
//!
//! Inside, `/run`, `/var/lib`, `/var/log` and the machine's `volatile` directory are empty file systems
//! in memory: what container runtime, kubelet and network plugins write there ends with the machine.
//! One veth pair, `eth0` inside, links the machine to the host for the API server, or to another machine; nothing is
//! routed.

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

/// The veth pair to the host, or to another machine.
struct Link {
    other: Place,
    name: String,
    address: Ipv4Addr,
}

impl Machine {
    /// Starts a machine called `name`, linked to the host.
    pub(crate) async fn start(state: &State, name: &str) -> Result<Self, Error> {
        let (init, unshare) = Self::namespaces(state, name).await?;
        let link = Link::to_host(init, state.claim_slot()?)?;
        Ok(Self { init, unshare, link })
    }

    /// Starts a machine called `name`, linked to machine `other` and not to the host.
    pub(crate) async fn beside(other: Place, state: &State, name: &str) -> Result<Self, Error> {
        let (init, unshare) = Self::namespaces(state, name).await?;
        let link = Link::create(other, init, name.to_owned(), BESIDE)?;
        Ok(Self { init, unshare, link })
    }

    /// The first process, once it is there, and what started it.
    async fn namespaces(state: &State, name: &str) -> Result<(Pid, Process), Error> {
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
        match init.await? {
            Some(init) => Ok((init, unshare)),
            None => Err(ended.unwrap_or(Error::NotRoot)),
        }
    }

    /// Where to start processes in it.
    pub(crate) fn place(&self) -> Place {
        Place::Machine(self.init)
    }

    /// The address under which the other end of its link reaches it.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.link.address
    }

    /// The address of that other end.
    pub(crate) fn other_address(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.link.address.to_bits() - 1)
    }

    /// A second veth pair between it and machine `other`, by the name of its end at either side.
    pub(crate) fn wire(&self, other: Place, name_there: &str, name_here: &str) -> Result<(), Error> {
        veth(other, name_there, self.init, name_here)
    }
}

/// Where a machine that is linked to another begins to count its addresses: nothing but those two sees them.
///
/// 198.18.0.0/15 is for benchmarks of isolated networks (RFC 2544): no real network has it.
const BESIDE: u32 = 0xC613_0000;
/// The same for machines that are linked to the host.
const AT_HOST: u32 = 0xC612_0000;

impl Link {
    /// Links a machine to the host.
    fn to_host(init: Pid, slot: usize) -> Result<Self, Error> {
        let network = AT_HOST + 4 * u32::try_from(slot).unwrap_or(0);
        Self::create(Place::Here, init, format!("oooi{slot}"), network)
    }

    /// Links a machine to `other` by a veth pair with the two addresses of a /30.
    fn create(other: Place, init: Pid, name: String, network: u32) -> Result<Self, Error> {
        let [there, address] = [network + 1, network + 2].map(Ipv4Addr::from);
        // The name is ours, so an interface that has it is one that the kernel is about to remove.
        let _ = ip(other, &format!("link delete {name}"));
        veth(other, &name, init, "eth0")?;
        ip(other, &format!("address add {there}/30 dev {name}"))?;
        ip(other, &format!("link set {name} up"))?;
        let here = Place::Machine(init);
        ip(here, &format!("address add {address}/30 dev eth0"))?;
        ip(here, "link set eth0 up")?;
        Ok(Self { other, name, address })
    }
}

/// A veth pair from `place` to the machine with this first process, whose id is the host's: no PID namespace is entered.
fn veth(place: Place, name: &str, init: Pid, inside: &str) -> Result<(), Error> {
    let mut command = match place {
        Place::Here => Command::new("ip"),
        Place::Machine(other) => {
            let mut command = Command::new("nsenter");
            let target = format!("--target={}", other.as_raw_nonzero());
            command.args([&target, "--net", "--", "ip"]);
            command
        }
    };
    let netns = init.as_raw_nonzero().to_string();
    command.args([
        "link", "add", name, "type", "veth", "peer", "name", inside, "netns", &netns,
    ]);
    process::output(command).map(drop)
}

impl Drop for Machine {
    fn drop(&mut self) {
        // `unshare` ends after its child, and that child after everything in its PID namespace.
        let _ = kill_process(self.init, Signal::KILL);
        let _ = self.unshare.wait();
        // The kernel removes the pair with the network namespace, but some time later.
        let _ = ip(self.link.other, &format!("link delete {}", self.link.name));
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
