//! A server's resource on a real API server: followed live, and told how the server is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use oooi_api::DhcpServer;
use oooi_api::report::{Event, Report, ServerReport};
use oooi_feed::cluster::Own;
use oooi_feed::status::ClusterReport;
use oooi_feed::{Inputs, live};
use oooi_manifest::{Document, Mistake};
use serde_json::json;
use support::{Bed, LONG, timed};

const SERVER: &str = "
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: DHCPServer
metadata: {name: tenant-dhcp}
spec:
  networkConfig: {cidr: 192.168.100.0/24, gateway: 192.168.100.1, serverIP: 192.168.100.2}
  leaseConfig: {rangeStart: 192.168.100.10, rangeEnd: 192.168.100.200, leaseTime: 1h}
";

/// The lease time; three hours are a mistake.
fn lease_time(documents: &[Document]) -> Result<String, Vec<Mistake>> {
    let document = oooi_manifest::only(documents, "DHCPServer")?;
    let server: DhcpServer = document.decode().map_err(|mistake| vec![mistake])?;
    match server.spec.lease_config.lease_time {
        time if time == "3h" => Err(vec![
            document.mistake("spec.leaseConfig.leaseTime", "must not be 3h"),
        ]),
        time => Ok(time),
    }
}

async fn set_lease_time(bed: &Bed, time: &str) {
    let api: Api<DhcpServer> = Api::namespaced(bed.client.clone(), bed.namespace.name());
    let patch = json!({"spec": {"leaseConfig": {"leaseTime": time}}});
    api.patch("tenant-dhcp", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

async fn entries(bed: &Bed) -> Vec<ServerReport> {
    let api: Api<DhcpServer> = Api::namespaced(bed.client.clone(), bed.namespace.name());
    let server = api.get("tenant-dhcp").await.unwrap();
    server.status.map(|status| status.servers).unwrap_or_default()
}

async fn entry_where(bed: &Bed, what: &str, holds: impl Fn(&ServerReport) -> bool) -> ServerReport {
    oooi_testkit::until(what, LONG, async || {
        let entries = entries(bed).await;
        entries
            .iter()
            .find(|entry| holds(entry))
            .cloned()
            .ok_or(format!("{entries:?}"))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_change_is_there_within_a_second_and_a_bad_one_is_refused_with_its_reason() {
    let bed = Bed::new("live").await;
    bed.namespace.apply(SERVER).await.unwrap();
    let own = Own::new::<DhcpServer>(bed.dhcp.clone(), bed.namespace.name(), "tenant-dhcp");
    let report = ClusterReport::start(own.clone(), "pod-a");
    let verdicts = report.clone();
    let mut config = live::follow(None, own, lease_time, move |verdict| verdicts.verdict(verdict))
        .await
        .unwrap();
    assert_eq!(**config.borrow_and_update(), "1h");

    set_lease_time(&bed, "2h").await;
    let (_, took) = timed("the change", config.wait_for(|time| **time == "2h")).await;
    assert!(took < Duration::from_secs(1), "{took:?}");

    set_lease_time(&bed, "3h").await;
    let entry = entry_where(&bed, "the refusal", |entry| !entry.accepted).await;
    assert_eq!((entry.pod.as_str(), entry.generation), ("pod-a", Some(3)));
    assert_eq!(
        entry.message.as_deref(),
        Some("spec.leaseConfig.leaseTime: must not be 3h")
    );
    assert_eq!(**config.borrow(), "2h", "the last good one stays");

    set_lease_time(&bed, "4h").await;
    config.wait_for(|time| **time == "4h").await.unwrap();
    entry_where(&bed, "the cure", |entry| {
        entry.accepted && entry.generation == Some(4)
    })
    .await;
}

#[tokio::test]
async fn a_server_starts_from_its_file_while_the_api_server_is_away_and_hears_of_changes_after() {
    let bed = Bed::new("away").await;
    bed.namespace.apply(SERVER).await.unwrap();
    let api: Api<DhcpServer> = Api::namespaced(bed.client.clone(), bed.namespace.name());
    let stored = api.get("tenant-dhcp").await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("server.yaml");
    let mut mounted = serde_json::to_value(&stored).unwrap();
    mounted["metadata"]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| ["name", "namespace", "uid", "generation"].contains(&key.as_str()));
    std::fs::write(&file, mounted.to_string()).unwrap();

    let (client, mut relay) = bed.cuttable().await;
    relay.cut().await;
    let own = Own::new::<DhcpServer>(client, bed.namespace.name(), "tenant-dhcp");
    let inputs = Inputs::new(vec![file.clone()]);
    let mut config = live::follow(Some(inputs), own, lease_time, |_| {}).await.unwrap();
    assert_eq!(**config.borrow_and_update(), "1h");

    set_lease_time(&bed, "2h").await;
    relay.mend().await;
    let (_, took) = timed("the change", config.wait_for(|time| **time == "2h")).await;
    println!("heard {took:?} after the API server came back");

    // The kubelet brings the old generation once more: it changes nothing.
    mounted["spec"]["leaseConfig"]["leaseTime"] = "5h".into();
    let new = directory.path().join("new");
    std::fs::write(&new, mounted.to_string()).unwrap();
    std::fs::rename(new, &file).unwrap();
    set_lease_time(&bed, "6h").await;
    let next = tokio::time::timeout(LONG, config.changed()).await;
    next.unwrap().unwrap();
    assert_eq!(**config.borrow(), "6h");
}

#[tokio::test]
async fn pods_write_their_own_entries_alone_and_events_are_counted() {
    let bed = Bed::new("status").await;
    bed.namespace.apply(SERVER).await.unwrap();
    let own = Own::new::<DhcpServer>(bed.dhcp.clone(), bed.namespace.name(), "tenant-dhcp");
    let reports: Vec<Arc<ClusterReport>> = ["pod-a", "pod-b"]
        .map(|pod| ClusterReport::start(own.clone(), pod))
        .to_vec();
    for (report, count) in reports.iter().zip([1, 2]) {
        report.state(ServerReport {
            accepted: true,
            counts: [("activeLeases".to_owned(), count)].into(),
            ..ServerReport::default()
        });
    }
    entry_where(&bed, "pod-a", |entry| {
        entry.pod == "pod-a" && entry.counts["activeLeases"] == 1
    })
    .await;
    entry_where(&bed, "pod-b", |entry| {
        entry.pod == "pod-b" && entry.counts["activeLeases"] == 2
    })
    .await;

    // A hundred changes at once are few writes.
    let api: Api<DhcpServer> = Api::namespaced(bed.client.clone(), bed.namespace.name());
    for count in 3..=100 {
        reports[0].state(ServerReport {
            accepted: true,
            counts: [("activeLeases".to_owned(), count)].into(),
            ..ServerReport::default()
        });
        tokio::task::yield_now().await;
    }
    entry_where(&bed, "the last", |entry| {
        entry.pod == "pod-a" && entry.counts["activeLeases"] == 100
    })
    .await;
    let managed = api
        .get("tenant-dhcp")
        .await
        .unwrap()
        .metadata
        .managed_fields
        .unwrap();
    let managers: Vec<_> = managed
        .iter()
        .filter_map(|entry| entry.manager.as_deref())
        .collect();
    assert!(managers.contains(&"oooi-server-pod-a") && managers.contains(&"oooi-server-pod-b"));

    for _ in 0..3 {
        reports[0].event(Event::warning(
            "AddressConflict",
            "192.168.100.10 is used by another station",
        ));
    }
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(bed.client.clone(), bed.namespace.name());
    oooi_testkit::until("one event that counts three", LONG, async || {
        let all = events.list(&Default::default()).await.unwrap().items;
        let ours: Vec<_> = all
            .iter()
            .filter(|event| event.reason.as_deref() == Some("AddressConflict"))
            .map(|event| event.series.as_ref().map(|series| series.count))
            .collect();
        if ours == [Some(3)] {
            Ok(())
        } else {
            Err(format!("{ours:?}"))
        }
    })
    .await
    .unwrap();
}
