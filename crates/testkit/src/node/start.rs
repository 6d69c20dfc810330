//! The start of a node's components inside its machine: networks first, then the runtime and the rest.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{power, settings};
use crate::{
    Authority, Error, Parts, cgroup,
    control_plane::{ADMINISTRATORS, PODS, SERVICES},
    error::Context,
    machine::{Machine, Place, ip, volatile},
    process::{self, Process},
    state::State,
};

/// What the start of the components needs.
pub(super) struct Start<'a> {
    pub(super) state: &'a State,
    pub(super) parts: &'a Parts,
    pub(super) authority: &'a Authority,
    /// The API server.
    pub(super) server: &'a str,
    pub(super) machine: &'a Machine,
    pub(super) member: settings::Member,
}

impl Start<'_> {
    /// The bridge of the VLAN, and a way to ClusterIPs for the node's own processes.
    pub(super) fn networks(&self) -> Result<(), Error> {
        let place = self.machine.place();
        bridge(place, settings::VLAN)?;
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
    pub(super) fn components(&self) -> Result<Vec<Process>, Error> {
        let place = self.machine.place();
        let address = self.machine.address();
        let volatile = volatile(self.state.path());
        let settings::Member { name, pods } = self.member;
        let cgroup =
            cgroup::create(&self.state.name()).context(|| "cannot make the control groups of the node")?;
        let write = |name: &str, content: String| self.state.write(name, &content);

        let multus = self.kubeconfig("multus", "multus", Some(ADMINISTRATORS))?;
        let network = write(
            "00-multus.conf",
            format!("{:#}", settings::multus(&volatile, &multus, pods)),
        )?;
        self.plugins(&volatile, &network)?;

        let containerd_config = write("containerd.toml", settings::containerd(&volatile))?;
        let mut containerd = power::kept(place, self.state, "containerd");
        containerd.arg("--config").arg(containerd_config);

        let kubelet_kubeconfig =
            self.kubeconfig("kubelet", &format!("system:node:{name}"), Some("system:nodes"))?;
        // No name server; and not empty, since the container runtime would then take the host's file.
        let resolv_conf = write("resolv.conf", "options ndots:1\n".to_owned())?;
        let ca = self.authority.certificate();
        let kubelet_config = write(
            "kubelet.json",
            settings::kubelet(&volatile, ca, &cgroup, &resolv_conf).to_string(),
        )?;
        let mut kubelet = power::kept(place, self.state, self.parts.program("kubelet"));
        kubelet.args([
            format!("--config={}", kubelet_config.display()),
            format!("--kubeconfig={}", kubelet_kubeconfig.display()),
            format!("--root-dir={}", volatile.join("kubelet").display()),
            format!("--cert-dir={}", volatile.join("kubelet/pki").display()),
            format!("--hostname-override={name}"),
            format!("--node-ip={address}"),
        ]);

        let proxy_kubeconfig = self.kubeconfig("kube-proxy", "system:kube-proxy", None)?;
        let proxy_config = write(
            "kube-proxy.json",
            settings::kube_proxy(name, &proxy_kubeconfig, PODS).to_string(),
        )?;
        let mut kube_proxy = power::kept(place, self.state, self.parts.program("kube-proxy"));
        kube_proxy.arg(format!("--config={}", proxy_config.display()));

        [
            ("containerd", containerd),
            ("kubelet", kubelet),
            ("kube-proxy", kube_proxy),
        ]
        .into_iter()
        .map(|(name, command)| Process::start(name, command, &self.state.logs()))
        .collect()
    }

    /// The scheduler of the cluster, which is no part of a node.
    pub(super) fn scheduler(&self) -> Result<Process, Error> {
        let kubeconfig = self.kubeconfig("kube-scheduler", "system:kube-scheduler", None)?;
        let mut scheduler = self.machine.place().command(self.parts.program("kube-scheduler"));
        scheduler.arg(format!("--kubeconfig={}", kubeconfig.display()));
        scheduler.args(["--leader-elect=false", "--secure-port=0"]);
        Process::start("kube-scheduler", scheduler, &self.state.logs())
    }

    /// kube-router, which enforces NetworkPolicies. It ends at once when its node is not registered yet.
    pub(super) fn policies(&self) -> Result<Process, Error> {
        let user = "kube-router";
        let kubeconfig = self.kubeconfig("kube-router", user, Some(ADMINISTRATORS))?;
        let program = self.parts.program("kube-router");
        let mut command = power::kept(self.machine.place(), self.state, program);
        command.args(settings::kube_router(self.member.name, &kubeconfig, SERVICES));
        command.env("PATH", path_with(&self.legacy_iptables()?));
        Process::start("kube-router", command, &self.state.logs())
    }

    /// A kubeconfig for a user of the control plane.
    fn kubeconfig(&self, name: &str, user: &str, group: Option<&str>) -> Result<PathBuf, Error> {
        let file = format!("{name}.kubeconfig");
        self.authority.kubeconfig(&file, self.server, user, group)
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

/// A bridge that is up.
pub(super) fn bridge(place: Place, name: &str) -> Result<(), Error> {
    ip(place, &format!("link add {name} type bridge"))?;
    ip(place, &format!("link set {name} up")).map(drop)
}

/// The search path of the system with the folders of an administrator, which not every shell has.
fn path_with(first: &Path) -> OsString {
    let rest = std::env::var_os("PATH").unwrap_or_default();
    let folders = [first.to_owned()].into_iter().chain(std::env::split_paths(&rest));
    std::env::join_paths(folders.chain(["/usr/sbin".into(), "/sbin".into()])).unwrap_or(rest)
}

pub(super) fn find_program(name: &str) -> Result<PathBuf, Error> {
    std::env::split_paths(&path_with(Path::new("/usr/sbin")))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| Error::MissingProgram(name.to_owned()))
}
