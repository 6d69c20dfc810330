//! Names, backends and what the servers tell each other.

mod support;

use oooi_api::infra::HostedClusterRef;
use oooi_api::proxy_server::LogLevel;
use oooi_plan::infra::ControlPlane;
use oooi_plan::{Components, Known};
use support::{infra, planned, reasons};

fn names(plan: &Components) -> Vec<&str> {
    let dns = plan.dns.iter();
    dns.flat_map(|dns| &dns.static_entries)
        .map(|entry| entry.hostname.as_str())
        .collect()
}

#[test]
fn pods_names_reach_the_api_server_on_every_port_and_are_not_served_by_dns() {
    let plan = planned(
        &infra(
            "",
            "dns: {baseDomain: example.com, clusterName: other}, proxy: {controlPlaneNamespace: hcp, backends: [\
             {name: api, hostname: api.example.net, port: 6443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: hcp}, \
             {name: api-int, hostname: api-int.example.net, port: 6443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: hcp}, \
             {name: web, hostname: openshift, port: 443, targetService: web, targetPort: https, targetNamespace: hcp}, \
             {name: api-443, hostname: Api.example.net, port: 443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: hcp}, \
             {name: raw, hostname: '*', port: 9000, targetService: kube-apiserver, targetPort: 6443, targetNamespace: hcp}]}",
        ),
        &Known::default(),
    );
    let alternates = |at: usize| &plan.proxy.as_ref().unwrap().backends[at].alternate_hostnames;
    assert_eq!(alternates(0).len(), 9);
    assert_eq!(alternates(0)[8], "api.other.hypershift.local");
    assert!(alternates(1).is_empty(), "one backend of a port has them");
    assert!(
        !alternates(3).contains(&"openshift".to_owned()),
        "a name that is taken stays with its backend"
    );
    assert_eq!(alternates(3).len(), 8);
    assert!(alternates(4).is_empty());
    // `openshift` is what pods call the API server: no node resolves it, whoever has it.
    assert_eq!(names(&plan), ["api.example.net", "api-int.example.net"]);
}

#[test]
fn a_person_s_entry_goes_before_the_gateway_s() {
    let plan = planned(
        &infra(
            "",
            "dns: {baseDomain: example.com, staticEntries: [{hostname: API.my-cluster.example.com, ip: 10.0.0.77}]}, proxy: {}",
        ),
        &Known::default(),
    );
    let found: Vec<&str> = names(&plan)
        .into_iter()
        .filter(|name| name.eq_ignore_ascii_case("api.my-cluster.example.com"))
        .collect();
    assert_eq!(found, ["API.my-cluster.example.com"]);
}

#[test]
fn a_gateway_that_runs_elsewhere_is_what_names_lead_to() {
    let plan = planned(
        &infra(
            "",
            "dns: {baseDomain: example.com}, proxy: {enabled: false, serverIP: 172.16.0.9}",
        ),
        &Known::default(),
    );
    assert!(plan.proxy.is_none());
    let dns = plan.dns.unwrap();
    assert_eq!(dns.network_config.proxy_ip, "172.16.0.9");
    assert_eq!(dns.static_entries[0].ip, "172.16.0.9");
}

#[test]
fn without_a_dns_server_of_ours_nodes_get_the_site_s_resolvers() {
    let plan = planned(
        &infra(
            "dnsServers: [10.9.0.53, 'tls://10.9.0.54', '10.9.0.55:5353', 'dns://10.9.0.56']",
            "dhcp: {}",
        ),
        &Known::default(),
    );
    assert_eq!(
        plan.dhcp.unwrap().network_config.dns_servers,
        ["10.9.0.53", "10.9.0.56"]
    );
}

#[test]
fn applications_go_to_the_nodes_unless_a_person_says_otherwise() {
    let apps = "apps: {httpsPort: 30443, httpPort: 30080}";
    let own = "backends: [{name: x, hostname: '*.Apps.my-cluster.example.com', port: 443, targetService: x, \
               targetPort: 1, targetNamespace: n}, {name: y, hostname: '*', port: 80, targetService: x, targetPort: 1, \
               targetNamespace: n}]";
    let backends = |proxy: &str| {
        let plan = planned(
            &infra(
                "",
                &format!("dns: {{baseDomain: example.com}}, proxy: {{{proxy}}}"),
            ),
            &Known::default(),
        );
        let list = plan.proxy.unwrap().backends;
        list.into_iter().map(|backend| backend.name).collect::<Vec<_>>()
    };
    assert_eq!(backends(apps)[5..], ["apps-https", "apps-http"]);
    assert_eq!(backends(&format!("{apps}, {own}")), ["x", "y"]);
}

