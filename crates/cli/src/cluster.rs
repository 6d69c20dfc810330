//! Reads all that a cluster knows of an Infra.

use anyhow::{Context, bail};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use oooi_api::foreign::NetworkAttachmentDefinition;
use oooi_api::{DhcpLease, DhcpServer, DnsServer, EgressIpam, Infra, ProxyServer};
use oooi_doctor::inventory::Inventory;
use oooi_plan::infra::Attachment;
use oooi_plan::object_name::object_name;
use oooi_plan::{Components, Known, Mistake};
use serde::de::DeserializeOwned;

/// Where an Infra is.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Place {
    /// The namespace of the Infra; by default that of the kubeconfig's context
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

impl Place {
    /// The namespace that was named, else the client's own.
    pub(crate) fn namespace<'a>(&'a self, client: &'a Client) -> &'a str {
        self.namespace
            .as_deref()
            .unwrap_or_else(|| client.default_namespace())
    }
}

/// All Infras of a namespace, by name.
pub(crate) async fn infras(client: &Client, namespace: &str) -> anyhow::Result<Vec<Infra>> {
    let api = Api::<Infra>::namespaced(client.clone(), namespace);
    let listed = api.list(&ListParams::default()).await;
    let mut found = listed
        .with_context(|| format!("the Infras of namespace {namespace} cannot be read"))?
        .items;
    found.sort_by_key(ResourceExt::name_any);
    Ok(found)
}

/// An Infra by its name.
pub(crate) async fn infra(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Infra> {
    let api = Api::<Infra>::namespaced(client.clone(), namespace);
    match api
        .get_opt(name)
        .await
        .with_context(|| format!("Infra {namespace}/{name} cannot be read"))?
    {
        Some(infra) => Ok(infra),
        None => bail!(
            "there is no Infra {name} in namespace {namespace}: `kubectl get infra -A` lists all; -n names another namespace"
        ),
    }
}

/// All EgressIPAMs, by name.
pub(crate) async fn egress_ipams(client: &Client) -> anyhow::Result<Vec<EgressIpam>> {
    let listed = Api::<EgressIpam>::all(client.clone())
        .list(&ListParams::default())
        .await;
    let mut found = listed.context("the EgressIPAMs cannot be read")?.items;
    found.sort_by_key(ResourceExt::name_any);
    Ok(found)
}

/// An EgressIPAM by its name.
pub(crate) async fn egress_ipam(client: &Client, name: &str) -> anyhow::Result<EgressIpam> {
    let found = Api::<EgressIpam>::all(client.clone()).get_opt(name).await;
    match found.with_context(|| format!("EgressIPAM {name} cannot be read"))? {
        Some(ipam) => Ok(ipam),
        None => bail!("there is no EgressIPAM {name}: `kubectl get egressipams` lists all"),
    }
}

/// All around an Infra.
pub(crate) async fn inventory(client: &Client, infra: Infra) -> anyhow::Result<Inventory> {
    let namespace = infra.namespace().unwrap_or_default();
    let dhcp: Option<DhcpServer> = component(client, &infra, "dhcp").await?;
    let dns: Option<DnsServer> = component(client, &infra, "dns").await?;
    let proxy: Option<ProxyServer> = component(client, &infra, "proxy").await?;
    let mut pods: Vec<Pod> = Vec::new();
    for suffix in ["dhcp", "dns", "proxy"] {
        let instance = object_name(&infra.name_any(), suffix);
        let labels = format!("app.kubernetes.io/name=oooi,app.kubernetes.io/instance={instance}");
        pods.extend(list(client, &namespace, &ListParams::default().labels(&labels)).await?);
    }
    let leases = match &dhcp {
        Some(dhcp) => {
            let mine = ListParams::default().fields(&format!("spec.server={}", dhcp.name_any()));
            list::<DhcpLease>(client, &namespace, &mine).await?
        }
        None => Vec::new(),
    };
    let mut targets: Vec<&str> = proxy
        .iter()
        .flat_map(|proxy| &proxy.spec.backends)
        .map(|backend| &*backend.target_namespace)
        .collect();
    targets.sort_unstable();
    targets.dedup();
    let (mut slices, mut policies) = (Vec::new(), Vec::new());
    for target in targets {
        slices.extend(list::<EndpointSlice>(client, target, &ListParams::default()).await?);
        policies.extend(list::<NetworkPolicy>(client, target, &ListParams::default()).await?);
    }
    let attachment = attachment(client, &infra).await?;
    Ok(Inventory {
        infra,
        dhcp,
        dns,
        proxy,
        attachment,
        pods,
        leases,
        slices,
        policies,
    })
}

/// What a plan keeps: addresses that were chosen before, and the network that pods use.
pub(crate) fn known(inventory: &Inventory) -> Known {
    let network = inventory.dhcp.as_ref().map(|server| &server.spec.network_config);
    let attachment = network.and_then(|network| {
        Some(Attachment {
            name: network.network_attachment_name.clone()?,
            namespace: network.network_attachment_namespace.clone()?,
        })
    });
    Known {
        dhcp: inventory.dhcp.as_ref().map(|server| server.spec.clone()),
        dns: inventory.dns.as_ref().map(|server| server.spec.clone()),
        proxy: inventory.proxy.as_ref().map(|server| server.spec.clone()),
        attachment,
        ..Known::default()
    }
}

/// What an Infra means, with the addresses that its servers have.
pub(crate) fn components(inventory: &Inventory) -> anyhow::Result<Components> {
    oooi_plan::plan(&inventory.infra, &known(inventory)).map_err(|mistakes| {
        let all = Mistake::list(&mistakes);
        anyhow::anyhow!("the Infra {} is not valid: {}", inventory.infra.name_any(), all)
    })
}

async fn component<K>(client: &Client, infra: &Infra, suffix: &str) -> anyhow::Result<Option<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let name = object_name(&infra.name_any(), suffix);
    let api = Api::<K>::namespaced(client.clone(), &infra.namespace().unwrap_or_default());
    let found = api.get_opt(&name).await;
    found.with_context(|| format!("{} {name} cannot be read", K::kind(&())))
}

async fn list<K>(client: &Client, namespace: &str, which: &ListParams) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let found = Api::<K>::namespaced(client.clone(), namespace).list(which).await;
    let found =
        found.with_context(|| format!("the {} of namespace {namespace} cannot be read", K::plural(&())))?;
    Ok(found.items)
}

/// The network that an Infra names: in the namespace that it names, else in its own, else in `default`.
async fn attachment(client: &Client, infra: &Infra) -> anyhow::Result<Option<NetworkAttachmentDefinition>> {
    let config = &infra.spec.network_config;
    let own = infra.namespace().unwrap_or_default();
    let places = match &config.network_attachment_namespace {
        Some(namespace) => vec![namespace.as_str()],
        None => vec![own.as_str(), "default"],
    };
    for namespace in places {
        let api = Api::<NetworkAttachmentDefinition>::namespaced(client.clone(), namespace);
        match api.get_opt(&config.network_attachment_definition).await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            // Without Multus there is not even the kind.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                return Err(error).context("the NetworkAttachmentDefinition cannot be read");
            }
        }
    }
    Ok(None)
}
