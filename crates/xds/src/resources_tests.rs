use oooi_proxy::assemble::Assembler;
use serde_json::json;

use super::*;

fn assembler(backends: usize, endpoints: usize) -> Assembler {
    let mut assembler = Assembler::default();
    let list: Vec<_> = (0..backends)
        .map(|i| {
            json!({"name": format!("b{i}"), "hostname": format!("b{i}.example"), "port": 443,
            "targetService": format!("s{i}"), "targetPort": 443, "targetNamespace": "demo"})
        })
        .collect();
    let spec = json!({"networkConfig": {"serverIP": "192.0.2.4"}, "backends": list});
    assembler.set_spec(&serde_json::from_value(spec).unwrap());
    for i in 0..backends {
        set_endpoints(&mut assembler, i, endpoints);
    }
    assembler
}

fn set_endpoints(assembler: &mut Assembler, backend: usize, count: usize) {
    let endpoints: Vec<_> = (0..count)
        .map(|i| json!({"addresses": [format!("10.{}.{}.{i}", backend / 250, backend % 250)]}))
        .collect();
    let slice = json!({"metadata": {"namespace": "demo", "name": format!("s{backend}"),
            "labels": {"kubernetes.io/service-name": format!("s{backend}")}},
        "addressType": "IPv4", "ports": [{"port": 8443}], "endpoints": endpoints});
    assembler.set_slice(&serde_json::from_value(slice).unwrap());
}

const ADDRESSES: [IpAddr; 1] = [IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)];

fn next(before: &Resources, assembler: &mut Assembler) -> Resources {
    Resources::next(before, &assembler.snapshot(), &ADDRESSES)
}

#[test]
fn an_endpoint_change_touches_one_resource() {
    let mut assembler = assembler(3, 2);
    let before = next(&Resources::default(), &mut assembler);
    set_endpoints(&mut assembler, 1, 3);
    let after = next(&before, &mut assembler);
    assert!(Arc::ptr_eq(before.set(Kind::Clusters), after.set(Kind::Clusters)));
    assert!(Arc::ptr_eq(
        before.set(Kind::Listeners),
        after.set(Kind::Listeners)
    ));
    let changed: Vec<_> = after
        .set(Kind::Endpoints)
        .iter()
        .filter(|(name, resource)| !Arc::ptr_eq(before.set(Kind::Endpoints).get(name).unwrap(), resource))
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(changed, ["b1"]);
}

#[test]
fn versions_depend_on_content_alone() {
    let one = next(&Resources::default(), &mut assembler(5, 2));
    let two = next(&Resources::default(), &mut assembler(5, 2));
    for kind in Kind::ALL {
        assert_eq!(one.version(kind), two.version(kind));
    }
    let other = next(&Resources::default(), &mut assembler(5, 3));
    assert_ne!(one.version(Kind::Endpoints), other.version(Kind::Endpoints));
    assert_eq!(one.version(Kind::Listeners), other.version(Kind::Listeners));
}

#[test]
fn names_are_in_the_matcher_and_chains_stay_the_same() {
    use envoy_types::pb::envoy::config::listener::v3::Listener;
    let listener = |resources: &Resources| {
        let body = &resources.set(Kind::Listeners).get("tcp-443").unwrap().body;
        Listener::decode(&*body.value).unwrap()
    };
    let spec = |alternates: &[&str]| {
        let backend = json!({"name": "api", "hostname": "api.example", "alternateHostnames": alternates,
            "port": 443, "targetService": "s", "targetPort": 443, "targetNamespace": "demo"});
        let spec = json!({"networkConfig": {"serverIP": "192.0.2.4"}, "backends": [backend]});
        serde_json::from_value(spec).unwrap()
    };
    let mut assembler = Assembler::default();
    assembler.set_spec(&spec(&[]));
    let before = next(&Resources::default(), &mut assembler);
    assembler.set_spec(&spec(&["kubernetes", "*.apps.example"]));
    let after = next(&before, &mut assembler);
    let (before, after) = (listener(&before), listener(&after));
    assert_eq!(before.filter_chains, after.filter_chains);
    assert_ne!(before.filter_chain_matcher, after.filter_chain_matcher);
    assert!(after.filter_chains[0].filter_chain_match.is_none());
}

#[test]
fn every_kind_has_its_own_type_url() {
    for kind in Kind::ALL {
        assert_eq!(Kind::of_type_url(kind.type_url()), Some(kind));
    }
    let built = next(&Resources::default(), &mut assembler(1, 1));
    for kind in Kind::ALL {
        for resource in built.set(kind).values() {
            assert_eq!(resource.body.type_url, kind.type_url());
        }
    }
    assert_eq!(Kind::of_type_url("type.googleapis.com/x"), None);
}
