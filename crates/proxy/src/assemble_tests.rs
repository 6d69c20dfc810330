use serde_json::{Value, json};

use super::*;
use crate::config::tests::spec;

fn service(ports: Value) -> Service {
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "clusters-demo", "name": "kube-apiserver"}, "spec": {"ports": ports}}))
    .unwrap()
}

fn slice(name: &str, ports: Value, endpoints: Value) -> EndpointSlice {
    serde_json::from_value(
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "clusters-demo", "name": name,
                     "labels": {"kubernetes.io/service-name": "kube-apiserver"}},
        "addressType": "IPv4", "ports": ports, "endpoints": endpoints}),
    )
    .unwrap()
}

fn ready(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}})
}

fn endpoints(assembler: &mut Assembler) -> Vec<String> {
    let snapshot = assembler.snapshot();
    snapshot
        .clusters
        .get("api")
        .unwrap()
        .endpoints
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn lack(assembler: &mut Assembler) -> Lack {
    let snapshot = assembler.snapshot();
    assert!(snapshot.clusters.get("api").unwrap().endpoints.is_empty());
    assert_eq!(&*snapshot.problems[0].backend, "api");
    snapshot.problems[0].lack
}

#[test]
fn the_service_port_leads_to_the_pod_port_by_its_name() {
    for target_port in [json!(443), json!("https"), json!("443")] {
        let mut assembler = Assembler::default();
        assembler.set_spec(&spec(&[json!({"targetPort": target_port})]));
        assembler.set_service(&service(json!([
            {"name": "metrics", "port": 9090}, {"name": "https", "port": 443, "targetPort": "tls"}])));
        assembler.set_slice(&slice(
            "a",
            json!([{"name": "metrics", "port": 9090}, {"name": "https", "port": 8443}]),
            json!([ready("10.0.0.1"), ready("10.0.0.2")]),
        ));
        assert_eq!(
            endpoints(&mut assembler),
            ["10.0.0.1:8443", "10.0.0.2:8443"],
            "{target_port}"
        );
    }
}

#[test]
fn without_a_service_the_only_port_of_the_slice_is_taken() {
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[json!({})]));
    assembler.set_slice(&slice("a", json!([{"port": 7443}]), json!([ready("10.0.0.1")])));
    assert_eq!(endpoints(&mut assembler), ["10.0.0.1:7443"]);
    assembler.set_slice(&slice(
        "a",
        json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]),
        json!([ready("10.0.0.1")]),
    ));
    assert_eq!(lack(&mut assembler), Lack::NoEndpoints);
}

#[test]
fn several_slices_are_joined_and_an_address_counts_once() {
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[json!({})]));
    assembler.set_service(&service(json!([{"port": 6443}])));
    assembler.set_slice(&slice(
        "b",
        json!([{"port": 6443}]),
        json!([ready("10.0.0.2"), ready("10.0.0.1")]),
    ));
    assembler.set_slice(&slice(
        "a",
        json!([{"name": "", "port": 6443}]),
        json!([ready("10.0.0.1")]),
    ));
    assert_eq!(endpoints(&mut assembler), ["10.0.0.1:6443", "10.0.0.2:6443"]);
    assembler.remove_slice("clusters-demo", "b");
    assert_eq!(endpoints(&mut assembler), ["10.0.0.1:6443"]);
}

#[test]
fn pods_that_leave_take_connections_only_when_nobody_else_does() {
    let leaving = json!({"addresses": ["10.0.0.9"], "conditions": {"ready": false, "serving": true, "terminating": true}});
    let dead = json!({"addresses": ["10.0.0.8"], "conditions": {"ready": false, "serving": false, "terminating": true}});
    let starting = json!({"addresses": ["10.0.0.7"], "conditions": {"ready": false, "serving": false}});
    let unknown = json!({"addresses": ["10.0.0.1"]});
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[json!({})]));
    assembler.set_service(&service(json!([{"port": 6443}])));
    let port = json!([{"port": 6443}]);
    assembler.set_slice(&slice(
        "a",
        port.clone(),
        json!([leaving, dead, starting, unknown]),
    ));
    assert_eq!(endpoints(&mut assembler), ["10.0.0.1:6443"]);
    assembler.set_slice(&slice("a", port.clone(), json!([leaving, dead, starting])));
    assert_eq!(endpoints(&mut assembler), ["10.0.0.9:6443"]);
    assembler.set_slice(&slice("a", port, json!([dead])));
    assert_eq!(lack(&mut assembler), Lack::NoEndpoints);
}

