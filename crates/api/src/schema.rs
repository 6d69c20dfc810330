//! Schema fragments that several kinds share, and the CEL rules that hold their fields together.
//!
//! A fragment is a function for `#[schemars(schema_with = …)]`; a list of rules is a function for
//! `#[schemars(extend("x-kubernetes-validations" = …))]`. The API server evaluates the rules at admission and
//! `oooi check` evaluates the very same ones from a file, so each rule is written once, here, and its message
//! says how to mend the manifest. Every string that a rule reads has a `maxLength`: without one the API server
//! cannot bound the cost of the rule and refuses the definition.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// One rule: what must hold, and what to do if it does not.
pub(crate) fn rule(rule: impl AsRef<str>, message: &str) -> Value {
    json!({ "rule": rule.as_ref(), "message": message })
}

/// A rule of an object that is about one of its fields, given as the CEL expression `self.a.b`: whoever breaks it is
/// pointed at that field.
fn rule_about(field: &str, text: impl AsRef<str>, message: &str) -> Value {
    let mut rule = rule(text, message);
    rule["fieldPath"] = field.trim_start_matches("self").into();
    rule
}

const IPV4_PATTERN: &str = r"^(?:[0-9]{1,3}\.){3}[0-9]{1,3}$";
const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$";

/// An IPv4 address.
pub(crate) fn ipv4(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 15,
        "pattern": IPV4_PATTERN,
        "x-kubernetes-validations": [rule("isIP(self)", "must be an IPv4 address such as 192.168.100.2")],
    })
}

/// An IPv4 address, with or without a prefix length.
pub(crate) fn ipv4_maybe_prefixed(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 18,
        "pattern": r"^(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?:/[0-9]{1,2})?$",
        "x-kubernetes-validations": [rule(
            "isIP(self) || isCIDR(self)",
            "must be an IPv4 address such as 192.168.100.2, with or without a prefix length (192.168.100.2/24)",
        )],
    })
}

/// A list of IPv4 addresses, each at most once. The list is one value: in a set, which everybody may add to, what
/// somebody else added could never be put back.
pub(crate) fn ipv4_set(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "atomic",
        "x-kubernetes-validations": [rule(
            "self.all(x, self.exists_one(y, y == x))",
            "an address is listed twice: remove one of the two",
        )],
        "items": {
            "type": "string",
            "maxLength": 15,
            "pattern": IPV4_PATTERN,
            "x-kubernetes-validations": [rule("isIP(self)", "must be an IPv4 address such as 192.168.100.2")],
        },
    })
}

/// An IPv4 network whose prefix a DHCP server can manage.
pub(crate) fn ipv4_network(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 18,
        "pattern": r"^(?:[0-9]{1,3}\.){3}[0-9]{1,3}/[0-9]{1,2}$",
        "x-kubernetes-validations": [
            rule("isCIDR(self)", "must be an IPv4 network such as 192.168.100.0/24"),
            rule(
                "!isCIDR(self) || (cidr(self).prefixLength() >= 8 && cidr(self).prefixLength() <= 30)",
                "the prefix length must be from /8 to /30: choose a larger or a smaller network",
            ),
        ],
    })
}

/// Resolvers to forward to.
pub(crate) fn upstreams(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 15,
        "items": {
            "type": "string",
            "maxLength": 300,
            "pattern": r"^(system|((dns|tls)://)?(?:[0-9]{1,3}\.){3}[0-9]{1,3}(:[0-9]{1,5})?(#[A-Za-z0-9.-]+)?)$",
            "x-kubernetes-validations": [rule(
                "self == 'system' || isIP(self.replace('dns://', '').replace('tls://', '').split('#')[0].split(':')[0])",
                "must be an IPv4 address with an optional port (10.0.0.53 or 10.0.0.53:5353), \
                 tls://ADDRESS[:PORT][#NAME] for DNS over TLS, or 'system' for the resolvers of the pod",
            )],
        },
    })
}

/// A duration of at least `minimum`.
fn duration_of(minimum: &str, message: &str) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "pattern": DURATION_PATTERN,
        "x-kubernetes-validations": [rule(
            format!("duration(self) >= duration('{minimum}') && duration(self) <= duration('8760h')"),
            message,
        )],
    })
}

/// How long a client may keep an address.
pub(crate) fn lease_time(_: &mut SchemaGenerator) -> Schema {
    duration_of(
        "10s",
        "must be a duration between 10s and 8760h, such as 1h or 24h",
    )
}

/// A duration that may be short.
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    duration_of(
        "0s",
        "must be a duration of at most 8760h, such as 30s, 5m or 24h",
    )
}

/// A TCP or UDP port.
pub(crate) fn port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": 1, "maximum": 65535 })
}

/// A port of a Service, by number or by name. The bounds are about numbers, the pattern is about texts.
pub(crate) fn service_port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 1,
        "maximum": 65535,
        "maxLength": 15,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    })
}

