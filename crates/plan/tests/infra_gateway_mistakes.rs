//! Every mistake about the gateway and its backends is found, at its field, with its remedy.

mod support;

use oooi_plan::Known;
use support::{infra, only, planned};

/// A backend, with these fields instead of the usual ones.
fn backend(name: &str, fields: &str) -> String {
    let usual = [
        ("hostname", format!("{name}.example.com")),
        ("port", "443".to_owned()),
        ("targetService", "svc".to_owned()),
        ("targetPort", "443".to_owned()),
        ("targetNamespace", "ns".to_owned()),
    ];
    let rest: String = usual
        .iter()
        .filter(|(key, _)| {
            !fields
                .split(", ")
                .any(|field| field.starts_with(&format!("{key}:")))
        })
        .map(|(key, value)| format!(", {key}: {value}"))
        .collect();
    let fields = if fields.is_empty() {
        String::new()
    } else {
        format!(", {fields}")
    };
    format!("{{name: {name}{fields}{rest}}}")
}

#[test]
fn what_a_gateway_cannot_do_is_refused() {
    let at = |field: &str| format!("spec.infraComponents.proxy.{field}");
    let list = |second: &str| format!("backends: [{}, {}]", backend("a", ""), second);
    for (fields, path, says) in [
        (
            list(&backend("a", "hostname: b.example.com")),
            at("backends[1].name"),
            "backends[0] already",
        ),
        (
            list(&backend("A", "hostname: b.example.com")),
            at("backends[1].name"),
            "lower-case",
        ),
        (
            list(&backend("b", "hostname: A.example.com")),
            at("backends[1].hostname"),
            "belongs to backends[0]",
        ),
        (
            list(&backend("b", "alternateHostnames: [a.example.com]")),
            at("backends[1].alternateHostnames[0]"),
            "belongs to backends[0]",
        ),
        (
            list(&backend("b", "hostname: 10.0.0.1")),
            at("backends[1].hostname"),
            "send no server name",
        ),
        (
            list(&backend("b", "hostname: b.example.com.")),
            at("backends[1].hostname"),
            "ends in a dot",
        ),
        (
            list(&backend("b", "hostname: 'a*.example.com'")),
            at("backends[1].hostname"),
            "whole first part",
        ),
        (
            list(&backend("b", "hostname: '*'")),
            at("backends[1].port"),
            "use another port",
        ),
        (
            list(&backend(
                "b",
                "hostname: '*', port: 80, alternateHostnames: [x.example.com]",
            )),
            at("backends[1].alternateHostnames"),
            "remove the other names",
        ),
        (
            list(&backend("b", "port: 0")),
            at("backends[1].port"),
            "1 to 65535",
        ),
        (
            list(&backend("b", "targetPort: 70000")),
            at("backends[1].targetPort"),
            "neither a port",
        ),
        (
            list(&backend("b", "targetPort: ''")),
            at("backends[1].targetPort"),
            "neither a port",
        ),
        (
            list(&backend("b", "targetService: ''")),
            at("backends[1].targetService"),
            "name the Service",
        ),
        (
            list(&backend("b", "timeoutSeconds: 0")),
            at("backends[1].timeoutSeconds"),
            "1 to 3600",
        ),
        (
            list(&backend("b", "protocol: UDP, proxyProtocol: V2")),
            at("backends[1].proxyProtocol"),
            "TCP only",
        ),
        ("idleTimeout: 10ms".to_owned(), at("idleTimeout"), "at least 1s"),
        (
            "apps: {httpsPort: 0}".to_owned(),
            at("apps.httpsPort"),
            "1 to 65535",
        ),
        (
            "publishedIPs: [127.0.0.1]".to_owned(),
            at("publishedIPs[0]"),
            "nodes can dial",
        ),
        (
            "publishedIPs: [x]".to_owned(),
            at("publishedIPs[0]"),
            "not an IPv4 address",
        ),
        (
            "publishedIPs: [10.0.0.1]".to_owned(),
            at("publishedIPs[0]"),
            "VLAN's gateway's",
        ),
    ] {
        let (found, message) = only(
            "",
            &format!("dhcp: {{}}, dns: {{baseDomain: example.com}}, proxy: {{{fields}}}"),
        );
        assert_eq!(found, path, "{fields}: {message}");
        assert!(message.contains(says), "{fields}: {message}");
    }
    let (path, message) = only("", "proxy: {}");
    assert_eq!(path, at("backends"));
    assert!(message.contains("write backends"), "{message}");
}

#[test]
fn udp_shares_a_port_number_with_tcp_but_not_with_udp() {
    let dns = |name: &str| backend(name, "port: 443, protocol: UDP");
    let with = |second: &str| {
        format!(
            "dns: {{baseDomain: example.com}}, proxy: {{backends: [{}, {second}]}}",
            backend("a", "")
        )
    };
    planned(&infra("", &with(&dns("u"))), &Known::default());
    let (path, _) = only("", &with(&format!("{}, {}", dns("u"), dns("v"))));
    assert_eq!(path, "spec.infraComponents.proxy.backends[2].port");
}
