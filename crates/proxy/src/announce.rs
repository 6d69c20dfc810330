//! Says what a new snapshot means to a person: which backends cannot work, and which can again. Both engines
//! report through here, so that they say the same.

use std::collections::{BTreeMap, BTreeSet};

use oooi_api::report::{Event, Report, ServerReport};

use crate::snapshot::Snapshot;

/// Reports what is new in `after`: one event for each new mistake or lack, and for each lack that is gone.
pub fn changes(before: &Snapshot, after: &Snapshot, report: &dyn Report) {
    for mistake in after
        .mistakes
        .iter()
        .filter(|mistake| !before.mistakes.contains(mistake))
    {
        report.event(Event::warning("InvalidBackend", mistake.to_string()));
    }
    for problem in after
        .problems
        .iter()
        .filter(|problem| !before.problems.contains(problem))
    {
        let reason = match problem.lack {
            crate::snapshot::Lack::ServiceMissing => "TargetServiceMissing",
            crate::snapshot::Lack::PortMissing => "TargetPortMissing",
            crate::snapshot::Lack::NoEndpoints => "NoEndpoints",
        };
        report.event(Event::warning(
            reason,
            format!("backend {}: {}", problem.backend, problem.message),
        ));
    }
    let lacks: BTreeSet<&str> = after.problems.iter().map(|problem| &*problem.backend).collect();
    for gone in &before.problems {
        // Endpoints alone say nothing: pods that are not ready are tried where no other is.
        let back = after
            .clusters
            .get(&gone.backend)
            .is_some_and(|cluster| !cluster.endpoints.is_empty() && !lacks.contains(&*gone.backend));
        if back {
            report.event(Event::normal(
                "EndpointsReady",
                format!("backend {} has endpoints again", gone.backend),
            ));
        }
    }
}

/// The state of a server that runs with this snapshot. `troubles` are the engine's own, such as a port that
/// cannot be bound.
pub fn state(snapshot: &Snapshot, addresses: Vec<String>, troubles: &[String]) -> ServerReport {
    let endpoints: usize = snapshot
        .clusters
        .values()
        .map(|cluster| cluster.endpoints.len())
        .sum();
    let unknown = snapshot.clusters.values().filter(|cluster| !cluster.known);
    let unknown: Vec<String> = unknown
        .map(|cluster| {
            format!(
                "backend {}: the API server has not told of its Service yet",
                cluster.name
            )
        })
        .collect();
    let without = snapshot.problems.len() + unknown.len();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let accepted = snapshot.mistakes.is_empty() && troubles.is_empty();
    let lacks = snapshot
        .problems
        .iter()
        .map(|problem| format!("backend {}: {}", problem.backend, problem.message));
    let said: Vec<String> = snapshot
        .mistakes
        .iter()
        .map(ToString::to_string)
        .chain(troubles.iter().cloned())
        .chain(lacks)
        .chain(unknown)
        .collect();
    ServerReport {
        accepted,
        message: (!said.is_empty()).then(|| said.join("; ")),
        addresses,
        counts: BTreeMap::from([
            ("backends".to_owned(), count(snapshot.clusters.len())),
            ("endpoints".to_owned(), count(endpoints)),
            ("backendsWithoutEndpoints".to_owned(), count(without)),
            ("engineRefusals".to_owned(), count(troubles.len())),
        ]),
        ..ServerReport::default()
    }
}

#[cfg(test)]
mod tests {
    use oooi_api::report::Recorded;
    use serde_json::json;

    use super::*;
    use crate::assemble::Assembler;
    use crate::config::tests::spec;

    #[test]
    fn each_trouble_is_said_once_and_its_end_too() {
        let mut assembler = Assembler::default();
        let empty = assembler.snapshot();
        assembler.set_spec(&spec(&[json!({}), json!({"name": "bad", "hostname": "a b"})]));
        let lacking = assembler.snapshot();
        let report = Recorded::default();
        changes(&empty, &lacking, &report);
        changes(&lacking, &lacking, &report);
        assembler.set_slice(&slice(true));
        let served = assembler.snapshot();
        changes(&lacking, &served, &report);
        let reasons: Vec<&str> = report.events().iter().map(|event| event.reason).collect();
        assert_eq!(
            reasons,
            ["InvalidBackend", "TargetServiceMissing", "EndpointsReady"]
        );
        let lacks = state(&lacking, Vec::new(), &[]).message.unwrap();
        assert!(lacks.contains("backend api: "), "{lacks}");
        let state = state(&served, vec!["192.0.2.4".into()], &[]);
        assert!(!state.accepted && state.message.unwrap().contains("spec.backends[1].hostname"));
        assert_eq!(state.counts["endpoints"], 1);
    }

    #[test]
    fn what_is_not_known_yet_is_no_event_but_no_readiness_either() {
        let mut assembler = Assembler::default();
        let empty = assembler.snapshot();
        assembler.set_spec(&spec(&[json!({})]));
        let key = assembler.wanted_services().next().unwrap().clone();
        assembler.await_service(&key);
        let unknown = assembler.snapshot();
        let report = Recorded::default();
        changes(&empty, &unknown, &report);
        assert!(report.events().is_empty());
        let state = state(&unknown, Vec::new(), &[]);
        assert!(state.accepted && state.message.unwrap().contains("backend api"));
        assert_eq!(state.counts["backendsWithoutEndpoints"], 1);
    }

    fn slice(ready: bool) -> k8s_openapi::api::discovery::v1::EndpointSlice {
        serde_json::from_value(json!({"metadata": {"namespace": "clusters-demo", "name": "s",
            "labels": {"kubernetes.io/service-name": "kube-apiserver"}}, "addressType": "IPv4",
            "ports": [{"port": 6443}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}]}))
        .unwrap()
    }

    #[test]
    fn a_backend_whose_pods_are_all_unready_lacks_endpoints_until_one_is_ready() {
        let mut assembler = Assembler::default();
        let empty = assembler.snapshot();
        assembler.set_spec(&spec(&[json!({})]));
        assembler.set_slice(&slice(false));
        let unready = assembler.snapshot();
        let (report, metrics) = (Recorded::default(), crate::metrics::Metrics::default());
        let mut shown = prometheus_client::registry::Registry::default();
        metrics.register(&mut shown);
        let lacks = |value| {
            let mut page = String::new();
            prometheus_client::encoding::text::encode(&mut page, &shown).unwrap();
            let line = format!("oooi_proxy_backends_without_ready_endpoints{{backend=\"api\"}} {value}\n");
            assert!(page.contains(&line), "{page}");
        };
        metrics.lacking.show(&empty, &unready);
        lacks(1);
        changes(&empty, &unready, &report);
        changes(&unready, &unready, &report);
        assert_eq!(
            state(&unready, Vec::new(), &[]).counts["backendsWithoutEndpoints"],
            1
        );
        assembler.set_slice(&slice(true));
        let ready = assembler.snapshot();
        metrics.lacking.show(&unready, &ready);
        lacks(0);
        changes(&unready, &ready, &report);
        assert_eq!(
            state(&ready, Vec::new(), &[]).counts["backendsWithoutEndpoints"],
            0
        );
        let reasons: Vec<&str> = report.events().iter().map(|event| event.reason).collect();
        assert_eq!(reasons, ["NoEndpoints", "EndpointsReady"]);
    }
}
