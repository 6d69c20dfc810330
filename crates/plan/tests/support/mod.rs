//! Short manifests, read by the real parser.

#![allow(dead_code, clippy::panic, clippy::unwrap_used)] // each test file uses some of it

use oooi_api::Infra;
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

/// A plan that must succeed.
pub(crate) fn planned(infra: &Infra, known: &Known) -> Components {
    plan(infra, known).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
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
