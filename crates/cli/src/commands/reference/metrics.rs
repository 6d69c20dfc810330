//! All metrics, as the registries of the servers and of the manager expose them.
//!
//! Where labels are only known at run time the crate makes an example with a series; all is read back here. A family without a
//! series is not exposed at all, so a test counts what is registered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use anyhow::Context;
use prometheus_client::registry::Registry;

use super::cell;
use crate::observe;

const HEAD: &str = "\
# Metrics

<!-- Written by `make reference`. -->

Servers expose `/metrics` on port 9090 of their pod, `oooi up` on 127.0.0.1:9090, the manager on port 8443 over TLS
(see [the operator](../operator.md#metrics)). A label is followed by its values where they are known beforehand.
";

/// A metric.
#[derive(Debug, Default, PartialEq)]
struct Metric {
    name: String,
    kind: String,
    help: String,
    /// The labels, and the values that they had.
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// Who exposes it, and what.
fn registries() -> anyhow::Result<Vec<(&'static str, Registry)>> {
    let dhcp = registry(oooi_dhcp::metrics::Metrics::register);
    let dns = resolver()?;
    let dns = registry(|registry| oooi_dns::server::Server::example_metrics(dns).register(registry));
    let proxy = registry(|registry| oooi_proxy::metrics::Metrics::example().register(registry));
    let xds = registry(|registry| oooi_xds::metrics::Metrics::default().register(registry));
    let every = registry(|registry| observe::Accepted::default().register(registry));
    let manager = registry(|registry| oooi_operator::metrics::Metrics::example().register(registry));
    Ok(vec![
        ("The DHCP server", dhcp),
        ("The DNS server", dns),
        ("The gateway", proxy),
        ("The control plane of an Envoy", xds),
        ("Every server", every),
        ("`oooi up`", oooi_standalone::up::Metrics::example()),
        ("The manager", manager),
    ])
}

fn registry<T>(register: impl FnOnce(&mut Registry) -> T) -> Registry {
    let mut registry = Registry::default();
    register(&mut registry);
    registry
}

/// The configuration of a DNS server that has an upstream.
fn resolver() -> anyhow::Result<Arc<oooi_dns::config::Config>> {
    let spec = serde_json::from_value(serde_json::json!({
        "networkConfig": {
            "serverIP": "192.0.2.3/24",
            "proxyIP": "192.0.2.4",
            "secondaryNetworkCIDR": "192.0.2.0/24",
            "networkAttachmentName": "vlan",
        },
        "hostedClusterDomain": "cluster.example.com",
        "upstreamDNS": ["192.0.2.53"],
    }))?;
    let config = oooi_dns::config::Config::from_spec(&spec);
    Ok(Arc::new(config.context("the example of a DNS server is wrong")?))
}

/// The page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut page = HEAD.to_owned();
    for (who, registry) in registries()? {
        let _ = write!(
            page,
            "\n## {who}\n\n| metric | type | labels | what |\n|---|---|---|---|\n"
        );
        for metric in read(&observe::encode(&registry)?) {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} |",
                metric.name,
                metric.kind,
                labels(&metric.labels),
                cell(&metric.help)
            );
        }
    }
    let same: BTreeSet<&str> = oooi_xds::envoy_stats::names().collect();
    let same: Vec<String> = same.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(
        page,
        "\nWith Envoy as the engine, its statistics are shown under the names of the gateway where they mean the same: \
         {}.\n",
        same.join(", ")
    );
    Ok(page)
}

fn labels(labels: &BTreeMap<String, BTreeSet<String>>) -> String {
    let one = |(label, values): (&String, &BTreeSet<String>)| match values.len() {
        0 | 1 => format!("`{label}`"),
        _ => {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            format!("`{label}` ({})", values.join(", "))
        }
    };
    labels.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Reads an exposition back. Each metric is described before its series.
fn read(exposition: &str) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    for line in exposition.lines() {
        if let Some((name, help)) = described(line, "# HELP ") {
            metrics.push(Metric {
                name: name.to_owned(),
                help: help.trim_end_matches('.').to_owned(),
                ..Metric::default()
            });
            continue;
        }
        let Some(metric) = metrics.last_mut() else {
            continue;
        };
        if let Some((_, kind)) = described(line, "# TYPE ") {
            kind.clone_into(&mut metric.kind);
            // A counter's series have a suffix that its description lacks, and people look for the series.
            if kind == "counter" {
                metric.name.push_str("_total");
            }
        } else if let Some((_, rest)) = line.split_once('{') {
            for (label, value) in pairs(rest) {
                // The classes of a histogram are no label of its family.
                if label != "le" {
                    metric
                        .labels
                        .entry(label.to_owned())
                        .or_default()
                        .insert(value.to_owned());
                }
            }
        }
    }
    metrics
}

fn described<'a>(line: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(prefix)?.split_once(' ')
}

/// The labels of a series; none of ours has a quotation mark in it.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let inside = text.split_once('}').map_or("", |(inside, _)| inside);
    inside.split("\",").filter_map(|pair| {
        let (label, value) = pair.split_once("=\"")?;
        Some((label, value.trim_end_matches('"')))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn an_exposition_is_read_back() {
        let text = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{x=\"1\",y=\"p\"} 0\na_b_total{x=\"2\",y=\"p\"} 0\n\
                    # HELP c Seconds.\n# TYPE c histogram\nc_bucket{le=\"0.1\",z=\"q\"} 0\n# EOF\n";
        let metrics = read(text);
        assert_eq!(metrics[0].name, "a_b_total");
        assert_eq!(metrics[0].help, "Things");
        assert_eq!(labels(&metrics[0].labels), "`x` (1, 2); `y`");
        assert_eq!(
            (metrics[1].name.as_str(), metrics[1].kind.as_str()),
            ("c", "histogram")
        );
        assert_eq!(labels(&metrics[1].labels), "`z`");
    }

    #[test]
    fn no_metric_that_is_registered_is_missing_for_want_of_a_series() {
        for (who, registry) in registries().unwrap() {
            // The only way to see a family that has no series.
            let registered = format!("{registry:?}").matches("Descriptor {").count();
            let shown = read(&observe::encode(&registry).unwrap());
            // What a collector brings is not registered one by one.
            assert!(
                shown.len() >= registered,
                "{who}: {registered} are registered, not only {shown:#?}"
            );
            for metric in shown {
                assert!(
                    !metric.kind.is_empty() && !metric.help.is_empty(),
                    "{who}: {metric:?}"
                );
            }
        }
    }

    #[test]
    fn what_envoy_counts_is_named_as_the_gateway_names_it() {
        let page = page().unwrap();
        for name in oooi_xds::envoy_stats::names() {
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
