//! One table of manifests that are accepted or refused, for the API server and for `oooi check` alike.
//!
//! A row is an example with some fields changed. That every rule of every definition refuses at least one row and
//! lets a neighbouring one pass is itself a test.

#![allow(dead_code, reason = "each test binary uses its part")]

use serde_json::{Value, json};

/// An example with changes, and what must become of it.
pub(crate) struct Case {
    /// The example's file name.
    pub(crate) example: &'static str,
    /// Field paths and their new values; null removes the field.
    pub(crate) changes: Vec<(&'static str, Value)>,
    /// Part of the message with which it is refused; none if it is accepted.
    pub(crate) refused: Option<&'static str>,
}

impl Case {
    /// The manifest as YAML (JSON is YAML).
    pub(crate) fn manifest(&self) -> Value {
        let path = format!(
            "{}/../../examples/{}.yaml",
            env!("CARGO_MANIFEST_DIR"),
            self.example
        );
        let source = oooi_manifest::Source::new(self.example, std::fs::read_to_string(path).unwrap());
        let mut value = oooi_manifest::read(&source).unwrap().remove(0).to_value();
        for (path, new) in &self.changes {
            set(&mut value, path, new.clone());
        }
        value
    }

    /// What to call the row in a failure.
    pub(crate) fn title(&self) -> String {
        let changes: Vec<String> = self
            .changes
            .iter()
            .map(|(path, value)| format!("{path}={value}"))
            .collect();
        format!(
            "{} with {}",
            self.example,
            if changes.is_empty() {
                "no change".into()
            } else {
                changes.join(", ")
            }
        )
    }
}

fn set(value: &mut Value, path: &str, new: Value) {
    let mut at = value;
    let steps: Vec<&str> = path.split('.').collect();
    let (last, before) = steps.split_last().unwrap();
    for step in before {
        at = match step.parse::<usize>() {
            Ok(i) => &mut at[i],
            Err(_) => &mut at[*step],
        };
    }
    match (last.parse::<usize>(), new) {
        (Ok(i), new) => at[i] = new,
        (Err(_), Value::Null) => {
            at.as_object_mut().unwrap().remove(*last);
        }
        (Err(_), new) => at[*last] = new,
    }
}

fn accepted(example: &'static str, changes: &[(&'static str, Value)]) -> Case {
    Case {
        example,
        changes: changes.to_vec(),
        refused: None,
    }
}

fn refused(example: &'static str, changes: &[(&'static str, Value)], message: &'static str) -> Case {
    Case {
        example,
        changes: changes.to_vec(),
        refused: Some(message),
    }
}

/// The table.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(infra());
    cases.extend(dhcp_server());
    cases.extend(dns_server());
    cases.extend(proxy_server());
    cases.extend(egress_ipam());
    cases
}

