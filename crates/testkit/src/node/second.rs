//! A second node of the cluster, on a machine of its own: [`SecondNode`].
//!
//! It is linked to the first by two wires: one is the network of the nodes and their pods, the other a trunk between the
//! two bridges of the VLAN. It has a container runtime, a kubelet, kube-proxy and kube-router like the first.

use std::{fs, path::Path};

use serde_json::Value;

use super::{
    Node, READY, ended, import_image, own_image, power::reboot, settings, start::Start, tag_own_image,
};
use crate::{
    Authority, Error, Parts,
    machine::{Machine, ip},
    process::Process,
    state::State,
    until,
};

/// The ends of the trunk: at the first node, at the second.
const TRUNK: (&str, &str) = ("trunk", "uplink");

/// A second node. Dropping it is the loss of a machine: all that runs on it ends at once, without a word to anyone.
pub struct SecondNode {
    // Dropped in this order: the machine takes all processes with it.
    machine: Machine,
    _components: Vec<Process>,
    state: State,
}

impl SecondNode {
    /// Its name.
    pub const NAME: &'static str = settings::SECOND.name;

    /// Starts it beside the node of the run, and waits until it is ready.
    pub async fn start(node: &Node) -> Result<Self, Error> {
        let parts = Parts::find()?;
        let state = State::create(Self::NAME)?;
        match Self::start_in(node, &state, &parts).await {
            Ok((machine, components)) => Ok(Self {
                machine,
                _components: components,
                state,
            }),
            Err(error) => Err(state.explain(error)),
        }
    }

    /// Imports the image of this checkout, as [`Node::import_own_image`] does, and gives it another name besides.
    pub fn import_own_image(&self, other_name: &str) -> Result<(), Error> {
        import_image(self.machine.place(), &own_image())?;
        tag_own_image(self.machine.place(), other_name)
    }

    /// Reboots it, as [`Node::reboot`] does the first.
    pub fn reboot(&self) -> Result<(), Error> {
        reboot(self.machine.place(), self.state.path())
    }

    async fn start_in(node: &Node, state: &State, parts: &Parts) -> Result<(Machine, Vec<Process>), Error> {
        let machine = Machine::beside(node.place, state, Self::NAME).await?;
        let (place, vlan) = (machine.place(), settings::VLAN);
        let authority = Authority::open(node.state(), state.path())?;
        let server = server(&node.kubeconfig());
        let start = Start {
            state,
            parts,
            authority: &authority,
            server: &server,
            machine: &machine,
            member: settings::SECOND,
        };
        start.networks()?;
        machine.wire(node.place, TRUNK.0, TRUNK.1)?;
        for (end, port) in [(node.place, TRUNK.0), (place, TRUNK.1)] {
            ip(end, &format!("link set {port} master {vlan} up"))?;
        }
        let way = format!(
            "route replace {} via {}",
            settings::SECOND.pods,
            machine.address()
        );
        ip(node.place, &way)?;
        ip(
            place,
            &format!("route add default via {}", machine.other_address()),
        )?;
        let mut components = start.components()?;
        for archive in [parts.image("pause"), parts.image("busybox"), parts.image("envoy")] {
            let imported = until("containerd to take an image", READY, async || {
                if let Some(ended) = ended(&mut components) {
                    return Ok(Err(ended));
                }
                import_image(place, &archive)
                    .map(Ok)
                    .map_err(|error| error.to_string())
            });
            imported.await??;
        }
        node.has_member(Self::NAME, &mut components).await?;
        components.push(start.policies()?);
        Ok((machine, components))
    }
}

/// The API server that a kubeconfig of ours names.
fn server(kubeconfig: &Path) -> String {
    let document = fs::read_to_string(kubeconfig).unwrap_or_default();
    let document: Value = serde_json::from_str(&document).unwrap_or_default();
    let server = &document["clusters"][0]["cluster"]["server"];
    server.as_str().unwrap_or_default().to_owned()
}
