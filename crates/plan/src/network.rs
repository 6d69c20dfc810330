//! The VLAN behind a NetworkAttachmentDefinition.
//!
//! ```text
//! spec.config (JSON) ──read──► Network ─┬─ vlan ──► which VLAN it is: two Infras with the same one are neighbours
//!                                       ├─ static_addresses ──► whether a pod can have the address that it asks for
//!                                       └─ sibling ──► JSON of a definition that gives pods static addresses
//! ```
//! Virtual machines want a definition without addresses, since DHCP is what gives them theirs; our own pods want the
//! very same network with a static address. Hence the sibling: the same plugin on the same link, with static
//! addresses, and `sbr` behind it so that answers leave by the interface that the question came in by.

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

/// Why a NetworkAttachmentDefinition is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// It has no configuration of its own.
    #[error(
        "it has no spec.config: write the CNI configuration into it, a file on the nodes cannot be checked"
    )]
    Empty,
    /// The text is no JSON.
    #[error("its spec.config is not JSON ({0}): mend the text")]
    Json(String),
    /// The JSON is no CNI configuration.
    #[error("its spec.config is not a CNI configuration: it needs an object with `type`, or with `plugins`")]
    Shape,
    /// A field has the wrong type or value.
    #[error("`{field}` in its spec.config is {found}: write {wanted}")]
    Field {
        /// The field.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        wanted: &'static str,
    },
}

/// Which VLAN it is. Definitions with the same one are on the same wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Vlan {
    /// The type of the plugin.
    pub plugin: String,
    /// The bridge, the master interface or the physical network.
    pub link: String,
    /// The VLAN's number there; 0 means untagged.
    pub id: u16,
}

/// Whether a pod gets the address that it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaticAddresses {
    /// It does.
    Supported,
    /// It does not, but with a sibling it does.
    NeedsSibling,
    /// Nothing that we could derive helps; the text says what does.
    Impossible(String),
}

/// What a NetworkAttachmentDefinition says.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Which VLAN it is.
    pub vlan: Vlan,
    /// The first plugin, which makes the interface.
    plugin: Map<String, Value>,
    /// The plugins behind it.
    chained: Vec<Value>,
    cni_version: String,
    name: String,
}

const OVN: &str = "ovn-k8s-cni-overlay";

/// Namespaces whose definitions every pod may use where Multus isolates namespaces.
const GLOBAL_NAMESPACES: [&str; 4] = [
    "default",
    "openshift-multus",
    "openshift-sriov-network-operator",
    "openshift-cnv",
];

/// Whether pods of one namespace may use a definition of another under Multus' namespace isolation.
pub fn is_reachable(definition_namespace: &str, pod_namespace: &str) -> bool {
    definition_namespace == pod_namespace || GLOBAL_NAMESPACES.contains(&definition_namespace)
}

impl Network {
    /// Reads the `spec.config` of a definition.
    pub fn read(config: Option<&str>) -> Result<Self, BadNetwork> {
        let text = config
            .filter(|text| !text.trim().is_empty())
            .ok_or(BadNetwork::Empty)?;
        let value: Value = serde_json::from_str(text).map_err(|error| BadNetwork::Json(error.to_string()))?;
        let Value::Object(outer) = value else {
            return Err(BadNetwork::Shape);
        };
        let (plugin, chained) = match outer.get("plugins") {
            None => (outer.clone(), Vec::new()),
            Some(Value::Array(plugins)) => match plugins.split_first() {
                Some((Value::Object(first), rest)) => (first.clone(), rest.to_vec()),
                _ => return Err(BadNetwork::Shape),
            },
            Some(_) => return Err(BadNetwork::Shape),
        };
        if text_of(&plugin, "type")?.is_none_or(|kind| kind.is_empty()) {
            return Err(BadNetwork::Shape);
        }
        Ok(Network {
            vlan: vlan(&outer, &plugin)?,
            cni_version: text_of(&outer, "cniVersion")?.unwrap_or_else(|| "0.3.1".into()),
            name: text_of(&outer, "name")?.unwrap_or_default(),
            plugin,
            chained,
        })
    }

    /// Whether pods get the address that they ask for from this very definition.
    pub fn static_addresses(&self) -> StaticAddresses {
        let subnets = |key| {
            self.plugin
                .get(key)
                .is_some_and(|value| value != "" && !value.is_null())
        };
        if self.vlan.plugin == OVN {
            return match self.plugin.get("topology").and_then(Value::as_str) {
                Some("localnet") if subnets("subnets") => StaticAddresses::Impossible(
                    "OVN-Kubernetes chooses the addresses of a network with `subnets`: remove `subnets` from its config"
                        .into(),
                ),
                Some("localnet") => StaticAddresses::Supported,
                _ => StaticAddresses::Impossible(
                    "only the topology localnet of OVN-Kubernetes leads to a VLAN: use `\"topology\": \"localnet\"`".into(),
                ),
            };
        }
        let ipam = self.plugin.get("ipam").and_then(|ipam| ipam.get("type"));
        let capable = self
            .plugin
            .get("capabilities")
            .and_then(|capabilities| capabilities.get("ips"));
        if ipam == Some(&json!("static")) && capable == Some(&json!(true)) {
            return StaticAddresses::Supported;
        }
        match self.vlan.plugin.as_str() {
            "bridge" | "macvlan" | "ipvlan" | "vlan" | "sriov" | "host-device" => {
                StaticAddresses::NeedsSibling
            }
            other => StaticAddresses::Impossible(format!(
                "the plugin `{other}` is not known to take static addresses: use bridge, macvlan, ipvlan, vlan, sriov or \
                 OVN-Kubernetes localnet, or add `\"ipam\": {{\"type\": \"static\"}}` and `\"capabilities\": {{\"ips\": \
                 true}}` to its config"
            )),
        }
    }

