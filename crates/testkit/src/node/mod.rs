//! A node for tests: [`Node`].
//!
//! All of it lives in one [`Machine`]: the control plane, containerd, the kubelet, kube-proxy,
//! kube-router, the bridge of the VLAN. The host sees one interface of it, `oooiN`.

use std::{
    any::Any,
    fs,
    net::Ipv4Addr,
    ops::Deref,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tokio::sync::OnceCell;

use crate::{
    Cluster, Error, Parts, Tenant, cgroup,
    control_plane::{ADMINISTRATORS, ControlPlane, PODS, SERVICES},
    error::Context,
    machine::{self, Machine, Place, ip, volatile},
    process::{self, Process},
    shared,
    state::State,
    until,
};

mod settings;

pub(crate) use settings::VLAN;

/// How long the node may take to become ready on a busy machine.
const READY: Duration = Duration::from_secs(120);

/// Programs of Debian packages that the node cannot do without.
const PROGRAMS: [&str; 9] = [
    "containerd",
    "ctr",
    "runc",
    "iptables-legacy",
    "ipset",
    "nft",
    "ip",
    "nsenter",
    "unshare",
];

/// A cluster with a real node, a VLAN and tenants. Needs root; ends when dropped.
///
/// All of [`Cluster`] is there too.
pub struct Node {
    cluster: Cluster,
    place: Place,
    owned: Option<Box<dyn Any + Send + Sync>>,
}

impl Deref for Node {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Node {
    /// The node of this run: the one that [`crate::SHARED`] names, else one for this process.
    pub async fn shared() -> Result<&'static Self, Error> {
        static NODE: OnceCell<Node> = OnceCell::const_new();
        NODE.get_or_try_init(async || {
            if let Some(state) = shared::state() {
                return Self::attach(&state);
            }
            let mut node = Self::start().await?;
            if let Some(owned) = node.owned.take() {
                shared::keep_until_exit(owned)?;
            }
            Ok(node)
        })
        .await
    }

    /// Uses a node that another process owns, by its state directory.
    pub fn attach(state: &Path) -> Result<Self, Error> {
        require_root()?;
        let init = machine::init_of(state).ok_or_else(|| Error::Attach {
            path: state.to_owned(),
            why: "it has no node; run the node tests by `make test-node`".to_owned(),
        })?;
        Ok(Self {
            cluster: Cluster::attach(state)?,
            place: Place::Machine(init),
            owned: None,
        })
    }

    /// Starts a machine with a cluster and its node, and waits until the node is ready.
    pub async fn start() -> Result<Self, Error> {
        require_root()?;
        require_programs()?;
        let parts = Parts::find()?;
        let state = State::create("node")?;
        let machine = Machine::start(&state, settings::NAME).await?;
        let control_plane = ControlPlane::start(&state, &parts, machine.place(), machine.address()).await?;
        let start = Start {
            state: &state,
            parts: &parts,
            control_plane: &control_plane,
            machine: &machine,
        };
        start.networks()?;
        let mut components = start.components()?;
        let node = Self {
            cluster: Cluster::attach(state.path())?,
            place: machine.place(),
            owned: None,
        };
        node.import(&mut components).await?;
        node.ready(&mut components).await?;
        components.push(start.policies()?);
        state.mark_ready()?;
        // In this order: the machine takes all processes with it, then the directory goes.
        let owned = Box::new((machine, components, control_plane, state));
        Ok(Self {
            owned: Some(owned),
            ..node
        })
    }

    /// The name of the bridge that is the VLAN, for the NetworkAttachmentDefinitions of tests.
    pub fn vlan(&self) -> &'static str {
        settings::VLAN
    }

    /// A command that will run in the machine, beside the kubelet.
    pub fn command(&self, program: &str) -> Command {
        self.place.command(program)
    }

    /// Runs a command in the machine and gives its standard output.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        let mut command = self.command(program);
        command.args(arguments);
        process::output(command)
    }

    /// Imports an OCI image archive, so that pods find it under the name that it carries.
    pub fn import_image(&self, archive: &Path) -> Result<String, Error> {
        let archive = archive
            .canonicalize()
            .context(|| format!("cannot find the image {}", archive.display()))?;
        self.run(
            "ctr",
            &[
                "--address",
                settings::SOCKET,
                "--namespace",
                "k8s.io",
                "images",
                "import",
                &archive.to_string_lossy(),
            ],
        )
    }

    /// A tenant on the VLAN: a network namespace with nothing but an interface `eth0` on the bridge.
    pub async fn tenant(&self, name: &str) -> Result<Tenant, Error> {
        Tenant::start(self.state(), self.place, name).await
    }

    /// Imports the images of the testbed once containerd answers.
    async fn import(&self, components: &mut [Process]) -> Result<(), Error> {
        for image in ["pause", "busybox", "envoy"] {
            let archive = self.parts().image(image);
            let imported = until("containerd to take an image", READY, async || {
                if let Some(ended) = ended(components) {
                    return Ok(Err(ended));
                }
                self.import_image(&archive)
                    .map(Ok)
                    .map_err(|error| error.to_string())
            });
            imported.await??;
        }
        Ok(())
    }

    /// Waits until the node is ready for pods with further interfaces.
    async fn ready(&self, components: &mut [Process]) -> Result<(), Error> {
        let definition = self.parts().crds().join("networkattachmentdefinitions.yaml");
        self.kubectl(&["apply", "--server-side", "-f", &definition.to_string_lossy()])
            .await?;
        self.kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "-f",
            &definition.to_string_lossy(),
        ])
        .await?;
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")]['status','message']}";
        let ready = until("the node", READY, async || {
            if let Some(ended) = ended(components) {
                return Ok(Err(ended));
            }
            match self
                .kubectl(&["get", "node", settings::NAME, "--output", path])
                .await
            {
                Ok(answer) if answer.starts_with("True") => Ok(Ok(())),
                Ok(answer) => Err(answer),
                Err(error) => Err(error.to_string()),
            }
        });
        ready.await?
    }
}

