use super::*;
use oooi_api::dns_server::ForwardZone;

fn spec() -> DnsServerSpec {
    DnsServerSpec {
        hosted_cluster_domain: "hub.example.com".into(),
        network_config: DnsNetworkConfig {
            server_ip: "10.0.0.3".into(),
            proxy_ip: "10.0.0.4".into(),
            dns_port: 53,
            ..Default::default()
        },
        cache_ttl: "30s".into(),
        ..Default::default()
    }
}

fn entry(hostname: &str, ip: &str) -> DnsStaticEntry {
    DnsStaticEntry {
        hostname: hostname.into(),
        ip: ip.into(),
        additional_ips: vec![],
    }
}

#[test]
fn the_network_is_that_of_the_server_with_24_bits_where_none_are_written() {
    assert_eq!(
        Config::from_spec(&spec()).unwrap().network.to_string(),
        "10.0.0.0/24"
    );
    let mut wide = spec();
    wide.network_config.server_ip = "10.0.5.3/20".into();
    assert_eq!(
        Config::from_spec(&wide).unwrap().network.to_string(),
        "10.0.0.0/20"
    );
    wide.network_config.secondary_network_cidr = Some("10.0.0.0/16".into());
    assert_eq!(
        Config::from_spec(&wide).unwrap().network.to_string(),
        "10.0.0.0/16"
    );
}

#[test]
fn every_mistake_is_named_with_its_path() {
    let mut bad = spec();
    bad.hosted_cluster_domain = "hub..com".into();
    bad.network_config.server_ip = "10.0.0".into();
    bad.network_config.proxy_ip = "gateway".into();
    bad.network_config.internal_proxy_ip = Some("10.0.0.256".into());
    bad.network_config.dns_port = 0;
    bad.static_entries = vec![
        entry("api.hub.example.com", "10.0.0.4"),
        entry("bad name", "300.1.1.1"),
    ];
    bad.upstream_dns = vec!["10.0.0.53".into(), "dns.google".into()];
    bad.forward_zones = vec![ForwardZone {
        zone: "corp".into(),
        upstreams: vec![],
        policy: None,
    }];
    bad.cache_ttl = "soon".into();
    let mistakes = Config::from_spec(&bad).unwrap_err();
    let paths: Vec<&str> = mistakes.0.iter().map(|mistake| mistake.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "spec.hostedClusterDomain",
            "spec.networkConfig.serverIP",
            "spec.networkConfig.proxyIP",
            "spec.networkConfig.internalProxyIP",
            "spec.networkConfig.dnsPort",
            "spec.staticEntries[1].hostname",
            "spec.staticEntries[1].ip",
            "spec.upstreamDNS[1]",
            "spec.forwardZones[0].upstreams",
            "spec.cacheTTL",
        ]
    );
    assert!(
        mistakes.to_string().contains("has the character ' '"),
        "{mistakes}"
    );
}

#[test]
fn no_upstream_means_that_nothing_is_forwarded() {
    assert!(Config::from_spec(&spec()).unwrap().forwards.is_empty());
}

#[test]
fn upstreams_are_read_in_each_form() {
    let plain = |text: &str| Upstream::Plain(text.parse().unwrap());
    assert_eq!(Upstream::parse("10.0.0.53"), Some(plain("10.0.0.53:53")));
    assert_eq!(
        Upstream::parse("dns://10.0.0.53:5353"),
        Some(plain("10.0.0.53:5353"))
    );
    assert_eq!(Upstream::parse("[fd00::1]:53"), Some(plain("[fd00::1]:53")));
    assert_eq!(Upstream::parse("system"), Some(Upstream::System));
    let address = "10.0.0.53:853".parse().unwrap();
    let tls = |name: Option<&str>| Upstream::Tls {
        address,
        name: name.map(Into::into),
    };
    assert_eq!(Upstream::parse("tls://10.0.0.53"), Some(tls(None)));
    assert_eq!(
        Upstream::parse("tls://10.0.0.53:853#dns.corp"),
        Some(tls(Some("dns.corp")))
    );
    for bad in [
        "",
        "10.0.0",
        "10.0.0.53:0",
        "10.0.0.53#name",
        "0.0.0.0",
        "https://1.1.1.1",
        "tls://10.0.0.53#",
    ] {
        assert_eq!(Upstream::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn entries_of_one_name_are_one_entry_with_all_addresses() {
    let mut repeated = spec();
    repeated.static_entries = vec![
        entry("API.hub.example.com", "10.0.0.4"),
        entry("api.hub.example.com.", "10.0.0.5"),
        entry("api.hub.example.com", "10.0.0.4"),
    ];
    let config = Config::from_spec(&repeated).unwrap();
    assert_eq!(config.entries.len(), 1);
    assert_eq!(
        config.entries[0].addresses,
        [Ipv4Addr::new(10, 0, 0, 4), Ipv4Addr::new(10, 0, 0, 5)]
    );
}

#[test]
fn an_internal_proxy_is_an_address_or_a_service() {
    let mut with = spec();
    with.network_config.internal_proxy_ip = Some("172.30.0.9".into());
    let address = Internal::Address("172.30.0.9".parse().unwrap());
    assert_eq!(Config::from_spec(&with).unwrap().internal, Some(address));
    with.network_config.internal_proxy_ip = Some("hub-proxy.clusters.svc".into());
    let service = Internal::Service("hub-proxy.clusters.svc".into());
    assert_eq!(Config::from_spec(&with).unwrap().internal, Some(service));
    with.network_config.internal_proxy_ip = Some(String::new());
    assert_eq!(Config::from_spec(&with).unwrap().internal, None);
}
