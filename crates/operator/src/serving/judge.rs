//! Whether an Infra may be written: what no schema can say. Pure.

use kube::ResourceExt;
use oooi_api::Infra;
use oooi_ipam::Range;
use oooi_plan::infra::{DHCP_SERVER, Neighbour, Occupied};
use oooi_plan::{Known, Mistake, plan};

use crate::infra::network::{NetworkProblem, attach};
use crate::infra::{Stores, definition_of};

/// What is said to whoever writes an Infra.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is refused; nothing means that it is not.
    pub refused: Vec<String>,
    /// What to know all the same.
    pub warnings: Vec<String>,
}

/// Judges an Infra by the others on its VLAN. `old` is what it is to replace.
///
/// A specification that does not change is never judged: labels, finalizers and statuses of an Infra that has become
/// wrong can always be written, and it can always be deleted.
pub fn judge(infra: &Infra, old: Option<&Infra>, stores: &Stores) -> Verdict {
    if infra.metadata.deletion_timestamp.is_some() || old.is_some_and(|old| old.spec == infra.spec) {
        return Verdict::default();
    }
    let mut verdict = found(infra, stores);
    // What was wrong before does not keep anybody from mending something else.
    let before = old.map(|old| found(old, stores).refused).unwrap_or_default();
    let (known, new) = verdict
        .refused
        .into_iter()
        .partition(|mistake| before.contains(mistake));
    verdict.refused = new;
    verdict.warnings.extend::<Vec<String>>(known);
    verdict
}

/// What is wrong with an Infra, whatever it was before.
fn found(infra: &Infra, stores: &Stores) -> Verdict {
    let mut verdict = Verdict::default();
    let attached = match definition_of(&stores.networks, infra) {
        None => Err(NetworkProblem::missing(&infra.spec)),
        Some(definition) => attach(infra, &definition),
    };
    let known = match attached {
        Ok(attached) => Known {
            neighbours: neighbours(infra, stores, &attached.vlan),
            attachment: Some(attached.attachment),
            ..Known::default()
        },
        Err(problem) => {
            verdict.warnings.push(problem.message);
            Known::default()
        }
    };
    let mistakes = mistakes(infra, &known);
    // What is missing in an Infra with a HostedCluster may come from there; what collides does so in any case.
    let alone = match &infra.spec.hosted_cluster_ref {
        Some(_) => self::mistakes(
            infra,
            &Known {
                neighbours: Vec::new(),
                ..known
            },
        ),
        None => Vec::new(),
    };
    for mistake in mistakes {
        let list = if alone.contains(&mistake) {
            &mut verdict.warnings
        } else {
            &mut verdict.refused
        };
        list.push(mistake.to_string());
    }
    verdict
}

fn mistakes(infra: &Infra, known: &Known) -> Vec<Mistake> {
    plan(infra, known).err().unwrap_or_default()
}

/// The other Infras on a VLAN. All of them were there before.
fn neighbours(infra: &Infra, stores: &Stores, vlan: &oooi_plan::network::Vlan) -> Vec<Neighbour> {
    let others = stores.infras.state_filter(|other| {
        let itself = other.metadata.name == infra.metadata.name
            && other.metadata.namespace == infra.metadata.namespace;
        !itself && other.metadata.deletion_timestamp.is_none()
    });
    let on_vlan = others
        .iter()
        .filter(|other| stores.vlan(other).is_some_and(|own| *own == *vlan));
    on_vlan.map(|other| neighbour(other)).collect()
}

/// A neighbour, with the addresses that were chosen for it.
fn neighbour(infra: &Infra) -> Neighbour {
    let mut neighbour = Neighbour::new(infra, &Known::default(), true);
    let Some(addresses) = infra.status.as_ref().and_then(|status| status.addresses.as_ref()) else {
        return neighbour;
    };
    let range = addresses.dhcp_range.as_slice();
    for (by, texts) in [
        (DHCP_SERVER, &*addresses.dhcp),
        ("the DNS server", &*addresses.dns),
        ("the gateway", &*addresses.proxy),
        ("the DHCP range", range),
    ] {
        let ranges = texts.iter().filter_map(|text| text.parse::<Range>().ok());
        let chosen = ranges.map(|range| Occupied { by, range });
        let new: Vec<Occupied> = chosen.filter(|one| !neighbour.occupied.contains(one)).collect();
        neighbour.occupied.extend(new);
    }
    neighbour
}

