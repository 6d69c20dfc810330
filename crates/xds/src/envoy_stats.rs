//! Envoy's statistics under the names of the native engine, so that one dashboard serves both.
//!
//! Only series that mean the same are translated; the rest of Envoy's statistics are its own.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A series of Envoy, and ours.
struct Translation {
    envoy: &'static str,
    /// Whether ours says which backend.
    by_backend: bool,
    ours: &'static str,
    kind: &'static str,
    /// A further label of ours.
    more: Option<(&'static str, &'static str)>,
}

const fn series(envoy: &'static str, ours: &'static str, kind: &'static str) -> Translation {
    Translation {
        envoy,
        by_backend: true,
        ours,
        kind,
        more: None,
    }
}

const fn bytes(envoy: &'static str, direction: &'static str) -> Translation {
    Translation {
        more: Some(("direction", direction)),
        ..series(envoy, "oooi_proxy_bytes_total", "counter")
    }
}

const fn reset(envoy: &'static str, reason: &'static str) -> Translation {
    Translation {
        by_backend: false,
        more: Some(("reason", reason)),
        ..series(envoy, "oooi_proxy_resets_total", "counter")
    }
}

const TRANSLATIONS: [Translation; 9] = [
    series(
        "envoy_cluster_upstream_cx_active",
        "oooi_proxy_connections_active",
        "gauge",
    ),
    series(
        "envoy_cluster_upstream_cx_total",
        "oooi_proxy_connections_total",
        "counter",
    ),
    series(
        "envoy_cluster_upstream_cx_connect_fail",
        "oooi_proxy_connect_failures_total",
        "counter",
    ),
    series("envoy_cluster_membership_total", "oooi_proxy_endpoints", "gauge"),
    bytes("envoy_cluster_upstream_cx_tx_bytes_total", "to_backend"),
    bytes("envoy_cluster_upstream_cx_rx_bytes_total", "to_client"),
    reset("envoy_listener_no_filter_chain_match", "unknown_name"),
    reset("envoy_listener_downstream_pre_cx_timeout", "hello_timeout"),
    reset("envoy_cluster_upstream_cx_none_healthy", "no_endpoint"),
];

/// The names of ours that Envoy has a series for.
pub fn names() -> impl Iterator<Item = &'static str> {
    TRANSLATIONS.iter().map(|translation| translation.ours)
}

/// Translates a page of Envoy's Prometheus statistics. Lines that are not understood are left out.
pub fn translate(page: &str) -> String {
    let mut sums: BTreeMap<(&str, &str, String), f64> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value)) = parse(line) else {
            continue;
        };
        for translation in TRANSLATIONS
            .iter()
            .filter(|translation| translation.envoy == name)
        {
            let backend = label_value(labels, "envoy_cluster_name").unwrap_or_default();
            if backend == "oooi_xds" {
                continue; // the way to the control plane is no backend
            }
            let mut ours = Vec::new();
            if translation.by_backend {
                ours.push(format!("backend=\"{backend}\""));
            }
            if let Some((label, value)) = translation.more {
                ours.push(format!("{label}=\"{value}\""));
            }
            *sums
                .entry((translation.ours, translation.kind, ours.join(",")))
                .or_default() += value;
        }
    }
    let mut out = String::new();
    let mut last = "";
    for ((name, kind, labels), value) in &sums {
        if *name != last {
            let _ = writeln!(
                out,
                "# TYPE {} {kind}",
                name.strip_suffix("_total").unwrap_or(name)
            );
            last = name;
        }
        let _ = writeln!(out, "{name}{{{labels}}} {value}");
    }
    out
}

/// `name{labels} value`
fn parse(line: &str) -> Option<(&str, &str, f64)> {
    let (series, value) = line.rsplit_once(' ')?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    Some((
        name,
        labels.strip_suffix('}').unwrap_or(labels),
        value.parse().ok()?,
    ))
}

fn label_value<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    let rest = labels.split_once(&format!("{label}=\""))?.1;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_things_have_the_same_names() {
        let page = "# TYPE envoy_cluster_upstream_cx_active gauge\n\
            envoy_cluster_upstream_cx_active{envoy_cluster_name=\"api\"} 3\n\
            envoy_cluster_upstream_cx_active{envoy_cluster_name=\"oooi_xds\"} 1\n\
            envoy_cluster_upstream_cx_tx_bytes_total{envoy_cluster_name=\"api\"} 12\n\
            envoy_listener_no_filter_chain_match{envoy_listener_address=\"a\"} 2\n\
            envoy_listener_no_filter_chain_match{envoy_listener_address=\"b\"} 5\n\
            envoy_server_uptime{} 7\nnonsense\n";
        assert_eq!(
            translate(page),
            "# TYPE oooi_proxy_bytes counter\n\
             oooi_proxy_bytes_total{backend=\"api\",direction=\"to_backend\"} 12\n\
             # TYPE oooi_proxy_connections_active gauge\n\
             oooi_proxy_connections_active{backend=\"api\"} 3\n\
             # TYPE oooi_proxy_resets counter\n\
             oooi_proxy_resets_total{reason=\"unknown_name\"} 7\n"
        );
    }

    #[test]
    fn no_text_makes_it_panic() {
        for page in [
            "",
            "{",
            "} 1",
            "a{ 1",
            "a{b=\"} 1",
            "x NaN",
            "envoy_cluster_upstream_cx_active{} 1",
        ] {
            translate(page);
        }
    }
}