#[test]
fn where_nobody_is_ready_those_that_are_not_are_tried_and_that_is_said() {
    let unready = json!({"addresses": ["10.0.0.7"], "conditions": {"ready": false, "serving": false}});
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[json!({})]));
    assembler.set_service(&service(json!([{"port": 6443}])));
    let port = json!([{"port": 6443}]);
    assembler.set_slice(&slice("a", port.clone(), json!([unready])));
    assert_eq!(assembler.snapshot().problems[0].lack, Lack::NoEndpoints);
    assert_eq!(endpoints(&mut assembler), ["10.0.0.7:6443"]);
    assembler.set_slice(&slice("a", port, json!([unready, ready("10.0.0.1")])));
    assert_eq!(endpoints(&mut assembler), ["10.0.0.1:6443"]);
    assert!(assembler.snapshot().problems.is_empty());
}

#[test]
fn what_a_backend_lacks_is_said_and_mended_when_it_comes() {
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[json!({})]));
    assert_eq!(lack(&mut assembler), Lack::ServiceMissing);
    assembler.set_service(&service(json!([{"port": 443}])));
    assert_eq!(lack(&mut assembler), Lack::PortMissing);
    assembler.set_service(&service(json!([{"port": 6443, "protocol": "UDP"}])));
    assert_eq!(lack(&mut assembler), Lack::PortMissing);
    assembler.set_service(&service(json!([{"port": 6443}])));
    assert_eq!(lack(&mut assembler), Lack::NoEndpoints);
    assembler.set_slice(&slice("a", json!([{"port": 6443}]), json!([ready("10.0.0.1")])));
    assert_eq!(endpoints(&mut assembler).len(), 1);
    assert!(assembler.snapshot().problems.is_empty());
    assembler.remove_slice("clusters-demo", "a");
    assembler.remove_service("clusters-demo", "kube-apiserver");
    assert_eq!(lack(&mut assembler), Lack::ServiceMissing);
}

#[test]
fn what_did_not_change_is_handed_on_as_it_was() {
    let mut assembler = Assembler::default();
    let other = json!({"name": "other", "hostname": "other.example", "targetService": "other"});
    let two = spec(&[json!({}), other.clone()]);
    assembler.set_spec(&two);
    let before = assembler.snapshot();
    assembler.set_spec(&two);
    assembler.set_slice(&slice("a", json!([{"port": 6443}]), json!([ready("10.0.0.1")])));
    let after = assembler.snapshot();
    assert!(Arc::ptr_eq(&before.listeners, &after.listeners));
    assert!(Arc::ptr_eq(
        before.clusters.get("other").unwrap(),
        after.clusters.get("other").unwrap()
    ));
    assert!(!Arc::ptr_eq(
        before.clusters.get("api").unwrap(),
        after.clusters.get("api").unwrap()
    ));
    let plain = json!({"name": "plain", "hostname": "*", "port": 80});
    assembler.set_spec(&spec(&[json!({}), other, plain]));
    let wider = assembler.snapshot();
    let https = ListenerKey {
        port: 443,
        transport: Transport::Tcp,
    };
    assert!(Arc::ptr_eq(&after.listeners[&https], &wider.listeners[&https]));
    assert_eq!(wider.listeners.len(), 2);
    assembler.set_spec(&spec(&[json!({})]));
    assert_eq!(assembler.snapshot().clusters.len(), 1);
}

#[test]
fn a_slice_that_moves_to_another_service_leaves_the_first() {
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[json!({})]));
    let mut moving = slice("a", json!([{"port": 6443}]), json!([ready("10.0.0.1")]));
    assembler.set_slice(&moving);
    assert_eq!(endpoints(&mut assembler).len(), 1);
    moving
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(SERVICE_NAME.into(), "another".into());
    assembler.set_slice(&moving);
    assert_eq!(lack(&mut assembler), Lack::ServiceMissing);
}

#[test]
fn a_service_that_is_awaited_changes_nothing_and_lacks_nothing() {
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[json!({})]));
    let key = assembler.wanted_services().next().unwrap().clone();
    assembler.await_service(&key);
    let first = assembler.snapshot();
    assert!(!first.clusters.get("api").unwrap().known);
    assert!(first.problems.is_empty());
    assembler.set_slice(&slice("a", json!([{"port": 6443}]), json!([ready("10.0.0.1")])));
    assert!(endpoints(&mut assembler).is_empty(), "a part of what there is");
    assembler.service_is_here(&key);
    assert_eq!(endpoints(&mut assembler), ["10.0.0.1:6443"]);

    // Another Service is named: the pods of the first serve until the second was heard of.
    assembler.set_spec(&spec(&[json!({"targetService": "other"})]));
    let other = assembler.wanted_services().next().unwrap().clone();
    assembler.await_service(&other);
    assembler.remove_slice("clusters-demo", "a");
    let between = assembler.snapshot();
    assert!(between.clusters.get("api").unwrap().known && between.problems.is_empty());
    assert_eq!(endpoints(&mut assembler), ["10.0.0.1:6443"]);
    assembler.service_is_here(&other);
    assert_eq!(lack(&mut assembler), Lack::ServiceMissing);
}