/// A DNS name, with or without a leading wildcard label.
pub(crate) fn hostname(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253 })
}

/// A list of DNS names.
pub(crate) fn hostnames(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "items": { "type": "string", "minLength": 1, "maxLength": 253 },
    })
}

/// A hardware address.
pub(crate) fn mac(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 17,
        "pattern": "^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$",
    })
}

/// Conditions, one a type, in the shape that Kubernetes uses everywhere.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut list =
        generator.subschema_for::<Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>>();
    list.insert("x-kubernetes-list-type".into(), json!("map"));
    list.insert("x-kubernetes-list-map-keys".into(), json!(["type"]));
    list
}

/// The rules that hold a network, its gateway, the servers on it and a DHCP range together.
///
/// Paths are CEL expressions relative to the object that carries the rules. A server without an address is
/// left out by its guard: an address that nobody set is chosen later.
pub(crate) struct Layout<'a> {
    /// The network.
    pub(crate) cidr: &'a str,
    /// The default gateway.
    pub(crate) gateway: &'a str,
    /// Servers: what to call it, its address, and the guard under which the address exists.
    pub(crate) servers: &'a [(&'a str, &'a str, &'a str)],
    /// First and last address of the range, and the guard under which both exist.
    pub(crate) range: (&'a str, &'a str, &'a str),
}

impl Layout<'_> {
    /// All rules of this layout.
    pub(crate) fn rules(&self) -> Vec<Value> {
        let Layout {
            cidr,
            gateway,
            servers,
            range: (start, end, ranged),
        } = self;
        let mut rules = vec![rule_about(
            gateway,
            format!(
                "!isCIDR({cidr}) || !isIP({gateway}) || ({})",
                usable(cidr, gateway)
            ),
            "the gateway must be an address of the network, and neither its first (network) nor its last \
             (broadcast) address",
        )];
        for (name, address, guard) in *servers {
            let bare = format!("{address}.split('/')[0]");
            rules.push(rule_about(
                address,
                format!("!isCIDR({cidr}) || !({guard}) || !isIP({bare}) || ({})", usable(cidr, &bare)),
                &format!(
                    "the address of the {name} server must lie in the network, and be neither its first (network) \
                     nor its last (broadcast) address"
                ),
            ));
            rules.push(rule_about(
                address,
                format!("!({guard}) || {bare} != {gateway}"),
                &format!("the {name} server cannot have the gateway's address: choose another serverIP"),
            ));
            rules.push(rule_about(
                address,
                format!(
                    "!({guard}) || !({ranged}) || !isIP({bare}) || !isIP({start}) || !isIP({end}) || \
                     {n} < {s} || {n} > {e}",
                    n = number(&bare),
                    s = number(start),
                    e = number(end),
                ),
                &format!(
                    "the {name} server's address lies inside the DHCP range: move the range or the server"
                ),
            ));
        }
        for (i, (a_name, a, a_guard)) in servers.iter().enumerate() {
            for (b_name, b, b_guard) in servers.iter().skip(i + 1) {
                rules.push(rule_about(
                    b,
                    format!("!({a_guard}) || !({b_guard}) || {a}.split('/')[0] != {b}.split('/')[0]"),
                    &format!("the {a_name} and the {b_name} server need different addresses"),
                ));
            }
        }
        rules.push(rule_about(
            start,
            format!(
                "!({ranged}) || !isCIDR({cidr}) || !isIP({start}) || !isIP({end}) || ({} && {})",
                usable(cidr, start),
                usable(cidr, end),
            ),
            "rangeStart and rangeEnd must lie in the network, without its first (network) and last (broadcast) \
             address",
        ));
        rules.push(rule_about(
            end,
            format!(
                "!({ranged}) || !isIP({start}) || !isIP({end}) || {} <= {}",
                number(start),
                number(end)
            ),
            "rangeStart must not be above rangeEnd: swap them",
        ));
        rules
    }
}

/// The value of a dotted address, so that addresses can be compared.
fn number(address: &str) -> String {
    format!(
        "[{address}.split('.').map(p, int(p))].map(o, o[0] * 16777216 + o[1] * 65536 + o[2] * 256 + o[3])[0]"
    )
}

/// `address` is a host address of `cidr`: inside, and neither the network nor the broadcast address.
///
/// Addresses are compared as numbers: the API server cannot bound the cost of comparing two `ip` values. CEL has no
/// shift either, so the size of the network comes from a table by its prefix length.
fn usable(cidr: &str, address: &str) -> String {
    let sizes: Vec<String> = (0..=32)
        .map(|prefix| (1u64 << (32 - prefix)).to_string())
        .collect();
    let size = format!("[{}][cidr({cidr}).prefixLength()]", sizes.join(", "));
    let n = number(address);
    format!("cidr({cidr}).containsIP({address}) && {n} % {size} != 0 && ({n} + 1) % {size} != 0")
}
