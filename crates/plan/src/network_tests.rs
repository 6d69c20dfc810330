use super::*;

const BRIDGE: &str = r#"{"cniVersion": "0.3.1", "name": "vlan100", "type": "cnv-bridge", "bridge": "br1", "vlan": 100,
    "macspoofchk": true, "disableContainerInterface": true}"#;
const LOCALNET: &str = r#"{"cniVersion": "0.4.0", "name": "localnet1", "type": "ovn-k8s-cni-overlay",
    "topology": "localnet", "physicalNetworkName": "physnet", "vlanID": 100, "netAttachDefName": "vms/vlan100"}"#;
const STATIC: &str = r#"{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "macvlan", "master": "bond0.100",
    "ipam": {"type": "static"}, "capabilities": {"ips": true}}, {"type": "sbr"}]}"#;

fn read(text: &str) -> Network {
    Network::read(Some(text)).unwrap()
}

#[test]
fn a_vlan_is_its_plugin_its_link_and_its_number() {
    for (config, plugin, link, id) in [
        (BRIDGE, "bridge", "br1", 100),
        (LOCALNET, OVN, "physnet", 100),
        (STATIC, "macvlan", "bond0.100", 0),
        (r#"{"type": "bridge"}"#, "bridge", "cni0", 0),
        (
            r#"{"type": "vlan", "master": "eth1", "vlanId": 7}"#,
            "vlan",
            "eth1",
            7,
        ),
        (
            r#"{"name": "net", "type": "ovn-k8s-cni-overlay", "topology": "localnet"}"#,
            OVN,
            "net",
            0,
        ),
    ] {
        let expected = Vlan {
            plugin: plugin.into(),
            link: link.into(),
            id,
        };
        assert_eq!(read(config).vlan, expected, "{config}");
    }
    assert_eq!(
        read(BRIDGE).vlan,
        read(r#"{"type": "bridge", "bridge": "br1", "vlan": 100, "name": "other"}"#).vlan,
        "the name of a definition says nothing about the wire"
    );
}

#[test]
fn a_definition_for_machines_needs_a_sibling_and_one_for_pods_does_not() {
    use StaticAddresses::{Impossible, NeedsSibling, Supported};
    assert_eq!(read(BRIDGE).static_addresses(), NeedsSibling);
    assert_eq!(read(STATIC).static_addresses(), Supported);
    assert_eq!(read(LOCALNET).static_addresses(), Supported);
    let half = r#"{"type": "bridge", "ipam": {"type": "static"}}"#;
    assert_eq!(
        read(half).static_addresses(),
        NeedsSibling,
        "without the capability requested addresses are ignored"
    );
    for (config, remedy) in [
        (
            r#"{"name": "n", "type": "ovn-k8s-cni-overlay", "topology": "localnet", "subnets": "10.0.0.0/24"}"#,
            "remove `subnets`",
        ),
        (
            r#"{"name": "n", "type": "ovn-k8s-cni-overlay", "topology": "layer2"}"#,
            "localnet",
        ),
        (r#"{"name": "n", "type": "moon"}"#, "use bridge"),
    ] {
        let Impossible(why) = read(config).static_addresses() else {
            panic!("{config} is possible")
        };
        assert!(why.contains(remedy), "{why}");
        assert_eq!(read(config).sibling("clusters", "x", None), Err(why));
    }
}

#[test]
fn a_sibling_is_the_same_wire_with_static_addresses_and_routes_by_source() {
    let sibling = read(BRIDGE)
        .sibling("clusters", "my-vlan", Some(Ipv4Addr::new(10, 0, 0, 1)))
        .unwrap();
    let value: Value = serde_json::from_str(&sibling).unwrap();
    assert_eq!(
        value,
        json!({"cniVersion": "0.3.1", "name": "my-vlan", "plugins": [
            {"type": "cnv-bridge", "bridge": "br1", "vlan": 100, "macspoofchk": true, "capabilities": {"ips": true},
             "ipam": {"type": "static", "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}]}},
            {"type": "sbr"},
        ]})
    );
    let again = read(&sibling);
    assert_eq!(again.vlan, read(BRIDGE).vlan);
    assert_eq!(again.static_addresses(), StaticAddresses::Supported);
    assert!(again.routes_by_source() && !read(BRIDGE).routes_by_source());
    let twice = again
        .sibling("clusters", "my-vlan", Some(Ipv4Addr::new(10, 0, 0, 1)))
        .unwrap();
    assert_eq!(twice, sibling, "a sibling of a sibling is itself");
}

#[test]
fn a_sibling_on_ovn_keeps_the_network_and_says_who_it_is() {
    let sibling = read(LOCALNET).sibling("clusters", "my-vlan", None).unwrap();
    let mut expected: Value = serde_json::from_str(LOCALNET).unwrap();
    expected["netAttachDefName"] = json!("clusters/my-vlan");
    assert_eq!(serde_json::from_str::<Value>(&sibling).unwrap(), expected);
}

#[test]
fn what_is_no_configuration_is_refused_with_the_remedy() {
    assert_eq!(Network::read(None), Err(BadNetwork::Empty));
    for (text, says) in [
        ("", "no spec.config"),
        ("{", "is not JSON"),
        ("[]", "needs an object"),
        ("{}", "needs an object"),
        (r#"{"plugins": []}"#, "needs an object"),
        (r#"{"plugins": {}}"#, "needs an object"),
        (r#"{"plugins": ["bridge"]}"#, "needs an object"),
        (r#"{"type": 7}"#, "`type` in its spec.config is 7: write a text"),
        (r#"{"type": "bridge", "vlan": "100"}"#, "from 0 to 4094"),
        (r#"{"type": "bridge", "vlan": 4095}"#, "from 0 to 4094"),
        (r#"{"type": "bridge", "vlan": -1}"#, "from 0 to 4094"),
    ] {
        let error = Network::read(Some(text)).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn every_prefix_of_a_configuration_is_refused() {
    for config in [BRIDGE, LOCALNET, STATIC] {
        for end in 0..config.len() {
            assert!(Network::read(Some(&config[..end])).is_err(), "{}", &config[..end]);
        }
    }
}

#[test]
fn pods_reach_definitions_of_their_own_namespace_and_of_global_ones() {
    assert!(is_reachable("clusters", "clusters"));
    assert!(is_reachable("default", "clusters"));
    assert!(!is_reachable("vms", "clusters"));
}
