//! HostedClusters of every publishing strategy, and each thing that can be missing.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

mod support;

use std::net::Ipv4Addr;

use oooi_api::foreign::{HostedCluster, NodePool};
use oooi_plan::Known;
use oooi_plan::hosted_cluster::{Derived, Sources, derive, is_opted_in};
use support::hosted_cluster::{CLI, World, cluster, infra, pool};
use support::{planned, read};

/// `name[,alternate that nodes use] port → service:port`, one a line.
fn routes(derived: &Derived) -> Vec<String> {
    let hidden = |name: &&String| !name.starts_with("kubernetes") && !name.starts_with("openshift");
    let backends = derived.control_plane.backends.iter();
    backends
        .map(|backend| {
            let names: Vec<&str> = std::iter::once(&backend.hostname)
                .chain(&backend.alternate_hostnames)
                .filter(hidden)
                .map(String::as_str)
                .collect();
            let target = serde_json::to_value(&backend.target_port).unwrap();
            format!(
                "{} {} → {}:{target}",
                names.join(","),
                backend.port,
                backend.target_service
            )
        })
        .collect()
}

fn reasons(derived: &Derived) -> Vec<&'static str> {
    derived.gaps.iter().map(|gap| gap.reason).collect()
}

#[test]
fn the_defaults_of_the_cli_boot() {
    let world = World::usual().with_service(
        "kube-apiserver",
        "status: {loadBalancer: {ingress: [{ip: 203.0.113.7}]}}",
    );
    let derived = world.derive(&cluster(&CLI, ""));
    assert_eq!(reasons(&derived), [""; 0]);
    assert_eq!(
        routes(&derived),
        [
            "api.tenant.hypershift.local 6443 → kube-apiserver:6443",
            "ignition-server-clusters-tenant.apps.mgmt.example.net 443 → ignition-server-proxy:443",
            "konnectivity-server-clusters-tenant.apps.mgmt.example.net 443 → konnectivity-server:8091",
            "oauth-clusters-tenant.apps.mgmt.example.net 443 → oauth-openshift:6443",
        ]
    );
    let plan = planned(&infra(&derived), &Known::default());
    insta::assert_snapshot!("cli-defaults", serde_saphyr::to_string(&plan).unwrap());
    let routes = &plan.dhcp.unwrap().network_config.routes;
    assert_eq!(
        (routes[0].destination.as_str(), routes[0].gateway.as_str()),
        ("203.0.113.7/32", "192.168.100.4")
    );
}

#[test]
fn a_load_balancer_without_an_address_is_waited_for_and_the_rest_is_served() {
    let derived = World::usual().derive(&cluster(&CLI, ""));
    assert_eq!(reasons(&derived), ["EndpointPending"]);
    assert_eq!(derived.waiting_load_balancer.as_deref(), Some("kube-apiserver"));
    assert_eq!(
        derived.control_plane.backends.len(),
        4,
        "pods reach the API server by its own names already"
    );
    assert!(derived.infra.is_some());
}

#[test]
fn the_gateway_s_own_address_in_the_load_balancer_needs_no_route() {
    let mut world = World::usual().with_service(
        "kube-apiserver",
        "status: {loadBalancer: {ingress: [{ip: 192.168.100.4}]}}",
    );
    world.gateways = vec![Ipv4Addr::new(192, 168, 100, 4)];
    let derived = world.derive(&cluster(&CLI, ""));
    assert!(derived.control_plane.published_ips.is_empty());
    let plan = planned(&infra(&derived), &Known::default());
    assert_eq!(
        plan.addresses().proxy,
        ["192.168.100.4"],
        "it is kept, whatever else is known"
    );
    // Somebody else's load balancer on the VLAN is left alone, and nobody gets its address.
    world.gateways.clear();
    let plan = planned(&infra(&world.derive(&cluster(&CLI, ""))), &Known::default());
    assert_eq!(plan.addresses().proxy, ["192.168.100.5"]);
    assert_eq!(plan.dhcp.unwrap().lease_config.exclusions, ["192.168.100.4"]);
}

