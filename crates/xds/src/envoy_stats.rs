//! Envoy's statistics under the names of the native engine, so that one dashboard serves both.
//!
//! Only series that mean the same are translated; the rest of Envoy's statistics are its own.

use std::collections::BTreeMap;
use std::fmt::Write;

const HISTOGRAM: &str = "histogram";

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

const TRANSLATIONS: [Translation; 13] = [
    series(
        "envoy_cluster_upstream_cx_active",
        "oooi_proxy_connections_active",
        "gauge",
    ),
    // To Envoy a connection that reached its backend is a request. What it counts as connections are attempts.
    series(
        "envoy_cluster_upstream_rq_total",
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
    reset("envoy_listener_downstream_global_cx_overflow", "connection_limit"),
    reset("envoy_cluster_upstream_cx_none_healthy", "no_endpoint"),
    reset(
        "envoy_cluster_upstream_cx_connect_attempts_exceeded",
        "connect_failed",
    ),
    reset("envoy_tcp_idle_timeout", "idle"),
    // In milliseconds there, in seconds here.
    series(
        "envoy_cluster_upstream_cx_connect_ms",
        "oooi_proxy_connect_seconds",
        HISTOGRAM,
    ),
];

/// The names of ours that Envoy has a series for.
pub fn names() -> impl Iterator<Item = &'static str> {
    TRANSLATIONS.iter().map(|translation| translation.ours)
}

/// Translates a page of Envoy's Prometheus statistics. Lines that are not understood are left out.
pub fn translate(page: &str) -> String {
    let mut sums: BTreeMap<Ours, f64> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels, value)) = parse(line) else {
            continue;
        };
        // The way to the control plane is no backend.
        if label_value(labels, "envoy_cluster_name") == Some("oooi_xds") {
            continue;
        }
        for (ours, value) in TRANSLATIONS
            .iter()
            .filter_map(|translation| translation.apply(name, labels, value))
        {
            *sums.entry(ours).or_default() += value;
        }
    }
    let mut out = String::new();
    let mut last = "";
    for (ours, value) in &sums {
        if ours.family != last {
            last = ours.family;
            let family = last.strip_suffix("_total").unwrap_or(last);
            let _ = writeln!(out, "# TYPE {family} {}", ours.kind);
        }
        let _ = writeln!(out, "{}{}{{{}}} {value}", ours.family, ours.suffix, ours.labels());
    }
    out
}

/// A series of ours, in the order in which it is shown.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ours {
    family: &'static str,
    kind: &'static str,
    fixed: String,
    /// The upper bound of a histogram's class, in microseconds.
    bound: Option<u64>,
    suffix: &'static str,
}

impl Ours {
    fn labels(&self) -> String {
        match self.bound {
            Some(u64::MAX) => format!("{},le=\"+Inf\"", self.fixed),
            Some(micros) => format!("{},le=\"{:?}\"", self.fixed, micros as f64 / 1e6),
            None => self.fixed.clone(),
        }
    }
}

impl Translation {
    /// What a line of Envoy's is among ours.
    fn apply(&self, name: &str, labels: &str, value: f64) -> Option<(Ours, f64)> {
        let mut ours = Ours {
            family: self.ours,
            kind: self.kind,
            fixed: self.labels(labels),
            bound: None,
            suffix: "",
        };
        let rest = name.strip_prefix(self.envoy)?;
        match (self.kind, rest) {
            (HISTOGRAM, "_bucket") => {
                let millis: f64 = label_value(labels, "le")?.parse().ok()?;
                // A float that is too large for it, such as the last bound, becomes the largest number.
                ours.bound = Some((millis * 1e3) as u64);
                ours.suffix = "_bucket";
                Some((ours, value))
            }
            (HISTOGRAM, "_sum") => {
                ours.suffix = "_sum";
                Some((ours, value / 1e3))
            }
            (HISTOGRAM, "_count") => {
                ours.suffix = "_count";
                Some((ours, value))
            }
            (kind, "") if kind != HISTOGRAM => Some((ours, value)),
            _ => None,
        }
    }

    fn labels(&self, envoy: &str) -> String {
        let backend = label_value(envoy, "envoy_cluster_name").unwrap_or_default();
        let backend = self.by_backend.then(|| format!("backend=\"{backend}\""));
        let more = self.more.map(|(label, value)| format!("{label}=\"{value}\""));
        backend.into_iter().chain(more).collect::<Vec<_>>().join(",")
    }
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
    fn milliseconds_of_connecting_become_seconds() {
        let series = "envoy_cluster_upstream_cx_connect_ms";
        let api = "envoy_cluster_name=\"api\"";
        let page = format!(
            "{series}_bucket{{{api},le=\"0.5\"}} 1\n{series}_bucket{{{api},le=\"1000\"}} 2\n\
             {series}_bucket{{{api},le=\"+Inf\"}} 3\n{series}_sum{{{api}}} 2500\n{series}_count{{{api}}} 3\n\
             {series}_else{{{api}}} 1\n{series}_bucket{{{api}}} 1\n"
        );
        assert_eq!(
            translate(&page),
            "# TYPE oooi_proxy_connect_seconds histogram\n\
             oooi_proxy_connect_seconds_count{backend=\"api\"} 3\n\
             oooi_proxy_connect_seconds_sum{backend=\"api\"} 2.5\n\
             oooi_proxy_connect_seconds_bucket{backend=\"api\",le=\"0.0005\"} 1\n\
             oooi_proxy_connect_seconds_bucket{backend=\"api\",le=\"1.0\"} 2\n\
             oooi_proxy_connect_seconds_bucket{backend=\"api\",le=\"+Inf\"} 3\n"
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
