//! What people read when a manifest is wrong.

use oooi_manifest::{Mistake, Source, read};

fn mistakes(text: &str) -> Vec<Mistake> {
    match read(&Source::new("infra.yaml", text)) {
        Err(mistakes) => mistakes,
        Ok(documents) => documents
            .iter()
            .flat_map(oooi_manifest::Document::check)
            .collect(),
    }
}

fn shown(text: &str) -> String {
    mistakes(text)
        .iter()
        .map(Mistake::with_snippet)
        .collect::<Vec<_>>()
        .join("\n\n")
}

#[test]
fn all_mistakes_come_at_once_each_with_its_place_and_its_remedy() {
    let text = r#"apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata:
  name: my-cluster
spec:
  networkConfig:
    cird: 192.168.100.0/24
    gateway: 192.168.100.1
    networkAttachmentDefinition: 100
  infraComponents:
    dhcp:
      enabled: yes
      unknownClients: serve
      replicas: 7
    proxy:
      backends:
        - name: API
          hostname: api.example.com
          port: 443
          targetService: kube-apiserver
          targetPort: [6443]
          targetNamespace: clusters-my-cluster
"#;
    insta::assert_snapshot!(shown(text));
}

#[test]
fn a_broken_rule_points_at_the_part_that_it_is_about() {
    let text = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: DHCPServer\nmetadata: {name: a}\nspec:\n  networkConfig:\n    cidr: 10.0.0.0/24\n    gateway: 10.0.1.1\n    serverIP: 10.0.0.2\n  leaseConfig: {rangeStart: 10.0.0.10, rangeEnd: 10.0.0.5}\n";
    insta::assert_snapshot!(shown(text));
}

#[test]
fn a_rule_is_held_against_one_field_where_another_is_missing() {
    let text = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: a}\nspec:\n  networkConfig: {cidr: 192.168.300.0/24, networkAttachmentDefinition: vlan}\n  infraComponents: {}\n";
    insta::assert_snapshot!(shown(text));
}

#[test]
fn a_kind_that_does_not_exist_is_named_with_the_one_that_was_meant() {
    insta::assert_snapshot!(shown(
        "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: DHCPSever\nmetadata: {name: a}\n"
    ));
    insta::assert_snapshot!(shown(
        "apiVersion: hostedcluster.densityops.com/v1\nkind: Infra\nmetadata: {name: a}\n"
    ));
}

#[test]
fn what_is_no_kubernetes_object_is_said() {
    insta::assert_snapshot!(shown("a: 1\n"));
    insta::assert_snapshot!(shown("- a\n"));
}

#[test]
fn kinds_of_others_are_only_read() {
    assert_eq!(
        mistakes("apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {anything: [goes]}\n"),
        []
    );
}

#[test]
fn what_does_not_decode_names_its_field() {
    let source = Source::new(
        "svc.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  ports:\n    - port: http\n",
    );
    let document = read(&source).unwrap().remove(0);
    let mistake = document
        .decode::<k8s_openapi::api::core::v1::Service>()
        .unwrap_err();
    insta::assert_snapshot!(mistake.with_snippet());
}

#[test]
fn a_null_counts_as_absent() {
    let text = "apiVersion: redhatcop.redhat.io/v1alpha1\nkind: EgressIPAM\nmetadata: {name: a}\nspec: {topologyLabel: zone, nodeSelector: null}\n";
    assert_eq!(mistakes(text), []);
}

#[test]
fn a_list_stands_for_its_items_and_their_mistakes_for_their_places() {
    let text = "apiVersion: v1
kind: List
items:
- apiVersion: hostedcluster.densityops.com/v1alpha1
  kind: Infra
  metadata:
    name: x
  spec:
    networkConfig:
      cird: 192.168.100.0/24
";
    let found = mistakes(text);
    assert!(
        found
            .iter()
            .any(|mistake| mistake.path == "spec.networkConfig.cird" && mistake.place.line == 10),
        "{found:?}"
    );
    let of_none = read(&Source::new(
        "none.yaml",
        "apiVersion: v1\nkind: List\nitems: []\n",
    ));
    assert!(of_none.is_ok_and(|documents| documents.is_empty()));
}