#[test]
fn every_strategy_is_served_under_the_name_and_port_that_nodes_use() {
    let status = "status: {controlPlaneEndpoint: {host: api.from-status.example.com, port: 443}, ignitionEndpoint: \
                  'ign.from-status.example.com:31443', oauthCallbackURLTemplate: \
                  'https://oauth.from-status.example.com:32443/oauth2callback/[id]'}";
    for (services, rest, expected) in [
        (
            vec![
                ("APIServer", "{type: Route, route: {hostname: API.example.com}}"),
                ("Ignition", "{type: Route, route: {hostname: ign.example.com}}"),
                (
                    "Konnectivity",
                    "{type: Route, route: {hostname: konn.example.com}}",
                ),
                ("OAuthServer", "{type: None}"),
            ],
            "",
            vec![
                "api.example.com,api.tenant.hypershift.local 443 → kube-apiserver:6443",
                "ign.example.com 443 → ignition-server-proxy:443",
                "konn.example.com 443 → konnectivity-server:8091",
            ],
        ),
        (
            vec![
                (
                    "APIServer",
                    "{type: LoadBalancer, loadBalancer: {hostname: api.example.com}}",
                ),
                (
                    "Konnectivity",
                    "{type: LoadBalancer, loadBalancer: {hostname: konn.example.com}}",
                ),
                (
                    "Ignition",
                    "{type: NodePort, nodePort: {address: node.example.com, port: 30443}}",
                ),
            ],
            "  kubeAPIServerDNSName: kas.example.com\n",
            vec![
                "api.example.com,kas.example.com,api.tenant.hypershift.local 6443 → kube-apiserver:6443",
                "node.example.com 30443 → ignition-server-proxy:443",
                "konn.example.com 8091 → konnectivity-server:8091",
            ],
        ),
        (
            vec![
                ("APIServer", "{type: Route}"),
                (
                    "Ignition",
                    "{type: NodePort, nodePort: {address: node.example.com}}",
                ),
                (
                    "Konnectivity",
                    "{type: NodePort, nodePort: {address: 203.0.113.9}}",
                ),
                (
                    "OAuthServer",
                    "{type: NodePort, nodePort: {address: 203.0.113.9}}",
                ),
            ],
            status,
            vec![
                "api.from-status.example.com,api.tenant.hypershift.local 443 → kube-apiserver:6443",
                "node.example.com 31443 → ignition-server-proxy:443",
                "* 32091 → konnectivity-server:8091",
                "* 32443 → oauth-openshift:6443",
            ],
        ),
    ] {
        let world = World::usual().with_service(
            "konnectivity-server",
            "spec: {ports: [{port: 8091, nodePort: 32091}]}",
        );
        let derived = world.derive(&cluster(&services, rest));
        assert_eq!(reasons(&derived), [""; 0], "{:?}", derived.gaps);
        assert_eq!(routes(&derived), expected);
        planned(&infra(&derived), &Known::default());
    }
}

#[test]
fn a_route_s_own_host_wins_over_the_router_s_pattern() {
    let mut world = World::usual();
    world.routes.push(read(
        "{apiVersion: route.openshift.io/v1, kind: Route, metadata: {name: ignition-server}, spec: {host: own.example.net}}",
    ));
    let derived = world.derive(&cluster(&CLI, ""));
    assert!(routes(&derived)[1].starts_with("own.example.net 443"));
}

#[test]
fn a_node_port_on_the_vlan_is_the_gateway_itself() {
    let services = [(
        "APIServer",
        "{type: NodePort, nodePort: {address: 192.168.100.20, port: 30643}}",
    )];
    let derived = World::usual().derive(&cluster(&services, ""));
    let infra = infra(&derived);
    let plan = planned(&infra, &Known::default());
    assert_eq!(plan.addresses().proxy, ["192.168.100.20"]);
    assert!(plan.dhcp.unwrap().network_config.routes.is_empty());
    let known = Known {
        control_plane: Some(derived.control_plane),
        ..Known::default()
    };
    assert_eq!(planned(&infra, &known).addresses().proxy, ["192.168.100.20"]);
}

#[test]
fn a_range_with_the_address_that_nodes_dial_is_refused() {
    let services = [(
        "APIServer",
        "{type: NodePort, nodePort: {address: 192.168.100.20, port: 30643}}",
    )];
    let of = |range: &str| {
        World::usual().derive(&cluster(&services, &format!("# annotate dhcp-range: {range}\n")))
    };
    let refused = of("192.168.100.10-192.168.100.99");
    assert!(refused.infra.is_none());
    let message = &refused.gaps[0].message;
    assert!(message.contains("a range without it"), "{message}");
    infra(&of("192.168.100.30-192.168.100.99"));
}

#[test]
fn applications_are_passed_through_where_hypershift_keeps_a_service_for_them() {
    let passthrough =
        "  platform: {type: KubeVirt, kubevirt: {baseDomainPassthrough: true, generateID: abc}}\n";
    let derived = World::usual().derive(&cluster(&CLI, passthrough));
    assert_eq!(
        routes(&derived)[4..],
        [
            "*.apps.tenant.example.com 443 → default-ingress-passthrough-service-abc:443",
            "* 80 → default-ingress-passthrough-service-abc:80",
        ]
    );
    let only_https = World::usual().with_service(
        "default-ingress-passthrough-service-abc",
        "spec: {ports: [{name: https-443, port: 443}]}",
    );
    assert_eq!(
        only_https
            .derive(&cluster(&CLI, passthrough))
            .control_plane
            .backends
            .len(),
        5
    );
    let pending = "  platform: {type: KubeVirt, kubevirt: {baseDomainPassthrough: true}}\n";
    assert!(reasons(&World::usual().derive(&cluster(&CLI, pending))).contains(&"AppsPending"));
}