fn infra() -> Vec<Case> {
    const DHCP: &str = "spec.infraComponents.dhcp.serverIP";
    const DNS: &str = "spec.infraComponents.dns.serverIP";
    const PROXY: &str = "spec.infraComponents.proxy.serverIP";
    const START: &str = "spec.infraComponents.dhcp.rangeStart";
    const END: &str = "spec.infraComponents.dhcp.rangeEnd";
    const CIDR: &str = "spec.networkConfig.cidr";
    const GATEWAY: &str = "spec.networkConfig.gateway";
    vec![
        accepted("infra", &[]),
        accepted("infra-two-replicas", &[]),
        accepted("infra", &[("spec.infraComponents", Value::Null)]),
        // Networks.
        accepted("infra", &[(CIDR, json!("192.168.0.0/16"))]),
        accepted("infra", &[(CIDR, json!("192.0.0.0/8"))]),
        accepted(
            "infra",
            &[
                (CIDR, json!("192.168.100.0/30")),
                (
                    "spec.infraComponents",
                    json!({"dhcp": {"serverIP": "192.168.100.2"}}),
                ),
            ],
        ),
        refused(
            "infra",
            &[(CIDR, json!("192.168.100.0"))],
            "must be an IPv4 network",
        ),
        refused(
            "infra",
            &[(CIDR, json!("192.168.300.0/24"))],
            "must be an IPv4 network",
        ),
        refused("infra", &[(CIDR, json!("192.0.0.0/7"))], "from /8 to /30"),
        refused("infra", &[(CIDR, json!("192.168.100.0/31"))], "from /8 to /30"),
        refused(
            "infra",
            &[("spec.networkConfig.networkAttachmentDefinition", json!(""))],
            "",
        ),
        // The gateway.
        accepted("infra", &[(GATEWAY, json!("192.168.100.254"))]),
        refused(
            "infra",
            &[(GATEWAY, json!("192.168.100.256"))],
            "must be an IPv4 address such as",
        ),
        refused(
            "infra",
            &[(GATEWAY, json!("192.168.101.1"))],
            "the gateway must be an address of the network",
        ),
        refused(
            "infra",
            &[(GATEWAY, json!("192.168.100.0"))],
            "the gateway must be an address of the network",
        ),
        refused(
            "infra",
            &[(GATEWAY, json!("192.168.100.255"))],
            "the gateway must be an address of the network",
        ),
        // Servers.
        accepted(
            "infra",
            &[(DHCP, Value::Null), (DNS, Value::Null), (PROXY, Value::Null)],
        ),
        accepted("infra", &[(DHCP, json!("192.168.100.2/24"))]),
        refused(
            "infra",
            &[(DHCP, json!("192.168.100.999"))],
            "must be an IPv4 address such as",
        ),
        refused(
            "infra",
            &[(DHCP, json!("192.168.100.2/99"))],
            "must be an IPv4 address such as",
        ),
        refused(
            "infra",
            &[(DHCP, json!("192.168.101.2"))],
            "the address of the DHCP server must lie in the network",
        ),
        refused(
            "infra",
            &[(DHCP, json!("192.168.100.0"))],
            "the address of the DHCP server must lie in the network",
        ),
        refused(
            "infra",
            &[(DNS, json!("192.168.101.3"))],
            "the address of the DNS server must lie in the network",
        ),
        refused(
            "infra",
            &[(PROXY, json!("192.168.100.255"))],
            "the address of the proxy server must lie in the network",
        ),
        refused(
            "infra",
            &[(DHCP, json!("192.168.100.1"))],
            "the DHCP server cannot have the gateway's address",
        ),
        refused(
            "infra",
            &[(DNS, json!("192.168.100.1"))],
            "the DNS server cannot have the gateway's address",
        ),
        refused(
            "infra",
            &[(PROXY, json!("192.168.100.1"))],
            "the proxy server cannot have the gateway's address",
        ),
        accepted(
            "infra",
            &[(DHCP, json!("192.168.100.99")), (DNS, json!("192.168.100.201"))],
        ),
        refused(
            "infra",
            &[(DHCP, json!("192.168.100.100"))],
            "the DHCP server's address lies inside the DHCP range",
        ),
        refused(
            "infra",
            &[(DNS, json!("192.168.100.150"))],
            "the DNS server's address lies inside the DHCP range",
        ),
        refused(
            "infra",
            &[(PROXY, json!("192.168.100.200"))],
            "the proxy server's address lies inside the DHCP range",
        ),
        refused(
            "infra",
            &[(DNS, json!("192.168.100.2"))],
            "the DHCP and the DNS server need different addresses",
        ),
        refused(
            "infra",
            &[(PROXY, json!("192.168.100.2/24"))],
            "the DHCP and the proxy server need different addresses",
        ),
        refused(
            "infra",
            &[(PROXY, json!("192.168.100.3"))],
            "the DNS and the proxy server need different addresses",
        ),
        // The range.
        accepted("infra", &[(START, Value::Null), (END, Value::Null)]),
        accepted(
            "infra",
            &[(START, json!("192.168.100.5")), (END, json!("192.168.100.254"))],
        ),
        refused(
            "infra",
            &[(END, Value::Null)],
            "give both rangeStart and rangeEnd, or neither",
        ),
        refused(
            "infra",
            &[(END, json!("192.168.100.255"))],
            "rangeStart and rangeEnd must lie in the network",
        ),
        refused(
            "infra",
            &[(START, json!("192.168.99.100"))],
            "rangeStart and rangeEnd must lie in the network",
        ),
        refused(
            "infra",
            &[(START, json!("192.168.100.201"))],
            "rangeStart must not be above rangeEnd",
        ),
        accepted("infra", &[(START, json!("192.168.100.200"))]),
        // Durations, upstreams, replicas.
        accepted(
            "infra",
            &[("spec.infraComponents.dhcp.leaseTime", json!("1h30m"))],
        ),
        refused(
            "infra",
            &[("spec.infraComponents.dhcp.leaseTime", json!("5s"))],
            "between 10s and 8760h",
        ),
        refused(
            "infra",
            &[("spec.infraComponents.dhcp.leaseTime", json!("soon"))],
            "",
        ),
        accepted(
            "infra",
            &[("spec.infraComponents.proxy.idleTimeout", json!("24h"))],
        ),
        refused(
            "infra",
            &[("spec.infraComponents.proxy.idleTimeout", json!("99999h"))],
            "at most 8760h",
        ),
        accepted("infra", &[("spec.networkConfig.dnsServers", json!(["system"]))]),
        accepted(
            "infra",
            &[(
                "spec.networkConfig.dnsServers",
                json!(["10.0.0.53:5353", "tls://10.0.0.53:853#dns.example.com"]),
            )],
        ),
        refused(
            "infra",
            &[("spec.networkConfig.dnsServers", json!(["10.0.0.999"]))],
            "or 'system' for the resolvers",
        ),
        refused(
            "infra",
            &[("spec.networkConfig.dnsServers", json!(["resolver"]))],
            "",
        ),
        accepted(
            "infra",
            &[(
                "spec.infraComponents.proxy.publishedIPs",
                json!(["203.0.113.5", "203.0.113.6"]),
            )],
        ),
        refused(
            "infra",
            &[(
                "spec.infraComponents.proxy.publishedIPs",
                json!(["203.0.113.5", "203.0.113.6", "203.0.113.5"]),
            )],
            "an address is listed twice",
        ),
        accepted("infra", &[("spec.infraComponents.dhcp.replicas", json!(1))]),
        refused(
            "infra",
            &[("spec.infraComponents.dhcp.replicas", json!(2))],
            "several DHCP replicas share their leases",
        ),
        refused("infra", &[("spec.infraComponents.dhcp.replicas", json!(9))], ""),
        // Reservations, exclusions, routes.
        refused(
            "infra",
            &[(
                "spec.infraComponents.dhcp.reservations",
                json!([{"address": "192.168.100.50"}]),
            )],
            "either by mac or by clientId",
        ),
        refused(
            "infra",
            &[(
                "spec.infraComponents.dhcp.reservations",
                json!([{"address": "192.168.100.50", "mac": "02:00:00:00:00:01", "clientId": "ff00"}]),
            )],
            "either by mac or by clientId",
        ),
        accepted(
            "infra",
            &[(
                "spec.infraComponents.dhcp.reservations",
                json!([{"address": "192.168.100.50", "clientId": "ff:00"}]),
            )],
        ),
        refused(
            "infra",
            &[("spec.infraComponents.dhcp.exclusions", json!(["192.168.100.300"]))],
            "must be an address (192.168.100.20) or a range",
        ),
        refused(
            "infra",
            &[(
                "spec.networkConfig.routes",
                json!([{"destination": "10.0.0.0/40", "gateway": "192.168.100.1"}]),
            )],
            "must be an IPv4 network such as 10.20.0.0/16",
        ),
        refused(
            "infra",
            &[(
                "spec.networkConfig.routes",
                json!([{"destination": "fd00::/8", "gateway": "192.168.100.1"}]),
            )],
            "must be an IPv4 network such as 10.20.0.0/16",
        ),
    ]
}

