//! Short manifests, read by the real parser.

#![allow(dead_code, clippy::panic, clippy::unwrap_used)] // each test file uses some of it

pub(crate) mod hosted_cluster;

use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_manifest::{Document, Source};
use oooi_plan::{Components, Known, Mistake, plan};
use serde::de::DeserializeOwned;

/// All documents of a manifest.
pub(crate) fn documents(text: &str) -> Vec<Document> {
    oooi_manifest::read(&Source::new("test.yaml", text)).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

/// The only document of a manifest, as its type. Our own schema is not asked: `plan` sees stored objects, too.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> T {
    let documents = documents(text);
    assert_eq!(documents.len(), 1);
    documents[0]
        .decode()
        .unwrap_or_else(|mistake| panic!("{mistake}"))
}

/// An Infra `clusters/my-cluster` on 10.0.0.0/24 with these lines in its networkConfig and infraComponents, each in
/// YAML's flow style.
pub(crate) fn infra(network: &str, components: &str) -> Infra {
    let network = if network.contains("cidr:") {
        network.to_owned()
    } else {
        format!("cidr: 10.0.0.0/24, gateway: 10.0.0.1, {network}")
    };
    read(&format!(
        "
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {{name: my-cluster, namespace: clusters}}
spec:
  networkConfig: {{networkAttachmentDefinition: vlan, {network}}}
  infraComponents: {{{components}}}
"
    ))
}

/// DNS with a domain, which most plans need.
pub(crate) const DNS: &str = "dns: {baseDomain: example.com}";

/// A plan that must succeed, and that the servers and the API server accept.
pub(crate) fn planned(infra: &Infra, known: &Known) -> Components {
    let components = plan(infra, known).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    assert_eq!(refused_by_servers(&components), Vec::<String>::new());
    assert_eq!(refused_by_api(&components), Vec::<String>::new());
    components
}

/// What the servers find wrong with their parts of a plan.
pub(crate) fn refused_by_servers(components: &Components) -> Vec<String> {
    let Components {
        dhcp,
        dns,
        proxy,
        warnings: _,
    } = components;
    let mut refused = Vec::new();
    if let Some(spec) = dhcp {
        let read = oooi_dhcp::config::Config::from_spec(spec, &[]);
        refused.extend(read.err().map(|mistakes| mistakes.to_string()));
    }
    if let Some(spec) = dns {
        let read = oooi_dns::Config::from_spec(spec);
        refused.extend(read.err().map(|mistakes| mistakes.to_string()));
    }
    if let Some(spec) = proxy {
        let (_, mistakes) = oooi_proxy::config::Config::read(spec);
        refused.extend(mistakes.iter().map(ToString::to_string));
    }
    refused
}

/// What the API server would refuse of a plan.
pub(crate) fn refused_by_api(components: &Components) -> Vec<String> {
    let Components {
        dhcp,
        dns,
        proxy,
        warnings: _,
    } = components;
    let dhcp = dhcp
        .iter()
        .flat_map(|spec| broken_rules(&DhcpServer::new("x-dhcp", spec.clone())));
    let dns = dns
        .iter()
        .flat_map(|spec| broken_rules(&DnsServer::new("x-dns", spec.clone())));
    let proxy = proxy
        .iter()
        .flat_map(|spec| broken_rules(&ProxyServer::new("x-proxy", spec.clone())));
    dhcp.chain(dns).chain(proxy).collect()
}

/// The schema and the rules of a kind, held against an object. JSON is YAML, too.
pub(crate) fn broken_rules(object: &impl serde::Serialize) -> Vec<String> {
    let documents = documents(&serde_json::to_string(object).unwrap());
    let mistakes = documents.iter().flat_map(Document::check);
    mistakes.map(|mistake| mistake.to_string()).collect()
}

/// The mistakes of a plan that must fail.
pub(crate) fn mistakes(infra: &Infra, known: &Known) -> Vec<Mistake> {
    match plan(infra, known) {
        Ok(components) => panic!("nothing is wrong: {components:#?}"),
        Err(mistakes) => mistakes,
    }
}

/// `dhcp; dns; proxy; range`, as in the Infra's status.
pub(crate) fn addresses(components: &Components) -> String {
    let all = components.addresses();
    let join = |list: &[String]| list.join(" ");
    let range = all.dhcp_range.unwrap_or_default();
    format!(
        "{}; {}; {}; {range}",
        join(&all.dhcp),
        join(&all.dns),
        join(&all.proxy)
    )
}

/// The reasons of all warnings.
pub(crate) fn reasons(components: &Components) -> Vec<&'static str> {
    components.warnings.iter().map(|warning| warning.reason).collect()
}

/// The only mistake of an Infra.
pub(crate) fn only(network: &str, components: &str) -> (String, String) {
    let found = mistakes(&infra(network, components), &Known::default());
    assert_eq!(found.len(), 1, "{network} {components}: {found:#?}");
    (found[0].path.clone(), found[0].message.clone())
}
