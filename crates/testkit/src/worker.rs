//! A worker of a hosted cluster: a tenant that boots as a node does.
//!
//! [`Tenant::boot`] is what the firmware and the operating system do: a DHCP client takes an address, routes,
//! resolvers and a host name, and keeps them. [`Worker`] is what follows: a container runtime and a kubelet
//! with their own sockets, roots and control groups, that know nothing but a bootstrap kubeconfig.
//!
//! Containers of a worker end with the machine, not with the worker.

use std::{
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    Error, Node, Tenant, cgroup,
    error::Context,
    node::settings,
    process::{self, Process},
    until,
};

/// How long a DHCP client may take on a busy machine.
const LEASE: Duration = Duration::from_secs(60);
/// Where a worker keeps everything: in the memory of its own `/var/lib`.
const HOME: &str = "/var/lib/worker";
/// The pods of a worker.
const PODS: &str = "10.132.0.0/24";

/// What the client asks for: what a node uses.
const CLIENT: &str = "\
option classless-routes code 121 = array of unsigned integer 8;
request subnet-mask, routers, domain-name-servers, domain-search, host-name, interface-mtu, classless-routes;
timeout 60; retry 1; initial-interval 1; backoff-cutoff 2;
";

/// What the client does with an answer. A client that gets classless routes ignores routers (RFC 3442).
const SCRIPT: &str = r#"#!/bin/sh
set -eu
case "$reason" in
BOUND | RENEW | REBIND | REBOOT) ;;
EXPIRE | FAIL) ip address flush dev "$interface"; rm -f "$FILES/lease"; exit 0 ;;
*) exit 0 ;;
esac
ip address replace "$new_ip_address/$new_subnet_mask" dev "$interface"
if [ -n "${new_interface_mtu:-}" ]; then ip link set dev "$interface" mtu "$new_interface_mtu"; fi
set -- ${new_classless_routes:-}
if [ $# -eq 0 ]; then for via in ${new_routers:-}; do ip route replace default via "$via" dev "$interface"; done; fi
while [ $# -ge 5 ]; do
    width=$1 network='' octet=0; shift
    while [ $octet -lt 4 ]; do
        if [ $((octet * 8)) -lt "$width" ]; then network="$network.$1"; shift; else network="$network.0"; fi
        octet=$((octet + 1))
    done
    ip route replace "${network#.}/$width" via "$1.$2.$3.$4" dev "$interface" onlink
    shift 4
done
{
    for server in ${new_domain_name_servers:-}; do echo "nameserver $server"; done
    if [ -n "${new_domain_search:-}" ]; then echo "search $new_domain_search"; fi
} > /etc/resolv.conf
if [ -n "${new_host_name:-}" ]; then echo "$new_host_name" > /proc/sys/kernel/hostname; fi
echo "$new_ip_address" > "$FILES/lease.partial"
mv "$FILES/lease.partial" "$FILES/lease"
echo "$reason $new_ip_address" >> "$FILES/events"
"#;

impl Tenant {
    /// Starts a DHCP client on `eth0` and waits for its address. The client goes on renewing until the
    /// tenant is dropped.
    pub async fn boot(&mut self) -> Result<Ipv4Addr, Error> {
        let put = |name: &str, content: &str, mode| -> Result<PathBuf, Error> {
            let path = self.files().join(name);
            let write = || -> std::io::Result<()> {
                fs::write(&path, content)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            };
            write().context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        let configuration = put("dhclient.conf", CLIENT, 0o644)?;
        let script = put("dhclient-script", SCRIPT, 0o755)?;
        let mut command = self.command("dhclient");
        command.args(["-4", "-d", "-v", "-cf"]).arg(configuration);
        command.arg("-sf").arg(script).arg("-e");
        command.arg(format!("FILES={}", self.files().display()));
        command.arg("-lf").arg(self.files().join("dhclient.leases"));
        command
            .arg("-pf")
            .arg(self.files().join("dhclient.pid"))
            .arg("eth0");
        let mut client = Process::start("dhclient", command, self.files())?;
        let lease = self.files().join("lease");
        let leased = until("an address by DHCP", LEASE, async || {
            if let Err(error) = client.check() {
                return Ok(Err(error));
            }
            fs::read_to_string(&lease)
                .map(Ok)
                .map_err(|_| process::tail(&self.files().join("dhclient.log"), 5))
        })
        .await??;
        self.keep(client);
        leased.trim().parse().map_err(|_| Error::Lease(leased))
    }

    /// Its hardware address, by which a virtual machine is known.
    pub fn hardware_address(&self) -> Result<String, Error> {
        // `/sys` is the machine's and shows its interfaces. In brief: name, state, address, flags.
        let shown = self.run("ip", &["-brief", "link", "show", "dev", "eth0"])?;
        Ok(shown.split_whitespace().nth(2).unwrap_or_default().to_owned())
    }
}

/// A container runtime and a kubelet in a tenant.
pub struct Worker {
    name: String,
    logs: PathBuf,
    components: Vec<Process>,
    tenant: Tenant,
}

impl Worker {
    /// Starts both in a tenant that has booted at `address`. The kubelet introduces itself by the `bootstrap`
    /// kubeconfig and trusts clients of `authority`.
    pub async fn start(
        node: &Node,
        tenant: Tenant,
        address: Ipv4Addr,
        bootstrap: &Path,
        authority: &Path,
    ) -> Result<Self, Error> {
        let name = tenant.run("hostname", &[])?.trim().to_owned();
        let home = Path::new(HOME);
        let cgroup = cgroup::create_below(&node.machine_name(), &name)
            .context(|| format!("cannot make the control groups of worker {name}"))?;
        let network = serde_json::json!({
            "cniVersion": "0.3.1", "name": "pods", "type": "ptp",
            "ipam": {
                "type": "host-local", "dataDir": home.join("cni/addresses"),
                "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}],
            },
        });
        let put = |file: &str, content: String| -> Result<PathBuf, Error> {
            let path = tenant.files().join(file);
            fs::write(&path, content).context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        let network = put("10-pods.conf", network.to_string())?;
        let mut prepare = tenant.command("sh");
        prepare.args([
            "-ec",
            // The kubelet passes mounts on to containers.
            "mount --make-rshared /
             mkdir -p $CNI/net.d; ln -s $PLUGINS $CNI/bin; cp $NETWORK $CNI/net.d
             echo 1 > /proc/sys/net/ipv4/ip_forward",
        ]);
        prepare
            .env("CNI", home.join("cni"))
            .env("PLUGINS", settings::PLUGINS);
        process::output({
            prepare.env("NETWORK", network);
            prepare
        })?;

        let start = |component: &str, command| {
            Process::start(&format!("{name}-{component}"), command, &node.logs_directory())
        };
        let mut containerd = tenant.command("containerd");
        containerd
            .arg("--config")
            .arg(put("containerd.toml", settings::containerd(home))?);
        let mut components = vec![start("containerd", containerd)?];
        for image in ["pause", "busybox"] {
            let archive = node.parts().image(image);
            let import = || {
                tenant.run(
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
            };
            until("the worker's containerd", LEASE, async || {
                import().map_err(|error| error.to_string())
            })
            .await?;
        }

        let configuration = settings::kubelet(home, authority, &cgroup, Path::new("/etc/resolv.conf"));
        let mut kubelet = tenant.command(&node.parts().program("kubelet").to_string_lossy());
        kubelet.args([
            format!(
                "--config={}",
                put("kubelet.json", configuration.to_string())?.display()
            ),
            format!("--bootstrap-kubeconfig={}", bootstrap.display()),
            format!("--kubeconfig={HOME}/kubeconfig"),
            format!("--root-dir={HOME}/kubelet"),
            format!("--cert-dir={HOME}/kubelet/pki"),
            format!("--node-ip={address}"),
        ]);
        components.push(start("kubelet", kubelet)?);
        Ok(Self {
            name,
            logs: node.logs_directory(),
            components,
            tenant,
        })
    }

    /// The name that it registers with: the host name that DHCP gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tenant that it runs in.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Starts a further component beside the kubelet, such as an agent. Its log lies with theirs.
    pub fn serve(&mut self, name: &str, program: &Path, arguments: &[String]) -> Result<(), Error> {
        let mut command = self.tenant.command(&program.to_string_lossy());
        command.args(arguments);
        let component = Process::start(&format!("{}-{name}", self.name), command, &self.logs)?;
        self.components.push(component);
        Ok(())
    }

    /// An error if one of its components has ended.
    pub fn check(&mut self) -> Result<(), Error> {
        self.components.iter_mut().try_for_each(Process::check)
    }
}
