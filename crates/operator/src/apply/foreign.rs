//! The few fields of others' objects that we write. None of them is owned by us: each is written only as it was read, or
//! where nobody else has a say.

use std::net::Ipv4Addr;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use oooi_api::foreign::{DNS, ForwardServer, HostedCluster};
use serde_json::json;

use super::{Error, Writer, full, refused};
use crate::unchanged::contains;

/// The only DNS of OpenShift's DNS operator that counts.
const OBJECT: &str = "default";

impl Writer {
    /// Gives a Service that has no load balancer this address, unless somebody else was faster.
    pub async fn load_balancer(&self, service: &Service, address: Ipv4Addr) -> Result<(), Error> {
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        let full = full(&namespace, &name);
        self.may_write::<Service>(&full)?;
        let body = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "uid": service.uid(), "resourceVersion": service.resource_version()},
            "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
        });
        let params = PatchParams::apply(self.manager);
        let written = self
            .api::<Service>(&namespace)
            .patch_status(&name, &params, &Patch::Apply(&body))
            .await;
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()), // its change is seen
            Err(error) => Err(refused::<Service>("give an address to", &full)(error)),
        }
    }

    /// Takes what this controller said out of the status of a HostedCluster: what is no longer applied goes.
    pub async fn unsay(&self, cluster: &HostedCluster) -> Result<(), Error> {
        self.write_status(cluster, &json!({})).await
    }

    /// Has the API server trust this certificate of a webhook, if there is such a webhook.
    pub async fn trust(&self, configuration: &str, certificate: &str) -> Result<(), Error> {
        type Configuration = ValidatingWebhookConfiguration;
        let api = Api::<Configuration>::all(self.client.clone());
        let existing = api.get_opt(configuration).await;
        let Some(existing) = existing.map_err(refused::<Configuration>("read", configuration))? else {
            return Ok(());
        };
        let bundle = ByteString(certificate.as_bytes().to_vec());
        let webhooks = existing.webhooks.unwrap_or_default();
        if webhooks
            .iter()
            .all(|webhook| webhook.client_config.ca_bundle.as_ref() == Some(&bundle))
        {
            return Ok(());
        }
        self.may_write::<Configuration>(configuration)?;
        let trusting =
            |webhook: &ValidatingWebhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}});
        let body = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": configuration},
            "webhooks": webhooks.iter().map(trusting).collect::<Vec<_>>(),
        });
        api.patch(configuration, &self.params(), &Patch::Apply(&body))
            .await
            .map(drop)
            .map_err(refused::<Configuration>(
                "have the API server trust",
                configuration,
            ))
    }

    /// Whether the management cluster has a list of zones that its resolvers forward.
    pub async fn has_forwards(&self) -> Result<bool, Error> {
        let found = Api::<DNS>::all(self.client.clone()).get_opt(OBJECT).await;
        found
            .map(|found| found.is_some())
            .map_err(refused::<DNS>("read", OBJECT))
    }

    /// Keeps one entry of the zones that the management cluster's resolvers forward, or removes it. The list belongs to
    /// everybody, so it is written only as it was read. Says whether there is such a list at all.
    pub async fn forward(&self, name: &str, entry: Option<&ForwardServer>) -> Result<bool, Error> {
        let api = Api::<DNS>::all(self.client.clone());
        loop {
            let dns = match api.get(OBJECT).await {
                Ok(dns) => dns,
                // Without the object, and without its kind.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
                Err(error) => return Err(refused::<DNS>("read", OBJECT)(error)),
            };
            let mut servers = dns.spec.servers.clone();
            let ours = |server: &ForwardServer| server.name.as_deref() == Some(name);
            match (servers.iter().position(ours), entry) {
                // What the API server filled in besides is no difference.
                (Some(at), Some(entry)) if contains(&json!(servers[at]), &json!(entry)) => {}
                (Some(at), Some(entry)) => servers[at] = entry.clone(),
                (Some(at), None) => drop(servers.remove(at)),
                (None, Some(entry)) => servers.push(entry.clone()),
                (None, None) => {}
            }
            if servers == dns.spec.servers {
                return Ok(true);
            }
            self.may_write::<DNS>(OBJECT)?;
            let body = json!({
                "metadata": {"resourceVersion": dns.resource_version()},
                "spec": {"servers": servers},
            });
            match api
                .patch(OBJECT, &PatchParams::default(), &Patch::Merge(&body))
                .await
            {
                Ok(_) => return Ok(true),
                // Somebody else was faster: what they wrote is kept.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(refused::<DNS>("write", OBJECT)(error)),
            }
        }
    }
}