/// The namespace and name of an Infra.
pub(super) fn full_name(infra: &Infra) -> String {
    format!("{}/{}", infra.namespace().unwrap_or_default(), infra.name_any())
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use oooi_api::foreign::NetworkAttachmentDefinition;
    use serde_json::json;

    use super::*;
    use crate::infra::Vlans;

    fn infra(name: &str, dns: &str) -> Infra {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
            "metadata": {"name": name, "namespace": "clusters", "uid": name},
            "spec": {
                "networkConfig": {
                    "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": "vlan",
                },
                "infraComponents": {"dns": {"serverIP": dns, "baseDomain": "example.com", "clusterName": name}},
            },
        }))
        .unwrap()
    }

    fn stores(infras: &[Infra], with_network: bool) -> Stores {
        let (known, mut writer) = reflector::store();
        for infra in infras {
            writer.apply_watcher_event(&Event::Apply(infra.clone()));
        }
        let (networks, mut writer) = reflector::store();
        if with_network {
            let definition: NetworkAttachmentDefinition = serde_json::from_value(json!({
                "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
                "metadata": {"name": "vlan", "namespace": "clusters"},
                "spec": {"config": r#"{"type":"bridge","bridge":"br"}"#},
            }))
            .unwrap();
            writer.apply_watcher_event(&Event::Apply(definition));
        }
        Stores {
            everywhere: known.clone(),
            infras: known,
            networks,
            vlans: Vlans::default(),
        }
    }

    #[test]
    fn an_address_of_another_infra_on_the_vlan_is_refused_with_its_name() {
        let stores = stores(&[infra("first", "192.168.100.9")], true);
        let verdict = judge(&infra("second", "192.168.100.9"), None, &stores);
        assert!(verdict.refused[0].contains("clusters/first"), "{verdict:?}");
        assert_eq!(
            judge(&infra("second", "192.168.100.8"), None, &stores).refused,
            [""; 0]
        );
        let itself = judge(&infra("first", "192.168.100.9"), None, &stores);
        assert_eq!(itself.refused, [""; 0], "its own address");
    }

    #[test]
    fn an_address_that_was_chosen_for_another_infra_is_refused_too() {
        let mut first = infra("first", "192.168.100.9");
        first.status =
            Some(serde_json::from_value(json!({"addresses": {"proxy": ["192.168.100.7"]}})).unwrap());
        let verdict = judge(&infra("second", "192.168.100.7"), None, &stores(&[first], true));
        assert!(
            verdict.refused[0].contains("the gateway of Infra clusters/first"),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_missing_network_is_a_warning() {
        let verdict = judge(&infra("x", "192.168.100.9"), None, &stores(&[], false));
        assert_eq!(verdict.refused, [""; 0]);
        assert!(verdict.warnings[0].contains("vlan"), "{verdict:?}");
    }

    #[test]
    fn what_was_wrong_before_is_a_warning_and_what_becomes_wrong_is_refused() {
        let first = infra("first", "192.168.100.9");
        let third = infra("third", "192.168.100.5");
        let stores = stores(&[first, third], true);
        let old = infra("second", "192.168.100.9");
        let mut mended = old.clone();
        mended.spec.network_config.dns_servers = vec!["10.0.0.53".into()];
        let verdict = judge(&mended, Some(&old), &stores);
        assert_eq!(verdict.refused, [""; 0]);
        assert!(verdict.warnings[0].contains("clusters/first"), "{verdict:?}");
        let verdict = judge(&infra("second", "192.168.100.5"), Some(&old), &stores);
        assert!(verdict.refused[0].contains("clusters/third"), "{verdict:?}");
    }

    #[test]
    fn what_does_not_change_and_what_is_being_deleted_is_never_judged() {
        let stores = stores(&[infra("first", "192.168.100.9")], true);
        let second = infra("second", "192.168.100.9");
        assert_eq!(judge(&second, Some(&second), &stores), Verdict::default());
        let mut leaving = second.clone();
        leaving.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(judge(&leaving, None, &stores), Verdict::default());
    }
}
