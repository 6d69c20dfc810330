//! The resolvers of an OpenShift management cluster: the zones that its DNS operator has them forward.

use oooi_testkit::{Node, until};
use serde_json::{Value, json};

use crate::{Hosted, PATIENCE, Result};

/// The DNS operator's list of zones, which belongs to everybody. Nothing acts on it here.
pub struct Resolvers<'a> {
    node: &'a Node,
}

impl<'a> Resolvers<'a> {
    /// Creates the list, with an entry of somebody else.
    pub async fn create(node: &'a Node) -> Result<Self> {
        let list = json!({
            "apiVersion": "operator.openshift.io/v1", "kind": "DNS", "metadata": {"name": "default"},
            "spec": {"servers": [{
                "name": "theirs", "zones": ["corp.example.com"],
                "forwardPlugin": {"policy": "Sequential", "upstreams": ["10.9.9.9", "10.9.9.10:5353"]},
            }]},
        });
        node.apply(&list.to_string()).await?;
        Ok(Self { node })
    }

    /// All of its entries.
    pub async fn entries(&self) -> Result<Vec<Value>> {
        let look = ["get", "dnses.operator.openshift.io", "default", "--output=json"];
        let mut list: Value = serde_json::from_str(&self.node.kubectl(&look).await?).unwrap_or_default();
        Ok(match list["spec"]["servers"].take() {
            Value::Array(entries) => entries,
            _ => Vec::new(),
        })
    }

    /// The entry for the zone of a hosted cluster.
    pub async fn entry_of(&self, hosted: &Hosted<'_>) -> Result<Option<Value>> {
        let entries = self.entries().await?;
        let zones = json!([hosted.zone()]);
        Ok(entries.into_iter().find(|entry| entry["zones"] == zones))
    }

    /// Publishes the zone of a hosted cluster, as a person does in its Infra. Gives the address and the port to which its
    /// names are forwarded.
    pub async fn publish(&self, hosted: &Hosted<'_>) -> Result<(String, String)> {
        hosted
            .change(&json!({"infraComponents": {"dns": {"publishToClusterDNS": true}}}))
            .await?;
        let upstream = until("the zone to be forwarded", PATIENCE, async || {
            let entry = self.entry_of(hosted).await.map_err(|error| error.to_string())?;
            let entry = entry.unwrap_or_default();
            let upstream = entry["forwardPlugin"]["upstreams"][0].as_str();
            let upstream = upstream.and_then(|upstream| upstream.rsplit_once(':'));
            let (address, port) = upstream.ok_or_else(|| entry.to_string())?;
            Ok::<_, String>((address.to_owned(), port.to_owned()))
        });
        let upstream = upstream.await?;
        hosted.ready().await?;
        Ok(upstream)
    }
}
