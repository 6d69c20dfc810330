//! The definitions on a real API server: what they accept, refuse, default and explain. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api_server;
#[path = "rules/mod.rs"]
mod table;

use api_server::{ApiServer, Resource, our_kinds};
use oooi_testkit::Cluster;
use serde_json::{Value, json};

fn kind_of(manifest: &Value) -> Resource {
    our_kinds()
        .into_iter()
        .find(|kind| kind.is_of(manifest))
        .unwrap_or_else(|| panic!("no kind of ours: {manifest}"))
}

#[tokio::test]
async fn every_rule_accepts_and_refuses_as_the_table_says() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("rules").await.unwrap();
    let server = ApiServer::of(cluster).await;
    server.install_ours().await;

    let mut wrong = Vec::new();
    for case in table::cases() {
        let manifest = case.manifest();
        let answer = server
            .offer(&kind_of(&manifest), namespace.name(), &manifest)
            .await;
        match (case.refused, answer) {
            (None, Ok(_)) => {}
            (Some(message), Err(said)) if said.contains(message) => {}
            (None, Err(said)) => wrong.push(format!("{} must be accepted: {said}", case.title())),
            (Some(message), Err(said)) => wrong.push(format!(
                "{} must be refused with {message:?}: {said}",
                case.title()
            )),
            (Some(_), Ok(_)) => wrong.push(format!("{} must be refused", case.title())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn every_example_is_accepted() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("examples").await.unwrap();
    let server = ApiServer::of(cluster).await;
    server.install_ours().await;

    let mut offered = 0;
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        for manifest in api_server::documents(&name, &std::fs::read_to_string(&path).unwrap()).unwrap() {
            let answer = server
                .offer(&kind_of(&manifest), namespace.name(), &manifest)
                .await;
            assert!(answer.is_ok(), "{name}: {answer:?}");
            offered += 1;
        }
    }
    assert!(offered >= 6, "only {offered} examples were found");
}

#[tokio::test]
async fn an_unknown_field_is_refused_by_its_name() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("strict").await.unwrap();
    let server = ApiServer::of(cluster).await;
    server.install_ours().await;

    let mut infra = infra(json!({}));
    infra["spec"]["networkConfig"]["gatway"] = "192.168.100.1".into();
    let said = server
        .offer(&kind_of(&infra), namespace.name(), &infra)
        .await
        .unwrap_err();
    assert!(
        said.contains("unknown field \"spec.networkConfig.gatway\""),
        "{said}"
    );
}

fn infra(components: Value) -> Value {
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra", "metadata": {"name": "small"},
        "spec": {
            "networkConfig": {
                "cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "networkAttachmentDefinition": "vlan100",
            },
            "infraComponents": components,
        },
    })
}

fn component(kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": kind, "metadata": {"name": "small"},
        "spec": spec,
    })
}

/// The smallest manifests, and what the API server adds to them. The values are those of the Go version; images
/// have no default, so that an old one is never deployed.
fn defaults() -> Vec<(Value, Vec<(&'static str, Value)>)> {
    let dhcp = json!({
        "networkConfig": {"cidr": "192.168.100.0/24", "gateway": "192.168.100.1", "serverIP": "192.168.100.2"},
        "leaseConfig": {"rangeStart": "192.168.100.100", "rangeEnd": "192.168.100.200"},
    });
    let dns = json!({
        "networkConfig": {"serverIP": "192.168.100.3", "proxyIP": "192.168.100.4"},
        "hostedClusterDomain": "tenant.example.com",
    });
    let proxy = json!({
        "networkConfig": {"serverIP": "192.168.100.4"},
        "backends": [{
            "name": "api", "hostname": "api.tenant.example.com", "port": 6443, "targetService": "kube-apiserver",
            "targetPort": 6443, "targetNamespace": "clusters-tenant",
        }],
    });
    let egress = json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "EgressIPAM", "metadata": {"name": "small"},
        "spec": {"topologyLabel": "zone", "cidrAssignments": [{"CIDR": "10.0.128.0/20", "labelValue": "a"}]},
    });
    vec![
        (
            infra(json!({"dhcp": {}, "dns": {}, "proxy": {}})),
            vec![
                ("/spec/infraComponents/dhcp/enabled", json!(true)),
                ("/spec/infraComponents/dhcp/leaseTime", json!("1h")),
                ("/spec/infraComponents/dns/enabled", json!(true)),
                ("/spec/infraComponents/proxy/enabled", json!(true)),
                (
                    "/spec/infraComponents/proxy/apiServerService",
                    json!("kube-apiserver"),
                ),
            ],
        ),
        (
            component("DHCPServer", dhcp),
            vec![("/spec/leaseConfig/leaseTime", json!("1h"))],
        ),
        (
            component("DNSServer", dns),
            vec![
                ("/spec/cacheTTL", json!("30s")),
                ("/spec/networkConfig/dnsPort", json!(53)),
                ("/spec/reloadInterval", json!("5s")),
            ],
        ),
        (
            component("ProxyServer", proxy),
            vec![
                ("/spec/backends/0/protocol", json!("TCP")),
                ("/spec/backends/0/timeoutSeconds", json!(30)),
                ("/spec/logLevel", json!("info")),
                ("/spec/port", json!(443)),
                ("/spec/xdsPort", json!(18000)),
            ],
        ),
        (egress, vec![]),
    ]
}

