//! The network of an Infra: its definition, and the sibling that pods use where they cannot use that one. Pure.

use std::net::Ipv4Addr;

use kube::ResourceExt;
use oooi_api::Infra;
use oooi_api::foreign::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec};
use oooi_api::infra::InfraSpec;
use oooi_plan::infra::Attachment;
use oooi_plan::network::{Network, StaticAddresses, Vlan, is_reachable};
use oooi_plan::object_name::object_name;
use serde_json::Value;

use crate::condition::Finding;
use crate::identity;
use crate::unchanged::digest;

/// The condition about the network.
pub const NETWORK_READY: &str = "NetworkReady";

/// A network that pods can be attached to.
#[derive(Clone, Debug)]
pub struct Attached {
    /// Which VLAN it is.
    pub vlan: Vlan,
    /// The definition that pods use.
    pub attachment: Attachment,
    /// The definition that the Infra names.
    pub named: Attachment,
    /// What tells the states of the definition that pods use apart.
    pub state: String,
    /// That definition, where it is ours.
    pub sibling: Option<NetworkAttachmentDefinition>,
    /// The VLAN's gateway, where pods have to route by source themselves.
    pub route_via: Option<Ipv4Addr>,
}

/// Why a network is of no use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkProblem {
    /// One CamelCase word.
    pub reason: &'static str,
    /// What to do.
    pub message: String,
}

impl NetworkProblem {
    /// There is no such definition.
    pub fn missing(spec: &InfraSpec) -> Self {
        let config = &spec.network_config;
        let place = match &config.network_attachment_namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in this namespace or in default".into(),
        };
        NetworkProblem {
            reason: "NetworkAttachmentMissing",
            message: format!(
                "there is no NetworkAttachmentDefinition {} {place}: create it, or name another one in \
                 spec.networkConfig.networkAttachmentDefinition",
                config.network_attachment_definition
            ),
        }
    }

    /// As a condition.
    pub fn finding(&self) -> Finding {
        Finding::fails(NETWORK_READY, self.reason, &self.message)
    }
}

/// The name of the sibling of an Infra's definition.
pub fn sibling_name(infra: &Infra) -> String {
    object_name(&infra.name_any(), "vlan")
}

/// How pods of an Infra are attached to the network that it names.
pub fn attach(infra: &Infra, definition: &NetworkAttachmentDefinition) -> Result<Attached, NetworkProblem> {
    let own = infra.namespace().unwrap_or_default();
    let (namespace, name) = (definition.namespace().unwrap_or_default(), definition.name_any());
    let problem = |reason, why: &str| NetworkProblem {
        reason,
        message: format!("NetworkAttachmentDefinition {namespace}/{name} cannot be used: {why}"),
    };
    let network = Network::read(definition.spec.config.as_deref())
        .map_err(|bad| problem("NetworkAttachmentInvalid", &bad.to_string()))?;
    let usable = match network.static_addresses() {
        StaticAddresses::Impossible(why) => return Err(problem("NoStaticAddresses", &why)),
        // A sibling also answers clients beyond the VLAN's gateway, where this very definition would not.
        StaticAddresses::Supported => {
            is_reachable(&namespace, &own) && (network.routes_by_source() || network.leaves_routes_to_pods())
        }
        StaticAddresses::NeedsSibling => false,
    };
    let gateway = infra.spec.network_config.gateway.parse().ok();
    let route_via = gateway.filter(|_| network.leaves_routes_to_pods());
    let named = Attachment {
        namespace: namespace.clone(),
        name: name.clone(),
    };
    if usable {
        return Ok(Attached {
            vlan: network.vlan,
            attachment: named.clone(),
            named,
            state: state(definition.spec.config.as_deref()),
            sibling: None,
            route_via,
        });
    }
    let sibling = sibling_name(infra);
    let config = network
        .sibling(&own, &sibling, gateway)
        .map_err(|why| problem("NoStaticAddresses", &why))?;
    let state = state(Some(&config));
    let mut definition =
        NetworkAttachmentDefinition::new(&sibling, NetworkAttachmentDefinitionSpec { config: Some(config) });
    definition.metadata = identity::metadata(infra, sibling.clone(), None);
    Ok(Attached {
        vlan: network.vlan,
        attachment: Attachment {
            namespace: own,
            name: sibling,
        },
        named,
        state,
        sibling: Some(definition),
        route_via,
    })
}

/// What tells the states of a configuration apart, however it is written.
fn state(config: Option<&str>) -> String {
    let config: Value = config
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    digest(&config)
}