/// What the start of the components needs.
struct Start<'a> {
    state: &'a State,
    parts: &'a Parts,
    control_plane: &'a ControlPlane,
    machine: &'a Machine,
}

impl Start<'_> {
    /// The bridge of the VLAN, and a way to ClusterIPs for the node's own processes.
    fn networks(&self) -> Result<(), Error> {
        let place = self.machine.place();
        ip(place, &format!("link add {} type bridge", settings::VLAN))?;
        ip(place, &format!("link set {} up", settings::VLAN))?;
        // kube-proxy rewrites the destination after the first routing decision; any route will do.
        ip(place, &format!("route add {SERVICES} dev eth0"))?;
        let mut forward = place.command("sh");
        // The VLAN is a wire: its frames do not pass the packet filter, where that would see them at all.
        forward.args([
            "-ec",
            "echo 1 > /proc/sys/net/ipv4/ip_forward
             filter=/proc/sys/net/bridge/bridge-nf-call-iptables
             if [ -e $filter ]; then echo 0 > $filter; fi",
        ]);
        process::output(forward).map(drop)
    }

    /// Writes every configuration and starts every component.
    fn components(&self) -> Result<Vec<Process>, Error> {
        let place = self.machine.place();
        let address: Ipv4Addr = self.machine.address();
        let volatile = volatile(self.state.path());
        let cgroup =
            cgroup::create(&self.state.name()).context(|| "cannot make the control groups of the node")?;
        let kubeconfig = |name: &str, user: &str, group| {
            self.control_plane
                .kubeconfig(self.state, &format!("{name}.kubeconfig"), user, group)
        };
        let write = |name: &str, content: String| self.state.write(name, &content);

        let multus = kubeconfig("multus", "multus", Some(ADMINISTRATORS))?;
        let network = write(
            "00-multus.conf",
            format!("{:#}", settings::multus(&volatile, &multus)),
        )?;
        self.plugins(&volatile, &network)?;

        let containerd_config = write("containerd.toml", settings::containerd(&volatile))?;
        let mut containerd = place.command("containerd");
        containerd.arg("--config").arg(containerd_config);

        let kubelet_kubeconfig = kubeconfig(
            "kubelet",
            &format!("system:node:{}", settings::NAME),
            Some("system:nodes"),
        )?;
        // No name server; and not empty, since the container runtime would then take the host's file.
        let resolv_conf = write("resolv.conf", "options ndots:1\n".to_owned())?;
        let ca = self.control_plane.authority.certificate();
        let kubelet_config = write(
            "kubelet.json",
            settings::kubelet(&volatile, ca, &cgroup, &resolv_conf).to_string(),
        )?;
        let mut kubelet = place.command(self.parts.program("kubelet"));
        kubelet.args([
            format!("--config={}", kubelet_config.display()),
            format!("--kubeconfig={}", kubelet_kubeconfig.display()),
            format!("--root-dir={}", volatile.join("kubelet").display()),
            format!("--cert-dir={}", volatile.join("kubelet/pki").display()),
            format!("--hostname-override={}", settings::NAME),
            format!("--node-ip={address}"),
        ]);

        let scheduler_kubeconfig = kubeconfig("kube-scheduler", "system:kube-scheduler", None)?;
        let mut scheduler = place.command(self.parts.program("kube-scheduler"));
        scheduler.arg(format!("--kubeconfig={}", scheduler_kubeconfig.display()));
        scheduler.args(["--leader-elect=false", "--secure-port=0"]);

        let proxy_kubeconfig = kubeconfig("kube-proxy", "system:kube-proxy", None)?;
        let proxy_config = write(
            "kube-proxy.json",
            settings::kube_proxy(&proxy_kubeconfig, PODS).to_string(),
        )?;
        let mut kube_proxy = place.command(self.parts.program("kube-proxy"));
        kube_proxy.arg(format!("--config={}", proxy_config.display()));

        [
            ("containerd", containerd),
            ("kubelet", kubelet),
            ("kube-scheduler", scheduler),
            ("kube-proxy", kube_proxy),
        ]
        .into_iter()
        .map(|(name, command)| Process::start(name, command, &self.state.logs()))
        .collect()
    }

    /// kube-router, which enforces NetworkPolicies. It ends at once when its node is not registered yet.
    fn policies(&self) -> Result<Process, Error> {
        let user = "kube-router";
        let kubeconfig = self.control_plane.kubeconfig(
            self.state,
            "kube-router.kubeconfig",
            user,
            Some(ADMINISTRATORS),
        )?;
        let mut command = self.machine.place().command(self.parts.program("kube-router"));
        command.args(settings::kube_router(&kubeconfig, SERVICES));
        command.env("PATH", path_with(&self.legacy_iptables()?));
        Process::start("kube-router", command, &self.state.logs())
    }

    /// One folder with Debian's plugins and Multus, and the network configuration: containerd takes
    /// one folder each. They lie in the machine's memory, so they are made from inside.
    fn plugins(&self, volatile: &Path, network: &Path) -> Result<(), Error> {
        let mut link = self.machine.place().command("sh");
        link.args([
            "-ec",
            "mkdir -p $CNI/bin $CNI/net.d; ln -s $PLUGINS/* $MULTUS $CNI/bin; cp $NETWORK $CNI/net.d",
        ]);
        link.env("CNI", volatile.join("cni"))
            .env("PLUGINS", settings::PLUGINS);
        link.env("MULTUS", self.parts.program("multus"))
            .env("NETWORK", network);
        process::output(link).map(drop)
    }

    /// A folder in which `iptables` is the legacy one. kube-router keeps its sets in `ipset`, which the
    /// translation to nftables cannot name on every kernel; the machine has its own tables of both.
    fn legacy_iptables(&self) -> Result<PathBuf, Error> {
        let folder = self.state.path().join("bin");
        fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
        let legacy = find_program("xtables-legacy-multi")?;
        for name in [
            "iptables",
            "iptables-save",
            "iptables-restore",
            "ip6tables",
            "ip6tables-save",
            "ip6tables-restore",
        ] {
            let link = folder.join(name);
            symlink(&legacy, &link).context(|| format!("cannot create {}", link.display()))?;
        }
        Ok(folder)
    }
}

/// The error of the first component that has ended.
fn ended(components: &mut [Process]) -> Option<Error> {
    components
        .iter_mut()
        .find_map(|component| component.check().err())
}

fn require_root() -> Result<(), Error> {
    if rustix::process::geteuid().is_root() {
        Ok(())
    } else {
        Err(Error::NotRoot)
    }
}

fn require_programs() -> Result<(), Error> {
    for program in PROGRAMS {
        find_program(program)?;
    }
    if Path::new(settings::PLUGINS).join("ptp").exists() {
        Ok(())
    } else {
        Err(Error::MissingProgram(format!("{}/ptp", settings::PLUGINS)))
    }
}

/// The search path of the system with the folders of an administrator, which not every shell has.
fn path_with(first: &Path) -> std::ffi::OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = [first.to_owned()].into_iter().chain(std::env::split_paths(&rest));
    std::env::join_paths(folders.chain(["/usr/sbin".into(), "/sbin".into()])).unwrap_or(rest)
}

fn find_program(name: &str) -> Result<PathBuf, Error> {
    std::env::split_paths(&path_with(Path::new("/usr/sbin")))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| Error::MissingProgram(name.to_owned()))
}