#[test]
fn an_infra_of_a_hosted_cluster_serves_what_that_publishes_and_nothing_before() {
    let mut infra = infra("", "dhcp: {}, dns: {}, proxy: {}");
    infra.spec.hosted_cluster_ref = Some(HostedClusterRef {
        name: "tenant".into(),
        namespace: Some("hosted".into()),
    });
    let published = planned(
        &support::infra("", "dns: {baseDomain: example.net}, proxy: {}"),
        &Known::default(),
    );
    let mut plane = ControlPlane {
        cluster: "tenant".into(),
        namespace: "hosted-tenant".into(),
        domain: Some("tenant.example.net".into()),
        ..ControlPlane::default()
    };
    let known = |plane: &ControlPlane| Known {
        control_plane: Some(plane.clone()),
        ..Known::default()
    };
    let before = planned(&infra, &known(&plane));
    assert!(before.proxy.is_none(), "there is nothing to forward yet");
    assert!(reasons(&before).contains(&"NothingPublished"));
    assert_eq!(
        before.dns.as_ref().unwrap().hosted_cluster_domain,
        "tenant.example.net"
    );

    plane.backends = published.proxy.unwrap().backends;
    plane.published_ips = vec!["203.0.113.5".parse().unwrap()];
    let after = planned(
        &infra,
        &Known {
            dhcp: before.dhcp.clone(),
            dns: before.dns.clone(),
            ..known(&plane)
        },
    );
    let proxy = after.proxy.as_ref().unwrap();
    assert_eq!(proxy.network_config.server_ip, "10.0.0.4/24");
    assert_eq!(proxy.published_ips, ["203.0.113.5"]);
    assert_eq!(before.addresses().dhcp, after.addresses().dhcp);
}

#[test]
fn a_takeover_s_grace_is_kept() {
    let infra = infra("", "dhcp: {}");
    let mut known = Known::after(&planned(&infra, &Known::default()));
    let grace = Some("2026-11-15T12:00:00Z".to_owned());
    known
        .dhcp
        .as_mut()
        .unwrap()
        .lease_config
        .migration_grace
        .clone_from(&grace);
    assert_eq!(
        planned(&infra, &known).dhcp.unwrap().lease_config.migration_grace,
        grace
    );
}

#[test]
fn what_runs_goes_on_running_while_nothing_is_heard_of_the_hosted_cluster() {
    let mut infra = infra("", "dhcp: {}, dns: {}, proxy: {apps: {httpsPort: 30443}}");
    infra.spec.hosted_cluster_ref = Some(HostedClusterRef {
        name: "tenant".into(),
        namespace: Some("hosted".into()),
    });
    let published = planned(
        &support::infra("", "dns: {baseDomain: example.net}, proxy: {}"),
        &Known::default(),
    );
    let heard = Known {
        control_plane: Some(ControlPlane {
            cluster: "tenant".into(),
            namespace: "hosted-tenant".into(),
            domain: Some("tenant.example.net".into()),
            apps_domain: Some("web.example.net".into()),
            backends: published.proxy.unwrap().backends,
            published_ips: vec!["203.0.113.5".parse().unwrap()],
        }),
        ..Known::default()
    };
    let running = planned(&infra, &heard);
    let after_a_restart = planned(&infra, &Known::after(&running));
    assert_eq!(after_a_restart, running);

    infra
        .spec
        .infra_components
        .as_mut()
        .unwrap()
        .proxy
        .as_mut()
        .unwrap()
        .apps = None;
    let without_apps = planned(&infra, &Known::after(&running)).proxy.unwrap();
    let names: Vec<&str> = without_apps
        .backends
        .iter()
        .map(|backend| &*backend.name)
        .collect();
    assert!(
        !names.contains(&"apps-https"),
        "what a person removed goes: {names:?}"
    );
}

#[test]
fn a_gateway_logs_as_much_as_the_infra_says() {
    for (said, level) in [("", LogLevel::Info), (", logLevel: debug", LogLevel::Debug)] {
        let proxy = format!("dns: {{baseDomain: example.com}}, proxy: {{controlPlaneNamespace: hcp{said}}}");
        let plan = planned(&infra("", &proxy), &Known::default());
        assert_eq!(plan.proxy.unwrap().log_level, level);
    }
}