fn dhcp_server() -> Vec<Case> {
    const SERVER: &str = "spec.networkConfig.serverIP";
    vec![
        accepted("dhcpserver", &[]),
        accepted("dhcpserver", &[(SERVER, json!("192.168.100.2/24"))]),
        refused(
            "dhcpserver",
            &[("spec.networkConfig.gateway", json!("10.0.0.1"))],
            "the gateway must be an address of the network",
        ),
        refused(
            "dhcpserver",
            &[(SERVER, json!("192.168.200.2"))],
            "the address of the DHCP server must lie in the network",
        ),
        refused(
            "dhcpserver",
            &[(SERVER, json!("192.168.100.1"))],
            "the DHCP server cannot have the gateway's address",
        ),
        refused(
            "dhcpserver",
            &[(SERVER, json!("192.168.100.100/24"))],
            "lies inside the DHCP range",
        ),
        refused(
            "dhcpserver",
            &[("spec.leaseConfig.rangeEnd", json!("192.168.101.1"))],
            "rangeStart and rangeEnd must lie in the network",
        ),
        refused(
            "dhcpserver",
            &[("spec.leaseConfig.rangeEnd", json!("192.168.100.99"))],
            "rangeStart must not be above rangeEnd",
        ),
        refused(
            "dhcpserver",
            &[("spec.replicas", json!(2))],
            "several replicas share their leases",
        ),
        accepted(
            "dhcpserver",
            &[
                ("spec.replicas", json!(2)),
                ("spec.leaseConfig.storage", json!("Kubernetes")),
            ],
        ),
        refused("dhcpserver", &[("spec.options.0.code", json!(255))], ""),
        refused(
            "dhcpserver",
            &[("spec.leaseConfig.unknownClients", json!("Drop"))],
            "",
        ),
    ]
}

