//! What is said of nodes, machines and namespaces after a pass.

use std::net::Ipv4Addr;

use kube::ResourceExt;
use oooi_cloud::Error;
use oooi_egress::{Layout, Unplaced, read};

use super::super::backend::{CLOUD, Carried, NODES, Scene, SeenNode, Waiting, loads};
use super::super::faults::Faults;
use super::interfaces::Trouble;
use super::machines::Machines;
use super::plan::{Host, LOAD_BALANCER, Plan};
use crate::condition::Finding;

/// The cloud cannot be seen: nothing was changed, and it is tried again.
pub(super) fn blind(scene: &Scene<'_>, failure: &Error, faults: &mut Faults) -> Carried {
    let mut carried = Carried::default();
    let message = format!("{failure}; until then nothing is changed on any node");
    for layout in &scene.decision.layouts {
        let finding = Finding::fails(CLOUD, failure.reason(), message.clone());
        carried.cloud.insert(layout.name.clone(), finding);
    }
    faults.again();
    for ipam in scene
        .ipams
        .iter()
        .filter(|ipam| scene.decision.leaving.contains(&ipam.name_any()))
    {
        let networks = read(ipam).map(|layout| layout.networks).unwrap_or_default();
        let is_its = |address: &Ipv4Addr| networks.iter().any(|network| network.cidr.contains(address));
        for node in scene.nodes.iter().map(|node| &node.facts) {
            for address in node.placed.addresses.iter().filter(|address| is_its(address)) {
                faults.say(
                    &ipam.name_any(),
                    None,
                    format!("{address} on node {}: {failure}", node.name),
                );
            }
        }
    }
    carried
}

/// What nodes carry, and what they lack.
pub(super) fn carried(
    scene: &Scene<'_>,
    plan: &Plan,
    machines: Option<&Machines>,
    troubles: &[Trouble],
    faults: &mut Faults,
) -> Carried {
    let mut carried = Carried::default();
    for layout in &scene.decision.layouts {
        carried
            .nodes
            .insert(layout.name.clone(), nodes(scene, plan, layout));
        let cloud = match machines {
            None => Finding::holds(CLOUD, "NoCloud", "this platform needs no cloud to be asked"),
            Some(machines) => cloud(scene, plan, machines, troubles, layout),
        };
        carried.cloud.insert(layout.name.clone(), cloud);
    }
    carried.loads = loads(scene, |node| {
        let on = plan.hosts.get(node).map_or(0, load);
        u32::try_from(on).unwrap_or(u32::MAX)
    });
    for (address, (namespace, why)) in &plan.unplaced {
        let message = match why {
            Unplaced::NoNode => format!("there is no healthy node for {address}"),
            Unplaced::Full => format!("every node for {address} is full"),
        };
        waits(&mut carried, namespace, "NotPlaced", message);
    }
    if let Some(machines) = machines {
        lacking_machines(scene, plan, machines, &mut carried);
        for trouble in troubles {
            not_done(scene, plan, trouble, &mut carried, faults);
        }
        odd_annotations(scene, &mut carried);
    }
    carried
}

/// How many egress addresses a node carries, those of others on its machine included.
fn load(host: &Host) -> usize {
    let ours = host.after_losses().with(&host.wanted).addresses;
    let others = host
        .machine
        .iter()
        .flat_map(|machine| &machine.secondary)
        .copied();
    let others = others.filter(|address| !ours.contains(address) && !host.ours.addresses.contains(address));
    ours.len() + others.count()
}

fn nodes(scene: &Scene<'_>, plan: &Plan, layout: &Layout) -> Finding {
    let without = layout.networks.iter().filter(|network| {
        let carries = |node: &&SeenNode| {
            node.facts.healthy
                && plan.hosts.contains_key(&node.facts.name)
                && node.facts.value_for(layout) == Some(network.label_value.as_str())
        };
        !scene.nodes.iter().any(|node| carries(&node))
    });
    let without: Vec<String> = without
        .map(|network| {
            format!(
                "{} ({}={})",
                network.cidr, layout.topology_label, network.label_value
            )
        })
        .collect();
    if without.is_empty() {
        return Finding::holds(NODES, "NodesFound", "every network has healthy nodes");
    }
    let message = format!(
        "no healthy node that the EgressIPAM selects carries {}",
        without.join(", ")
    );
    Finding::fails(NODES, "NoEligibleNode", message)
}