/// What is said of a network that works.
pub fn ready(attached: &Attached) -> Finding {
    let Attached {
        attachment, named, ..
    } = attached;
    let Attachment { namespace, name } = attachment;
    let used = format!("pods are attached by NetworkAttachmentDefinition {namespace}/{name}");
    if attached.sibling.is_none() {
        return Finding::holds(NETWORK_READY, "NetworkAttachmentFound", used);
    }
    let source = format!("{}/{}", named.namespace, named.name);
    let message = if is_reachable(&named.namespace, namespace) {
        format!("{used}, which was made from {source}")
    } else {
        format!(
            "{used}, which was made from {source}: where Multus isolates namespaces, pods of {namespace} could not use \
             that one themselves"
        )
    };
    Finding::holds(NETWORK_READY, "SiblingApplied", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn infra(namespace: &str) -> Infra {
        serde_json::from_value(json!({
            "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra",
            "metadata": {"name": "x", "namespace": namespace, "uid": "1"},
            "spec": {"networkConfig": {
                "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": "vlan",
            }},
        }))
        .unwrap()
    }

    fn definition(namespace: &str, config: &str) -> NetworkAttachmentDefinition {
        let spec = NetworkAttachmentDefinitionSpec {
            config: Some(config.into()),
        };
        let mut definition = NetworkAttachmentDefinition::new("vlan", spec);
        definition.metadata.namespace = Some(namespace.into());
        definition
    }

    const STATIC: &str =
        r#"{"type":"bridge","bridge":"br","ipam":{"type":"static"},"capabilities":{"ips":true}}"#;
    const ROUTED: &str = r#"{"plugins":[
        {"type":"bridge","bridge":"br","ipam":{"type":"static"},"capabilities":{"ips":true}},{"type":"sbr"}]}"#;
    const LOCALNET: &str = r#"{"type":"ovn-k8s-cni-overlay","topology":"localnet","name":"physnet"}"#;

    #[test]
    fn a_definition_that_gives_static_addresses_and_routes_by_source_is_used_as_it_is() {
        let attached = attach(&infra("clusters"), &definition("default", ROUTED)).unwrap();
        assert!(attached.sibling.is_none());
        assert_eq!(attached.attachment.namespace, "default");
        assert_eq!(attached.route_via, None);
    }

    #[test]
    fn pods_on_a_network_of_ovn_route_by_source_themselves() {
        let attached = attach(&infra("clusters"), &definition("clusters", LOCALNET)).unwrap();
        assert!(attached.sibling.is_none());
        assert_eq!(attached.route_via, Some(Ipv4Addr::new(192, 168, 100, 1)));
    }

    #[test]
    fn a_definition_of_the_machines_or_of_a_closed_namespace_or_without_routes_gets_a_sibling() {
        for (namespace, config) in [
            ("default", r#"{"type":"bridge","bridge":"br"}"#),
            ("other", ROUTED),
            ("default", STATIC),
        ] {
            let attached = attach(&infra("clusters"), &definition(namespace, config)).unwrap();
            let sibling = attached.sibling.expect("a sibling");
            assert_eq!(sibling.namespace().as_deref(), Some("clusters"));
            assert_eq!(sibling.name_any(), "x-vlan");
            assert!(sibling.spec.config.unwrap().contains("static"));
        }
    }

    #[test]
    fn a_definition_that_cannot_be_read_is_named_with_what_to_mend() {
        let problem = attach(&infra("clusters"), &definition("default", "{")).unwrap_err();
        assert_eq!(problem.reason, "NetworkAttachmentInvalid");
        assert!(problem.message.contains("default/vlan"), "{}", problem.message);
    }

    #[test]
    fn a_sibling_of_what_isolation_keeps_from_pods_is_said_to_be_one() {
        let said = |namespace| {
            let attached = attach(&infra("clusters"), &definition(namespace, STATIC)).unwrap();
            ready(&attached).message
        };
        assert!(said("elsewhere").contains("made from elsewhere/vlan: where Multus isolates"));
        for reachable in ["clusters", "default"] {
            let message = said(reachable);
            assert!(
                message.ends_with(&format!("made from {reachable}/vlan")),
                "{message}"
            );
        }
    }

    #[test]
    fn the_state_of_a_network_changes_with_what_pods_are_attached_by_and_not_with_how_it_is_written() {
        let of = |infra: &Infra, config: &str| attach(infra, &definition("clusters", config)).unwrap().state;
        let here = infra("clusters");
        let before = of(&here, STATIC);
        assert_eq!(before, of(&here, &STATIC.replace(':', " : ")));
        assert_ne!(
            before,
            of(&here, &STATIC.replace("\"br\"", "\"other\"")),
            "another bridge"
        );
        let mut routed = here.clone();
        routed.spec.network_config.gateway = "192.168.100.254".into();
        assert_ne!(before, of(&routed, STATIC), "another gateway");
        assert_eq!(of(&here, ROUTED), of(&routed, ROUTED), "nothing of ours is in it");
        assert_ne!(
            of(&here, ROUTED),
            of(&here, &ROUTED.replace("\"br\"", "\"other\""))
        );
    }
}