    /// Whether answers leave by the interface that the question came in by, without further help in the pod.
    pub fn routes_by_source(&self) -> bool {
        self.chained
            .iter()
            .any(|plugin| plugin.get("type") == Some(&json!("sbr")))
    }

    /// Whether nothing can stand behind the plugin that would route by source: the pod has to.
    pub fn leaves_routes_to_pods(&self) -> bool {
        self.vlan.plugin == OVN
    }

    /// The `spec.config` of a definition on the same VLAN that gives pods the addresses they ask for: `name` in
    /// `namespace`. Clients beyond the VLAN are answered through `gateway`. Without a sibling, the text says why.
    pub fn sibling(&self, namespace: &str, name: &str, gateway: Option<Ipv4Addr>) -> Result<String, String> {
        if let StaticAddresses::Impossible(why) = self.static_addresses() {
            return Err(why);
        }
        let mut plugin = self.plugin.clone();
        plugin.remove("cniVersion");
        if self.vlan.plugin == OVN {
            // Definitions of one OVN network have one network name and differ in nothing but who they are.
            plugin.insert("cniVersion".into(), json!(self.cni_version));
            plugin.insert("name".into(), json!(self.name));
            plugin.insert("netAttachDefName".into(), json!(format!("{namespace}/{name}")));
            return Ok(Value::Object(plugin).to_string());
        }
        plugin.remove("name");
        // Leaves the interface down, for virtual machines only.
        plugin.remove("disableContainerInterface");
        let mut ipam = json!({"type": "static"});
        if let Some(gateway) = gateway {
            // `sbr` moves this route into a table of its own: the pod's default route stays what it is.
            ipam["routes"] = json!([{"dst": "0.0.0.0/0", "gw": gateway.to_string()}]);
        }
        plugin.insert("ipam".into(), ipam);
        let capabilities = plugin.entry("capabilities").or_insert_with(|| json!({}));
        if !capabilities.is_object() {
            *capabilities = json!({});
        }
        capabilities["ips"] = json!(true);
        let mut plugins = vec![Value::Object(plugin)];
        plugins.extend(self.chained.iter().cloned());
        if !self.routes_by_source() {
            plugins.push(json!({"type": "sbr"}));
        }
        Ok(json!({"cniVersion": self.cni_version, "name": name, "plugins": plugins}).to_string())
    }
}

/// The VLAN of a plugin. `outer` is the whole configuration, which has the network's name.
fn vlan(outer: &Map<String, Value>, plugin: &Map<String, Value>) -> Result<Vlan, BadNetwork> {
    let kind = text_of(plugin, "type")?.unwrap_or_default();
    let (link, id) = match kind.as_str() {
        "bridge" | "cnv-bridge" => (
            text_of(plugin, "bridge")?.unwrap_or_else(|| "cni0".into()),
            "vlan",
        ),
        "macvlan" | "ipvlan" => (text_of(plugin, "master")?.unwrap_or_default(), "vlan"),
        "vlan" => (text_of(plugin, "master")?.unwrap_or_default(), "vlanId"),
        "host-device" => (text_of(plugin, "device")?.unwrap_or_default(), "vlan"),
        OVN => {
            let physical = text_of(plugin, "physicalNetworkName")?;
            let name = || Ok(text_of(outer, "name")?.unwrap_or_default());
            (physical.map_or_else(name, Ok)?, "vlanID")
        }
        _ => (text_of(outer, "name")?.unwrap_or_default(), "vlan"),
    };
    // The same plugin under the name that OpenShift Virtualization gives it.
    let plugin_type = if kind == "cnv-bridge" {
        "bridge".into()
    } else {
        kind
    };
    Ok(Vlan {
        plugin: plugin_type,
        link,
        id: number_of(plugin, id)?,
    })
}

fn text_of(object: &Map<String, Value>, field: &'static str) -> Result<Option<String>, BadNetwork> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(BadNetwork::Field {
            field,
            found: other.to_string(),
            wanted: "a text",
        }),
    }
}

fn number_of(object: &Map<String, Value>, field: &'static str) -> Result<u16, BadNetwork> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value
            .as_u64()
            .filter(|number| *number <= 4094)
            .and_then(|number| u16::try_from(number).ok())
            .ok_or_else(|| BadNetwork::Field {
                field,
                found: value.to_string(),
                wanted: "a VLAN's number from 0 to 4094",
            }),
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
