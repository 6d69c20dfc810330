//! A node for tests: [`Node`].
//!
//! All of it lives in one [`Machine`]: the control plane, containerd, the kubelet, kube-proxy,
//! kube-router, the bridge of the VLAN. The host sees one interface of it, `oooiN`.

use std::{
    any::Any,
    ops::Deref,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    Cluster, Error, Parts, Tenant,
    control_plane::ControlPlane,
    error::Context,
    machine::{self, Machine, Place},
    process::{self, Process},
    shared,
    state::{State, began, name_of},
    until,
};

mod power;
mod second;
pub(crate) mod settings;
mod start;

pub use second::SecondNode;
use start::{Start, bridge, find_program};

/// How long the node may take to become ready on a busy machine.
const READY: Duration = Duration::from_secs(120);

/// Programs of Debian packages that the node cannot do without.
const PROGRAMS: [&str; 11] = [
    "setpriv",
    "containerd",
    "ctr",
    "runc",
    "iptables-legacy",
    "ipset",
    "nft",
    "ip",
    "nsenter",
    "unshare",
    "flock",
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
    /// Its name.
    pub const NAME: &'static str = settings::NAME;

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
        match Self::start_in(&state, &parts).await {
            Ok((node, running)) => {
                state.mark_ready()?;
                // In this order: the processes end before the directory that they write to goes.
                Ok(Self {
                    owned: Some(Box::new((running, state))),
                    ..node
                })
            }
            Err(error) => Err(state.explain(error)),
        }
    }

    /// The start itself: a machine, a control plane, the node's components, each when it can be used.
    async fn start_in(state: &State, parts: &Parts) -> Result<(Self, Running), Error> {
        let machine = Machine::start(state, settings::NAME).await?;
        let control_plane = ControlPlane::start(state, parts, machine.place(), machine.address()).await?;
        let start = Start {
            state,
            parts,
            authority: &control_plane.authority,
            server: &control_plane.server,
            machine: &machine,
            member: settings::FIRST,
        };
        start.networks()?;
        let mut components = start.components()?;
        components.push(start.scheduler()?);
        let node = Self {
            cluster: Cluster::attach(state.path())?,
            place: machine.place(),
            owned: None,
        };
        node.import(&mut components).await?;
        node.ready(&mut components).await?;
        components.push(start.policies()?);
        Ok((
            node,
            Running {
                _machine: machine,
                _components: components,
                _control_plane: control_plane,
            },
        ))
    }

    /// How long ago its start began, whoever owns it.
    pub fn age(&self) -> Duration {
        began(self.state()).unwrap_or_default()
    }

    /// The name of the bridge that is the VLAN, for the NetworkAttachmentDefinitions of tests.
    pub fn vlan(&self) -> &'static str {
        settings::VLAN
    }

    /// A further VLAN: the bridge of this name, for NetworkAttachmentDefinitions and [`Self::tenant_on`].
    pub fn add_vlan(&self, name: &str) -> Result<(), Error> {
        bridge(self.place, name)
    }

    /// A folder of the node that outlives its pods and its reboots.
    pub fn folder(&self, name: &str) -> Result<String, Error> {
        let path = machine::volatile(self.state()).join("volumes").join(name);
        let path = path.to_string_lossy().into_owned();
        self.run("mkdir", &["--parents", &path])?;
        Ok(path)
    }

    /// The name that its control groups share.
    pub(crate) fn machine_name(&self) -> String {
        name_of(self.state())
    }

    /// Where the components write their logs.
    pub(crate) fn logs_directory(&self) -> PathBuf {
        self.state().join("logs")
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
        import_image(self.place, archive)
    }

    /// Imports the image of this checkout (`make image`) and gives the reference for pods.
    pub fn import_own_image(&self) -> Result<&'static str, Error> {
        let archive = own_image();
        if !archive.exists() {
            return Err(Error::MissingImage(archive));
        }
        self.import_image(&archive).map(|_| "localhost/oooi:dev")
    }

    /// Gives the image of this checkout another name besides.
    pub fn tag_own_image(&self, name: &str) -> Result<(), Error> {
        tag_own_image(self.place, name)
    }

    /// Kills the processes of a container in those pods on this node that a selector chooses, as the kernel would.
    pub async fn kill_container(
        &self,
        namespace: &str,
        selector: &str,
        container: &str,
    ) -> Result<(), Error> {
        let ids = self.containers(namespace, selector, container).await?;
        self.signal_containers(&ids, "SIGKILL")
    }

    /// Where the files of a container lie, of the one pod on this node that a selector chooses. Its processes see what
    /// is put there, and may not write themselves.
    pub async fn files_of(&self, namespace: &str, selector: &str, container: &str) -> Result<String, Error> {
        let id = self.containers(namespace, selector, container).await?;
        let id = id.trim_start_matches("containerd://");
        Ok(format!(
            "/run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}/rootfs"
        ))
    }

    /// The ids of a container in those pods on this node that a selector chooses.
    async fn containers(&self, namespace: &str, selector: &str, container: &str) -> Result<String, Error> {
        let path = format!(
            "jsonpath={{.items[*].status.containerStatuses[?(@.name==\"{container}\")].containerID}}"
        );
        let here = format!("--field-selector=spec.nodeName={}", Self::NAME);
        let look = ["get", "pods", "--namespace", namespace, &here];
        self.kubectl(&[&look[..], &["--selector", selector, "--output", &path]].concat())
            .await
    }

    /// Sends a signal to the first process of every container of a pod.
    pub async fn signal_pod(&self, namespace: &str, pod: &str, signal: &str) -> Result<(), Error> {
        let path = "--output=jsonpath={.status.containerStatuses[*].containerID}";
        let look = ["get", "pod", pod, "--namespace", namespace, path];
        self.signal_containers(&self.kubectl(&look).await?, signal)
    }

    fn signal_containers(&self, ids: &str, signal: &str) -> Result<(), Error> {
        let runtime = ["--address", settings::SOCKET, "--namespace", "k8s.io"];
        for id in ids.split_whitespace() {
            let id = id.trim_start_matches("containerd://");
            let kill = ["tasks", "kill", "--signal", signal, id];
            self.run("ctr", &[&runtime[..], &kill].concat())?;
        }
        Ok(())
    }

    /// A tenant on the VLAN: a network namespace with nothing but an interface `eth0` on the bridge.
    pub async fn tenant(&self, name: &str) -> Result<Tenant, Error> {
        self.tenant_on(settings::VLAN, name).await
    }

    /// A tenant on another VLAN.
    pub async fn tenant_on(&self, vlan: &str, name: &str) -> Result<Tenant, Error> {
        Tenant::start(self.state(), self.place, vlan, name).await
    }

    /// A volume on the node that one claim without a storage class may bind, of 1 GiB; its folder.
    ///
    /// It is of the kind `local`, which gives files to the group of a pod (`fsGroup`) as real storage does.
    pub async fn volume(&self, name: &str) -> Result<String, Error> {
        let path = self.folder(name)?;
        let here = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": [settings::NAME]}]);
        let volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": here}]}},
            },
        });
        self.apply(&volume.to_string()).await?;
        Ok(path)
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
        self.has_member(settings::NAME, components).await
    }

    /// Waits until a node of the cluster is ready.
    async fn has_member(&self, name: &str, components: &mut [Process]) -> Result<(), Error> {
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")]['status','message']}";
        let ready = until("the node", READY, async || {
            if let Some(ended) = ended(components) {
                return Ok(Err(ended));
            }
            match self.kubectl(&["get", "node", name, "--output", path]).await {
                Ok(answer) if answer.starts_with("True") => Ok(Ok(())),
                Ok(answer) => Err(answer),
                Err(error) => Err(error.to_string()),
            }
        });
        ready.await?
    }
}

/// What runs. The machine is dropped first: it takes all processes with it at once.
struct Running {
    _machine: Machine,
    _components: Vec<Process>,
    _control_plane: ControlPlane,
}

/// The archive of the image of this checkout, with the parts that tests need.
fn own_image() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/test/oooi-amd64.tar")
}

/// Imports an OCI image archive into the container runtime of a machine.
fn import_image(place: Place, archive: &Path) -> Result<String, Error> {
    let archive = archive
        .canonicalize()
        .context(|| format!("cannot find the image {}", archive.display()))?;
    let mut command = place.command("ctr");
    command.args(["--address", settings::SOCKET, "--namespace", "k8s.io"]);
    command.args(["images", "import"]).arg(archive);
    process::output(command)
}

/// Gives the image of this checkout another name besides, on a machine.
fn tag_own_image(place: Place, name: &str) -> Result<(), Error> {
    let mut command = place.command("ctr");
    command.args(["--address", settings::SOCKET, "--namespace", "k8s.io"]);
    command.args(["images", "tag", "--force", "localhost/oooi:dev", name]);
    process::output(command).map(drop)
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