/// Healthy nodes of an EgressIPAM that the cloud does not know.
fn without_machine<'a>(
    scene: &'a Scene<'_>,
    plan: &'a Plan,
    layout: &'a Layout,
) -> impl Iterator<Item = &'a SeenNode> {
    scene.nodes.iter().filter(move |node| {
        let host = plan.hosts.get(&node.facts.name);
        node.facts.healthy && node.facts.serves(layout) && host.is_some_and(|host| host.machine.is_none())
    })
}

fn cloud(
    scene: &Scene<'_>,
    plan: &Plan,
    machines: &Machines,
    troubles: &[Trouble],
    layout: &Layout,
) -> Finding {
    let serves = |name: &str| {
        let mut nodes = scene.nodes.iter().map(|node| &node.facts);
        nodes.any(|node| node.name == name && node.serves(layout))
    };
    if let Some(trouble) = troubles.iter().find(|trouble| serves(&trouble.node)) {
        return Finding::fails(CLOUD, trouble.error.reason(), sentence(trouble));
    }
    let lacks: Vec<(&str, Lack)> = without_machine(scene, plan, layout)
        .map(|node| (node.facts.name.as_str(), lack(machines, node)))
        .collect();
    // One sort of node at a time: the others' own events tell of them.
    if let Some((_, (reason, message))) = lacks.first() {
        let alike = lacks.iter().filter(|(_, (other, _))| other == reason);
        let names: Vec<&str> = alike.map(|(name, _)| *name).collect();
        let message = format!("{} cannot carry addresses: {message}", names.join(", "));
        return Finding::fails(CLOUD, reason, message);
    }
    Finding::holds(CLOUD, "InSync", "every address is on the machine of its node")
}

/// A word for what a node lacks, and a sentence.
type Lack = (&'static str, String);

/// Why a node has no machine.
fn lack(machines: &Machines, node: &SeenNode) -> Lack {
    let cloud = machines.cloud.name();
    let Some(id) = node.facts.provider_id.as_deref() else {
        let message = format!("spec.providerID is not set: without it {cloud} cannot be asked for addresses");
        return ("NodeWithoutMachine", message);
    };
    match machines.cloud.cannot_carry(id) {
        Some(unable) => (unable.reason, format!("the machine `{id}` {}", unable.why)),
        None => {
            let message = format!("{cloud} has no running machine of the providerID `{id}`");
            ("NodeWithoutMachine", message)
        }
    }
}

fn lacking_machines(scene: &Scene<'_>, plan: &Plan, machines: &Machines, carried: &mut Carried) {
    for layout in &scene.decision.layouts {
        for node in without_machine(scene, plan, layout) {
            carried
                .unwell
                .insert(node.facts.name.clone(), lack(machines, node));
        }
    }
}

/// What the cloud did not do concerns the node, the namespaces of the addresses, and all EgressIPAMs of the node.
fn not_done(scene: &Scene<'_>, plan: &Plan, trouble: &Trouble, carried: &mut Carried, faults: &mut Faults) {
    let message = sentence(trouble);
    carried
        .unwell
        .insert(trouble.node.clone(), (trouble.error.reason(), message.clone()));
    for namespace in trouble
        .addresses
        .iter()
        .filter_map(|address| plan.owners.get(address))
    {
        waits(carried, namespace, trouble.error.reason(), message.clone());
    }
    faults.again();
    for ipam in &scene.decision.leaving {
        faults.say(ipam, None, message.clone());
    }
}

/// A namespace waits for what does not come by itself.
fn waits(carried: &mut Carried, namespace: &str, reason: &'static str, message: String) {
    let waiting = Waiting {
        reason,
        message,
        is_usual: false,
    };
    carried.waiting.insert(namespace.to_owned(), waiting);
}

fn sentence(trouble: &Trouble) -> String {
    let addresses: Vec<String> = trouble.addresses.iter().map(ToString::to_string).collect();
    format!(
        "{} on node {}: {}",
        addresses.join(","),
        trouble.node,
        trouble.error
    )
}

fn odd_annotations(scene: &Scene<'_>, carried: &mut Carried) {
    for ipam in scene.ipams {
        let value = ipam.annotations().get(LOAD_BALANCER);
        if let Some(text) = value.filter(|text| !["none", "same-as-primary-ip"].contains(&text.as_str())) {
            let message = format!(
                "the annotation {LOAD_BALANCER} is `{text}`: it is taken as same-as-primary-ip; the other is none"
            );
            carried.warnings.entry(ipam.name_any()).or_default().push(message);
        }
    }
}