#[test]
fn the_domain_follows_the_prefix_and_the_router_s_configuration() {
    for (rest, domain, apps) in [
        ("", "tenant.example.com", "apps.tenant.example.com"),
        (
            "  dns: {baseDomain: example.com, baseDomainPrefix: other}\n",
            "other.example.com",
            "apps.other.example.com",
        ),
        (
            "  dns: {baseDomain: example.com, baseDomainPrefix: ''}\n",
            "example.com",
            "apps.example.com",
        ),
        (
            "  configuration: {ingress: {domain: in.example.com}}\n",
            "tenant.example.com",
            "in.example.com",
        ),
        (
            "  configuration: {ingress: {domain: in.example.com, appsDomain: own.example.com}}\n",
            "tenant.example.com",
            "own.example.com",
        ),
    ] {
        let derived = World::usual().derive(&cluster(&CLI, rest));
        assert_eq!(derived.control_plane.domain.as_deref(), Some(domain));
        assert_eq!(derived.control_plane.apps_domain.as_deref(), Some(apps));
        let plan = planned(&infra(&derived), &Known::default());
        assert_eq!(plan.dns.unwrap().hosted_cluster_domain, domain);
    }
}

#[test]
fn annotations_go_before_what_is_derived() {
    let derived = World::default().derive(&cluster(
        &CLI,
        "# annotate cidr: 10.9.0.0/22
# annotate gateway: 10.9.3.254
# annotate network-attachment: other
# annotate dns-servers: '10.0.0.53, system'
# annotate dhcp-range: 10.9.1.0-10.9.2.255
# annotate proxy-engine: Native
",
    ));
    let spec = derived.infra.unwrap_or_else(|| panic!("{:?}", derived.gaps));
    let value = serde_json::to_value(&spec).unwrap();
    assert_eq!(
        value["networkConfig"],
        serde_json::json!({"cidr": "10.9.0.0/22", "gateway": "10.9.3.254", "networkAttachmentDefinition": "other",
            "networkAttachmentNamespace": "clusters", "dnsServers": ["10.0.0.53", "system"]})
    );
    let parts = &value["infraComponents"];
    assert_eq!(
        (&parts["dhcp"]["rangeStart"], &parts["dhcp"]["rangeEnd"]),
        (&"10.9.1.0".into(), &"10.9.2.255".into())
    );
    assert_eq!(parts["proxy"]["engine"], "Native");
}