#[tokio::test]
async fn defaults_are_those_of_the_go_version_and_no_others() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("defaults").await.unwrap();
    let server = ApiServer::of(cluster).await;
    server.install_ours().await;

    for (manifest, added) in defaults() {
        let mut expected = manifest.clone();
        for (pointer, value) in added {
            set(&mut expected, pointer, value);
        }
        let stored = server
            .offer(&kind_of(&manifest), namespace.name(), &manifest)
            .await
            .unwrap();
        assert_eq!(stored["spec"], expected["spec"], "{}", manifest["kind"]);
    }
}

fn set(value: &mut Value, pointer: &str, new: Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    value.pointer_mut(parent).unwrap()[field] = new;
}

#[tokio::test]
async fn kinds_answer_to_the_names_that_they_had() {
    let cluster = Cluster::shared().await.unwrap();
    let server = ApiServer::of(cluster).await;
    server.install_ours().await;

    // Plural, singular, short names, kind, scope.
    for (group, names, namespaced) in [
        (
            "hostedcluster.densityops.com",
            vec!["infras", "infra", "Infra"],
            true,
        ),
        (
            "hostedcluster.densityops.com",
            vec!["dhcpservers", "dhcpserver", "DHCPServer"],
            true,
        ),
        (
            "hostedcluster.densityops.com",
            vec!["dnsservers", "dnsserver", "dns", "DNSServer"],
            true,
        ),
        (
            "hostedcluster.densityops.com",
            vec!["proxyservers", "proxyserver", "proxy", "proxies", "ProxyServer"],
            true,
        ),
        (
            "hostedcluster.densityops.com",
            vec!["dhcpleases", "dhcplease", "DHCPLease"],
            true,
        ),
        (
            "redhatcop.redhat.io",
            vec!["egressipams", "egressipam", "EgressIPAM"],
            false,
        ),
    ] {
        let listed = server
            .send(
                http::Method::GET,
                &format!("/apis/{group}/v1alpha1"),
                &Value::Null,
            )
            .await
            .unwrap();
        let resource = listed["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|resource| resource["name"] == names[0])
            .unwrap_or_else(|| panic!("{} is not served: {listed}", names[0]));
        assert_eq!(resource["namespaced"], namespaced, "{}", names[0]);
        assert_eq!(resource["categories"], json!(["oooi"]), "{}", names[0]);
        let mut known = vec![&resource["name"], &resource["singularName"], &resource["kind"]];
        known.extend(resource["shortNames"].as_array().into_iter().flatten());
        for name in &names {
            assert!(
                known.contains(&&json!(name)),
                "{name} is not among the names {known:?}"
            );
        }
    }
}

#[tokio::test]
async fn every_field_of_every_kind_is_explained() {
    let cluster = Cluster::shared().await.unwrap();
    let server = ApiServer::of(cluster).await;
    server.install_ours().await;

    // As a person sees it: the name and the type of a field, and words below them.
    let infra = serde_json::to_value(<oooi_api::Infra as kube::CustomResourceExt>::crd()).unwrap();
    let network = &infra["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["networkConfig"];
    let text = cluster
        .kubectl(&["explain", "infra.spec.networkConfig"])
        .await
        .unwrap();
    for field in network["properties"].as_object().unwrap().keys() {
        let at = text
            .find(&format!("\n  {field}\t"))
            .unwrap_or_else(|| panic!("{field} is not in\n{text}"));
        let description = text[at..].lines().nth(2).unwrap_or_default();
        assert!(description.starts_with("    "), "{field} has no words in\n{text}");
    }

    let mut silent = Vec::new();
    for definition in oooi_api::definitions() {
        let definition = serde_json::to_value(&definition).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let kind = definition["spec"]["names"]["kind"].as_str().unwrap();
        undescribed(schema, kind, &mut silent);
    }
    assert!(
        silent.is_empty(),
        "these fields have no description: {}",
        silent.join(", ")
    );
}

fn undescribed(schema: &Value, path: &str, silent: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(str::is_empty) {
            silent.push(path.clone());
        }
        undescribed(property, &path, silent);
    }
    if schema["items"].is_object() {
        undescribed(&schema["items"], &format!("{path}[]"), silent);
    }
}
