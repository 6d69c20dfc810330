//! The control plane, used as the tests of the operator use it. Needs the built testbed, no root.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use oooi_testkit::{Cluster, until};

mod runner;

/// Held by tests that start a cluster of their own, after the shared one is up: two starts at once on
/// two cores would measure each other.
static STARTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn the_api_server_serves_the_pinned_version() {
    let cluster = Cluster::shared().await.unwrap();
    let version = cluster.client().await.unwrap().apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.34.4");
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "34"));
}

#[tokio::test]
async fn a_cluster_is_up_within_ten_seconds_and_leaves_nothing() {
    Cluster::shared().await.unwrap();
    let _alone = STARTING.lock().await;
    let began = Instant::now();
    let cluster = Cluster::start().await.unwrap();
    let took = began.elapsed();
    let state = cluster.state().to_owned();
    drop(cluster);
    assert!(!state.exists(), "{} stayed behind", state.display());
    assert_eq!(runner::processes_of(&state), Vec::<String>::new());
    assert!(took < Duration::from_secs(10), "the start took {took:?}");
}

#[tokio::test]
async fn each_test_has_a_namespace_of_its_own() {
    let cluster = Cluster::shared().await.unwrap();
    let [one, two] = [
        cluster.namespace("same").await.unwrap(),
        cluster.namespace("same").await.unwrap(),
    ];
    assert_ne!(one.name(), two.name());
    one.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: only-here}}")
        .await
        .unwrap();
    assert_eq!(
        two.kubectl(&["get", "configmap", "only-here", "--ignore-not-found"])
            .await
            .unwrap(),
        ""
    );
}

#[tokio::test]
async fn what_an_object_owns_is_collected_after_it() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("garbage").await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(cluster.client().await.unwrap(), namespace.name());
    let map = |name: &str| ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let owner = maps.create(&PostParams::default(), &map("owner")).await.unwrap();
    let mut owned = map("owned");
    let reference = serde_json::json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid().unwrap(),
    }]);
    owned.metadata.owner_references = Some(serde_json::from_value(reference).unwrap());
    maps.create(&PostParams::default(), &owned).await.unwrap();

    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    until(
        "the garbage collector",
        Duration::from_secs(30),
        async || match maps.get_opt("owned").await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("the owned object is still there".to_owned()),
            Err(error) => Err(error.to_string()),
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn the_vendors_resource_definitions_install() {
    let cluster = Cluster::shared().await.unwrap();
    let folder = cluster.parts().crds();
    let folder = folder.to_str().unwrap();
    cluster
        .kubectl(&["apply", "--server-side", "-f", folder])
        .await
        .unwrap();
    cluster
        .kubectl(&[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "-f",
            folder,
        ])
        .await
        .unwrap();
}

#[tokio::test]
async fn a_command_that_the_server_refuses_says_why() {
    let cluster = Cluster::shared().await.unwrap();
    let error = cluster
        .kubectl(&["get", "nonsense"])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("kubectl get nonsense") && error.contains("nonsense\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_runner_killed_by_minus_nine_leaves_no_process() {
    Cluster::shared().await.unwrap();
    let _alone = STARTING.lock().await;
    let mut victim = Command::new(env!("CARGO_BIN_EXE_testbed"))
        .args(["run", "--", "sh", "-c", "echo $OOOI_TESTBED; exec sleep 600"])
        .env_remove(oooi_testkit::SHARED)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let state = runner::first_line(&mut victim);
    let started = runner::processes_of(&state);
    assert!(
        started.len() >= 3,
        "etcd, API server and controller manager should run: {started:?}"
    );

    victim.kill().unwrap();
    victim.wait().unwrap();
    runner::wait_for_no_process(&state).await;

    let next = Cluster::start().await.unwrap();
    assert!(
        !state.exists(),
        "the next run should have removed {}",
        state.display()
    );
    drop(next);
}
