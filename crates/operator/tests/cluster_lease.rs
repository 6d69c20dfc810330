//! Leadership on a real API server. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use oooi_operator::lease::{Candidate, Term};
use oooi_testkit::{Cluster, until};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(20);

/// A candidate that runs, and whether it leads.
fn run(client: &Client, namespace: &str, identity: &str) -> (JoinHandle<()>, watch::Receiver<Term>) {
    let candidate = Candidate {
        namespace: namespace.into(),
        name: "manager".into(),
        identity: identity.into(),
        term: Duration::from_secs(3),
    };
    let (leading, receiver) = watch::channel(Term::Over);
    let client = client.clone();
    let task = tokio::spawn(async move { candidate.lead(client, &leading).await });
    (task, receiver)
}

async fn leads(mut leading: watch::Receiver<Term>) {
    let led = leading.wait_for(|term| term.runs());
    tokio::time::timeout(LIMIT, led).await.unwrap().unwrap();
}

#[tokio::test]
async fn of_many_candidates_one_leads_and_another_follows_when_it_is_gone() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("lease").await.unwrap();
    let client = cluster.client().await.unwrap();
    let mut candidates: Vec<_> = (0..5)
        .map(|number| run(&client, namespace.name(), &format!("candidate-{number}")))
        .collect();
    let leaders = |candidates: &[(JoinHandle<()>, watch::Receiver<Term>)]| -> Vec<usize> {
        let leads = |index: &usize| candidates[*index].1.borrow().runs();
        (0..candidates.len()).filter(leads).collect()
    };
    for round in 0..2 {
        let leader = until("a leader", LIMIT, async || {
            let found = leaders(&candidates);
            assert!(found.len() <= 1, "round {round}: {found:?} lead at once");
            found.first().copied().ok_or("none")
        })
        .await
        .unwrap();
        // Gone without a word, as a machine that loses its power.
        let (task, _) = candidates.remove(leader);
        task.abort();
    }
    candidates.iter().for_each(|(task, _)| task.abort());
}

#[tokio::test]
async fn a_leader_whose_lease_is_taken_or_deleted_leads_no_more() {
    let cluster = Cluster::shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    for deleted in [true, false] {
        let namespace = cluster.namespace("lost").await.unwrap();
        let (task, leading) = run(&client, namespace.name(), "leader");
        leads(leading.clone()).await;
        let leases = Api::<Lease>::namespaced(client.clone(), namespace.name());
        if deleted {
            leases.delete("manager", &DeleteParams::default()).await.unwrap();
        } else {
            let taken = json!({"spec": {"holderIdentity": "another"}});
            let patch = Patch::Merge(taken);
            leases
                .patch("manager", &PatchParams::default(), &patch)
                .await
                .unwrap();
        }
        tokio::time::timeout(LIMIT, task).await.unwrap().unwrap();
        assert!(!leading.borrow().runs(), "deleted: {deleted}");
    }
}