fn dns_server() -> Vec<Case> {
    vec![
        accepted("dnsserver", &[]),
        accepted(
            "dnsserver",
            &[(
                "spec.networkConfig.internalProxyIP",
                json!("proxy.clusters.svc.cluster.local"),
            )],
        ),
        refused(
            "dnsserver",
            &[("spec.networkConfig.proxyIP", json!("192.168.100.400"))],
            "must be an IPv4 address such as",
        ),
        refused("dnsserver", &[("spec.networkConfig.dnsPort", json!(0))], ""),
        refused("dnsserver", &[("spec.hostedClusterDomain", json!(""))], ""),
        refused("dnsserver", &[("spec.staticEntries.0.ip", json!("api"))], ""),
    ]
}

fn proxy_server() -> Vec<Case> {
    vec![
        accepted("proxyserver", &[]),
        accepted("proxyserver", &[("spec.backends.0.targetPort", json!("client"))]),
        refused("proxyserver", &[("spec.backends.0.targetPort", json!(0))], ""),
        refused(
            "proxyserver",
            &[("spec.backends.0.targetPort", json!("No_Name"))],
            "",
        ),
        refused("proxyserver", &[("spec.backends.0.port", json!(70000))], ""),
        refused(
            "proxyserver",
            &[("spec.backends.1.name", json!("kube-apiserver"))],
            "every backend needs a name of its own",
        ),
        refused("proxyserver", &[("spec.backends", json!([]))], ""),
        accepted(
            "proxyserver",
            &[
                ("spec.backends.0.protocol", json!("HTTPS")),
                ("spec.backends.1.protocol", json!("UDP")),
            ],
        ),
        accepted(
            "proxyserver",
            &[
                ("spec.networkConfig.nadName", json!("vlan100")),
                ("spec.networkConfig.networkAttachmentName", Value::Null),
            ],
        ),
        refused("proxyserver", &[("spec.backends.0.protocol", json!("SCTP"))], ""),
        refused("proxyserver", &[("spec.logLevel", json!("loud"))], ""),
    ]
}

fn egress_ipam() -> Vec<Case> {
    vec![
        accepted("egressipam", &[]),
        // A reserved address outside its network is a warning of the controller, not a refusal.
        accepted(
            "egressipam",
            &[("spec.cidrAssignments.0.reservedIPs", json!(["192.159.0.5"]))],
        ),
        // Host bits are masked and warned of, not refused.
        accepted(
            "egressipam",
            &[("spec.cidrAssignments.0.CIDR", json!("10.0.128.7/20"))],
        ),
        refused(
            "egressipam",
            &[("spec.cidrAssignments.0.CIDR", json!("10.0.128.0/99"))],
            "must be an IPv4 network such as 10.0.128.0/20",
        ),
        refused(
            "egressipam",
            &[("spec.cidrAssignments.0.CIDR", json!("fd00::/64"))],
            "must be an IPv4 network such as 10.0.128.0/20",
        ),
        refused("egressipam", &[("spec.topologyLabel", Value::Null)], ""),
        refused("egressipam", &[("spec.allocationPolicy", json!("Any"))], ""),
    ]
}
