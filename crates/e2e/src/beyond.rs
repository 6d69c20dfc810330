//! A client beyond the VLAN's gateway, and a server that has to route its answers there by itself.

use oooi_testkit::{Namespace, Node, Tenant};
use serde_json::{Value, json};

use crate::Result;

const ROUTED: &str = include_str!("../scene/routed.yaml");

/// A router with one leg on the VLAN, and a client behind its other one. Nothing else leads to that client: what it
/// hears came from the VLAN through the router.
pub struct Beyond {
    router: Tenant,
    client: Tenant,
}

impl Beyond {
    /// The router's address on the VLAN.
    pub const GATEWAY: &'static str = "192.168.100.1";

    /// Sets both up; the network of the client is a bridge of its own.
    pub async fn start(node: &Node, vlan: &str) -> Result<Self> {
        let network = "beyond";
        node.add_vlan(network)?;
        let router = node.tenant_on(vlan, "router").await?;
        router.address(&format!("{}/24", Self::GATEWAY))?;
        router.plug(network, "eth1")?;
        router.run("ip", &["address", "add", "192.168.110.1/24", "dev", "eth1"])?;
        router.run("sh", &["-ec", "echo 1 > /proc/sys/net/ipv4/ip_forward"])?;
        let client = node.tenant_on(network, "client").await?;
        client.address("192.168.110.9/24")?;
        client.run("ip", &["route", "add", "default", "via", "192.168.110.1"])?;
        Ok(Self { router, client })
    }

    /// The client.
    pub fn client(&self) -> &Tenant {
        &self.client
    }

    /// The router, which is itself a neighbour of the servers on the VLAN.
    pub fn router(&self) -> &Tenant {
        &self.router
    }
}

/// A DNS server on the VLAN in a namespace of its own, attached by a definition that does not route by source.
pub struct Routed<'a> {
    namespace: Namespace<'a>,
}

impl<'a> Routed<'a> {
    /// Applies it without `routeVia`, where Pod Security allows nothing beyond `restricted`.
    pub async fn start(node: &'a Node, vlan: &str) -> Result<Self> {
        let this = Self {
            namespace: node.namespace("routed").await?,
        };
        this.enforce(node, "restricted").await?;
        this.namespace.apply(&ROUTED.replace("VLAN", vlan)).await?;
        Ok(this)
    }

    /// Tells it the VLAN's gateway, as the operator does behind OVN-Kubernetes, and allows its pods the capability.
    pub async fn route_via(&self, node: &Node, gateway: &str) -> Result<()> {
        self.enforce(node, "privileged").await?;
        let patch = json!({"spec": {"networkConfig": {"routeVia": gateway}}}).to_string();
        let patch = ["patch", "dnsserver/routed", "--type=merge", "--patch", &patch];
        self.namespace.kubectl(&patch).await.map(drop)
    }

    /// Asks for its one name from a machine; the address that it has.
    pub fn ask(&self, from: &Tenant) -> Result<String> {
        let ask = ["+short", "+tries=1", "+time=2", "@192.168.100.253"];
        let found = from.run("dig", &[&ask[..], &["api.routed.example.com"]].concat())?;
        Ok(found.trim().to_owned())
    }

    /// Its pods that are not about to end.
    pub async fn pods(&self) -> Result<Vec<Value>> {
        let look = ["get", "pods", "--output=json"];
        let mut found: Value =
            serde_json::from_str(&self.namespace.kubectl(&look).await?).unwrap_or_default();
        let Value::Array(mut pods) = found["items"].take() else {
            return Ok(Vec::new());
        };
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }

    async fn enforce(&self, node: &Node, standard: &str) -> Result<()> {
        let label = format!("pod-security.kubernetes.io/enforce={standard}");
        let label = ["label", "namespace", self.namespace.name(), &label, "--overwrite"];
        node.kubectl(&label).await.map(drop)
    }
}
