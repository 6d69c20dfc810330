//! `DNS` of OpenShift's DNS operator: what the management cluster's resolver forwards elsewhere.
//!
//! `servers` is a plain list that others edit too. Whoever changes one entry writes the whole list, so an entry keeps
//! the fields that are not named here.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{absent_is_default, null_is_default};

/// What was asked for.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "DNS",
    plural = "dnses",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    doc = "The management cluster's resolver. There is one, `default`."
)]
#[serde(rename_all = "camelCase", default, remote = "Self")]
pub struct DNSSpec {
    /// Zones that are forwarded to resolvers of their own.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ForwardServer>,
}
absent_is_default!(DNSSpec);

/// Zones and the resolvers that they are forwarded to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ForwardServer {
    /// Tells the entries apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The zones.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Where to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_plugin: Option<ForwardPlugin>,
    /// Fields of another's entry, kept when the list is written.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// Where zones are forwarded to.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ForwardPlugin {
    /// At most fifteen, each an address or `address:port`.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<String>,
    /// In which order they are asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<ForwardPolicy>,
    /// Fields of another's entry, kept when the list is written.
    #[serde(flatten)]
    pub rest: BTreeMap<String, Value>,
}

/// In which order upstreams are asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ForwardPolicy {
    /// Any of them.
    Random,
    /// In turn.
    RoundRobin,
    /// From the first.
    Sequential,
    /// Any other.
    #[serde(untagged)]
    Other(String),
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_empty_is_readable, read};
    use super::*;

    const SHARED: &str = "
apiVersion: operator.openshift.io/v1
kind: DNS
metadata: {name: default}
spec:
  logLevel: Normal
  servers:
  - name: corporate
    zones: [corp.example.com]
    forwardPlugin:
      policy: Random
      protocolStrategy: TCP
      transportConfig: {transport: TLS, tls: {serverName: dns.corp.example.com}}
      upstreams: ['10.0.0.53:853']
";

    #[test]
    fn an_entry_is_read() {
        let dns: DNS = read(SHARED);
        let server = &dns.spec.servers[0];
        assert_eq!(server.name.as_deref(), Some("corporate"));
        assert_eq!(server.zones, ["corp.example.com"]);
        let plugin = server.forward_plugin.as_ref().unwrap();
        assert_eq!(plugin.upstreams, ["10.0.0.53:853"]);
        assert_eq!(plugin.policy, Some(ForwardPolicy::Random));
    }

    #[test]
    fn anothers_entry_is_written_back_as_it_was() {
        let dns: DNS = read(SHARED);
        let raw: Value = read(SHARED);
        assert_eq!(
            serde_json::to_value(&dns.spec.servers).unwrap(),
            raw["spec"]["servers"]
        );
    }

    #[test]
    fn an_empty_object_is_readable() {
        assert_empty_is_readable::<DNS>();
    }
}
