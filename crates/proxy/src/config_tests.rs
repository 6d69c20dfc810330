use serde_json::{Value, json};

use super::*;

/// Backends as a manifest has them, over good defaults.
pub(crate) fn spec(backends: &[Value]) -> ProxyServerSpec {
    let backends: Vec<Value> = backends
        .iter()
        .map(|changes| {
            let mut backend = json!({"name": "api", "hostname": "api.example", "port": 443,
                "targetService": "kube-apiserver", "targetPort": 6443, "targetNamespace": "clusters-demo"});
            for (key, value) in changes.as_object().unwrap() {
                backend[key] = value.clone();
            }
            backend
        })
        .collect();
    serde_json::from_value(json!({"networkConfig": {"serverIP": "192.0.2.4/24"}, "backends": backends}))
        .unwrap()
}

fn fields(backends: &[Value]) -> Vec<String> {
    Config::read(&spec(backends))
        .1
        .into_iter()
        .map(|mistake| mistake.field)
        .collect()
}

#[test]
fn a_good_spec_is_read_with_its_defaults() {
    let (config, mistakes) = Config::read(&spec(&[
        json!({"alternateHostnames": ["kubernetes", "*.apps.example"]}),
    ]));
    assert_eq!(mistakes, []);
    assert_eq!(config.addresses, ["192.0.2.4".parse::<IpAddr>().unwrap()]);
    assert_eq!(config.idle_timeout, DEFAULT_IDLE_TIMEOUT);
    let backend = &config.backends[0];
    assert_eq!(backend.connect_budget, Duration::from_secs(30));
    assert_eq!(backend.service_port, PortRef::Number(6443));
    let names: Vec<String> = backend.patterns.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["api.example", "kubernetes", "*.apps.example"]);
}

#[test]
fn a_bad_backend_is_left_out_and_the_others_are_served() {
    let (config, mistakes) = Config::read(&spec(&[
        json!({"name": "literal", "hostname": "192.0.2.1"}),
        json!({"name": "good", "hostname": "good.example"}),
        json!({"name": "far", "hostname": "far.example", "port": 70_000, "targetPort": 0, "timeoutSeconds": 0}),
    ]));
    let served: Vec<&str> = config.backends.iter().map(|backend| &*backend.name).collect();
    assert_eq!(served, ["good"]);
    let fields: Vec<&str> = mistakes.iter().map(|mistake| mistake.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.backends[0].hostname",
            "spec.backends[2].port",
            "spec.backends[2].targetPort",
            "spec.backends[2].timeoutSeconds"
        ]
    );
    assert!(
        mistakes[0].to_string().contains("(backend literal)"),
        "{}",
        mistakes[0]
    );
}

#[test]
fn a_name_belongs_to_the_first_backend_of_a_port() {
    let (config, mistakes) = Config::read(&spec(&[
        json!({"name": "first", "hostname": "a.example"}),
        json!({"name": "second", "hostname": "A.example"}),
        json!({"name": "third", "hostname": "c.example", "alternateHostnames": ["a.example", "d.example"]}),
        json!({"name": "elsewhere", "hostname": "a.example", "port": 6443}),
    ]));
    let served: Vec<&str> = config.backends.iter().map(|backend| &*backend.name).collect();
    assert_eq!(served, ["first", "third", "elsewhere"]);
    assert_eq!(
        config.backends[1].patterns.len(),
        2,
        "an alternate that is taken costs only itself"
    );
    assert_eq!(mistakes[0].field, "spec.backends[1].hostname");
    assert!(
        mistakes[0].message.contains("belongs to backend first"),
        "{}",
        mistakes[0].message
    );
    assert_eq!(mistakes[1].field, "spec.backends[2].alternateHostnames[0]");
}

#[test]
fn plain_tcp_needs_a_port_of_its_own() {
    let star = |name: &str| json!({"name": name, "hostname": "*"});
    let named = |name: &str| json!({"name": name, "hostname": format!("{name}.example")});
    assert_eq!(fields(&[star("a"), named("b")]), ["spec.backends[1].hostname"]);
    assert_eq!(fields(&[named("a"), star("b")]), ["spec.backends[1].hostname"]);
    assert_eq!(fields(&[star("a"), star("b")]), ["spec.backends[1].hostname"]);
    assert_eq!(
        fields(&[json!({"name": "a", "alternateHostnames": ["*"]})]),
        ["spec.backends[0].alternateHostnames[0]"]
    );
    assert_eq!(
        fields(&[star("a"), json!({"name": "b", "hostname": "*", "port": 80})]),
        [""; 0]
    );
}

#[test]
fn udp_and_tcp_share_a_number_but_two_udp_backends_do_not() {
    let udp = |name: &str| json!({"name": name, "hostname": "x.example", "protocol": "UDP"});
    assert_eq!(fields(&[json!({}), udp("b")]), [""; 0]);
    assert_eq!(fields(&[udp("a"), udp("b")]), ["spec.backends[1].port"]);
    let told = json!({"name": "a", "protocol": "UDP", "proxyProtocol": "V2"});
    assert_eq!(fields(&[told]), ["spec.backends[0].proxyProtocol"]);
}

#[test]
fn mistakes_outside_the_backends_are_named_too() {
    let mut spec = spec(&[json!({})]);
    spec.network_config.server_ip = "nowhere".to_owned();
    spec.published_ips = vec!["198.51.100.7".to_owned(), "x".to_owned()];
    spec.idle_timeout = Some("1 day".to_owned());
    let (config, mistakes) = Config::read(&spec);
    let fields: Vec<&str> = mistakes.iter().map(|mistake| mistake.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.networkConfig.serverIP",
            "spec.publishedIPs[1]",
            "spec.idleTimeout"
        ]
    );
    assert_eq!(config.addresses.len(), 1);
}

#[test]
fn a_backend_whose_name_is_used_twice_is_left_out() {
    assert_eq!(
        fields(&[json!({}), json!({"hostname": "b.example"})]),
        ["spec.backends[1].name"]
    );
}
