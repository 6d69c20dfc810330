//! What holds for every HostedCluster, whatever it says.

#![allow(clippy::unwrap_used)] // helpers of tests

mod support;

use oooi_api::Infra;
use oooi_plan::Known;
use proptest::prelude::*;
use support::hosted_cluster::{CLI, World, cluster};

/// Texts that people and programs write into such fields, right, nearly right and not at all.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9./:-]{0,20}",
        "[a-z0-9.*-]{0,12}",
        any::<String>(),
        Just("10.1.0.0/24".to_owned()),
        Just("10.1.0.7".to_owned()),
        Just("host.example.com:31000".to_owned()),
        Just("https://[fd00::1]:443/x".to_owned()),
    ]
}

proptest! {
    #[test]
    fn whatever_a_hosted_cluster_says_its_backends_can_be_served(
        texts in prop::collection::vec(text(), 12),
        kinds in prop::collection::vec(prop_oneof!["Route", "NodePort", "LoadBalancer", "None", "Else"], 4),
        port in any::<i32>(),
    ) {
        let mut cluster = cluster(&CLI, "");
        let annotations = cluster.metadata.annotations.as_mut().unwrap();
        for (key, value) in ["cidr", "gateway", "network-attachment", "dhcp-range"].iter().zip(&texts) {
            if value.len() % 3 == 0 {
                annotations.insert(format!("hostedcluster.densityops.com/{key}"), value.clone());
            }
        }
        for (entry, (kind, host)) in cluster.spec.services.iter_mut().zip(kinds.iter().zip(&texts[4..])) {
            let strategy = serde_json::json!({"type": kind, "route": {"hostname": host},
                "loadBalancer": {"hostname": host}, "nodePort": {"address": host, "port": port}});
            entry.service_publishing_strategy = serde_json::from_value(strategy).unwrap();
        }
        cluster.status = serde_json::from_value(serde_json::json!({
            "controlPlaneEndpoint": {"host": texts[8], "port": port},
            "ignitionEndpoint": texts[9], "oauthCallbackURLTemplate": texts[10]})).unwrap();
        cluster.spec.kube_api_server_dns_name = Some(texts[11].clone());
        let derived = World::usual().derive(&cluster);
        prop_assert_eq!(derived.infra.is_none(), derived.gaps.iter().any(|gap| gap.blocks));
        let backends = &derived.control_plane.backends;
        for backend in backends {
            prop_assert!((1..=65535).contains(&backend.port), "{backend:?}");
        }
        if let Some(spec) = derived.infra {
            let infra = Infra::new("tenant", spec);
            if let Err(mistakes) = oooi_plan::plan(&infra, &Known::default()) {
                for mistake in mistakes {
                    let about_backends = mistake.path.starts_with("spec.infraComponents.proxy.backends");
                    prop_assert!(!about_backends, "what is derived of a control plane can be served: {mistake}");
                }
            }
        }
    }
}