#[test]
fn each_thing_that_cannot_be_derived_says_what_to_do() {
    let usual = World::usual;
    let with_pools = |pools: Vec<NodePool>| World {
        pools,
        ..World::default()
    };
    let two = vec![
        pool("a", "{additionalNetworks: [{name: vms/vlan100}]}"),
        pool("b", "{additionalNetworks: [{name: vms/vlan200}]}"),
    ];
    for (world, rest, reason, says) in [
        (
            usual(),
            "  platform: {type: AWS}\n",
            "PlatformUnsupported",
            "remove the annotation",
        ),
        (
            usual(),
            "  platform: {type: KubeVirt, kubevirt: {credentials: {infraKubeConfigSecret: {name: x, key: k}}}}\n",
            "ExternalInfraUnsupported",
            "install it there",
        ),
        (usual(), "  dns: {}\n", "NoBaseDomain", "set it"),
        (
            with_pools(two),
            "",
            "SeveralNetworks",
            "(vms/vlan100, vms/vlan200)",
        ),
        (
            with_pools(vec![]),
            "",
            "NoNetworkAttachment",
            "hostedcluster.densityops.com/network-attachment",
        ),
        (
            with_pools(vec![pool("a", "{additionalNetworks: [{name: a/b/c}]}")]),
            "",
            "BadNetworkAttachment",
            "mend it",
        ),
        (
            usual(),
            "  networking: {}\n",
            "NoMachineNetwork",
            "hostedcluster.densityops.com/cidr",
        ),
        (
            usual(),
            "  networking: {machineNetwork: [{cidr: 'fd00::/64'}]}\n",
            "OnlyIPv6",
            "hostedcluster.densityops.com/cidr",
        ),
        (
            usual(),
            "  networking: {machineNetwork: [{cidr: 10.0.0.0/31}]}\n",
            "BadMachineNetwork",
            "from /8 to /30",
        ),
        (
            usual(),
            "# annotate cidr: here\n",
            "BadAnnotation",
            "such as 192.168.100.0/24",
        ),
        (
            usual(),
            "# annotate gateway: 10.0.0.1\n",
            "BadAnnotation",
            "write one of 192.168.100.1-192.168.100.254",
        ),
        (
            usual(),
            "# annotate network-attachment: a/b/c\n",
            "BadAnnotation",
            "namespace/name",
        ),
        (
            usual(),
            "# annotate dhcp-range: 10.0.0.1\n",
            "BadAnnotation",
            "a range such as",
        ),
        (
            usual(),
            "# annotate dhcp-range: 10.0.0.1-10.0.0.9\n",
            "BadAnnotation",
            "write a part of 192.168.100.1-192.168.100.254",
        ),
        (
            usual(),
            "# annotate dhcp-range: 192.168.100.200-192.168.100.255\n",
            "BadAnnotation",
            "write a part of 192.168.100.1-192.168.100.254",
        ),
        (
            usual(),
            "# annotate dns-servers: '10.0.0.53,dns.example.com'\n",
            "BadAnnotation",
            "10.0.0.53:5353",
        ),
        (
            usual(),
            &format!("# annotate dns-servers: '{}'\n", ["10.0.0.53"; 16].join(",")),
            "BadAnnotation",
            "up to 15 resolvers",
        ),
        (
            usual(),
            "# annotate proxy-engine: haproxy\n",
            "BadAnnotation",
            "envoy or native",
        ),
    ] {
        let derived = world.derive(&cluster(&CLI, rest));
        let first = &derived.gaps[0];
        assert_eq!(first.reason, reason, "{:?}", derived.gaps);
        assert!(first.blocks && first.message.contains(says), "{}", first.message);
        assert!(derived.infra.is_none());
    }
}

#[test]
fn what_is_missing_of_the_services_is_partial_and_said() {
    for (service, strategy, reason) in [
        ("APIServer", "{type: LoadBalancer}", "EndpointPending"),
        (
            "Ignition",
            "{type: NodePort, nodePort: {address: node.example.com}}",
            "EndpointPending",
        ),
        ("Ignition", "{type: None}", "NotPublished"),
        ("Konnectivity", "{type: Tunnel}", "StrategyUnsupported"),
        (
            "Konnectivity",
            "{type: NodePort, nodePort: {address: 'fd00::1', port: 30000}}",
            "OnlyIPv6",
        ),
        (
            "Ignition",
            "{type: Route, route: {hostname: 'a b'}}",
            "BadHostname",
        ),
        (
            "Ignition",
            "{type: Route, route: {hostname: api.example.com}}",
            "NameTaken",
        ),
    ] {
        let mut services = vec![
            ("APIServer", "{type: Route, route: {hostname: api.example.com}}"),
            ("Ignition", "{type: Route}"),
            ("Konnectivity", "{type: Route}"),
        ];
        services
            .iter_mut()
            .filter(|(name, _)| *name == service)
            .for_each(|entry| entry.1 = strategy);
        let derived = World::usual().derive(&cluster(&services, ""));
        assert_eq!(reasons(&derived), [reason], "{:?}", derived.gaps);
        assert!(derived.infra.is_some(), "the rest is served");
    }
}

#[test]
fn of_a_dual_machine_network_the_ipv4_entry_is_used() {
    let derived = World::usual().derive(&cluster(
        &CLI,
        "  networking: {machineNetwork: [{cidr: 'fd00::/64'}, {cidr: 10.1.2.0/24}]}\n",
    ));
    assert_eq!(infra(&derived).spec.network_config.cidr, "10.1.2.0/24");
}

#[test]
fn other_clusters_node_pools_are_passed_over() {
    let mut world = World::usual();
    let mut other = pool("other", "{additionalNetworks: [{name: vms/vlan200}]}");
    other.spec.cluster_name = Some("somebody-else".into());
    world.pools.push(other);
    assert!(world.derive(&cluster(&CLI, "")).infra.is_some());
}

#[test]
fn only_true_opts_in() {
    let mut cluster = cluster(&CLI, "");
    assert!(is_opted_in(&cluster));
    let annotations = cluster.metadata.annotations.as_mut().unwrap();
    annotations.insert("hostedcluster.densityops.com/infra".into(), "yes".into());
    assert!(!is_opted_in(&cluster));
}

#[test]
fn a_cluster_that_says_nothing_is_derived_without_a_panic() {
    let derived = derive(&HostedCluster::default(), &Sources::default());
    assert!(derived.infra.is_none());
    assert!(reasons(&derived).contains(&"PlatformUnsupported"));
}
