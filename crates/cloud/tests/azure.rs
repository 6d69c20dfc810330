//! The shell around Azure's resource manager, against a stand-in on loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod arm;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use arm::Arm;
use oooi_cloud::azure::{Azure, Place};
use oooi_cloud::{Cloud, Environment, Error, Http, Machine, Pools, View};

const THREE: [(&str, &str); 3] = [("w1", "10.0.0.250"), ("w2", "10.0.0.249"), ("w3", "10.0.0.248")];

fn azure(arm: &Arm, secret: BTreeMap<String, Vec<u8>>) -> Azure {
    let environment = Environment {
        authority: Some(arm.url.clone()),
        resource_manager: Some(arm.url.clone()),
        ..Environment::default()
    };
    let reader = Arc::new(move || Some(secret.clone()));
    Azure::new(
        Http::new(&environment).unwrap(),
        &Place::default(),
        reader,
        &environment,
    )
}

async fn look(azure: &Azure) -> View {
    let ids = THREE
        .iter()
        .filter_map(|(name, _)| azure.machine_id(&Arm::provider_id(name)));
    azure.look(&ids.collect()).await.unwrap()
}

fn machine(view: &View, name: &str) -> Machine {
    let found = view.machines.values().find(|one| one.id.ends_with(name));
    found.unwrap().clone()
}

fn one(address: &str, pools: Pools) -> BTreeMap<Ipv4Addr, Pools> {
    BTreeMap::from([(address.parse().unwrap(), pools)])
}

fn only(address: &str) -> BTreeSet<Ipv4Addr> {
    BTreeSet::from([address.parse().unwrap()])
}

#[tokio::test]
async fn machines_of_all_pages_are_seen_with_what_others_use() {
    let arm = Arm::with(&THREE).await;
    arm.azure().strangers.insert("10.0.0.9".into());
    arm.azure().put("w2", "10.0.0.8");
    let azure = azure(&arm, arm::secret());
    let view = look(&azure).await;
    assert_eq!(view.machines.len(), 3);
    let w2 = machine(&view, "w2");
    assert_eq!(w2.primary, Some("10.0.0.249".parse().unwrap()));
    assert_eq!(w2.secondary, only("10.0.0.8"));
    assert_eq!(w2.capacity, Some(255));
    let used: Vec<String> = view
        .used
        .iter()
        .map(|(address, user)| format!("{address} {user}"))
        .collect();
    assert_eq!(used, ["10.0.0.9 database"], "and none of the machines' own");
}

#[tokio::test]
async fn an_address_comes_and_goes_by_one_write_each_and_one_that_is_there_by_none() {
    let arm = Arm::with(&THREE).await;
    let azure = azure(&arm, arm::secret());
    let w1 = machine(&look(&azure).await, "w1");
    arm.azure().throttle = 2;
    azure
        .assign(&w1, &one("10.0.0.4", Pools::AsPrimary))
        .await
        .unwrap();
    assert_eq!(arm.azure().on("w1"), ["10.0.0.4".to_owned()].into());
    assert_eq!(arm.azure().pools("w1", "10.0.0.4"), 1);
    azure
        .assign(&w1, &one("10.0.0.4", Pools::AsPrimary))
        .await
        .unwrap();
    azure.assign(&w1, &one("10.0.0.5", Pools::None)).await.unwrap();
    assert_eq!(arm.azure().pools("w1", "10.0.0.5"), 0);
    assert_eq!(arm.azure().puts(), 2, "nothing is written that is as wanted");
    azure.unassign(&w1, &only("10.0.0.4")).await.unwrap();
    azure.unassign(&w1, &only("10.0.0.4")).await.unwrap();
    assert_eq!(arm.azure().on("w1"), ["10.0.0.5".to_owned()].into());
    assert_eq!(arm.azure().puts(), 3);
}

#[tokio::test]
async fn a_change_of_somebody_else_in_between_is_not_lost() {
    let arm = Arm::with(&THREE).await;
    let azure = azure(&arm, arm::secret());
    let w1 = machine(&look(&azure).await, "w1");
    arm.azure().race = 2;
    azure
        .assign(&w1, &one("10.0.0.4", Pools::AsPrimary))
        .await
        .unwrap();
    assert_eq!(arm.azure().puts(), 3, "twice somebody was faster");
}

#[tokio::test]
async fn a_lost_answer_is_unknown_and_the_next_look_tells() {
    let arm = Arm::with(&THREE).await;
    let azure = azure(&arm, arm::secret());
    let w1 = machine(&look(&azure).await, "w1");
    arm.azure().lose = 1;
    let lost = azure.assign(&w1, &one("10.0.0.4", Pools::AsPrimary)).await;
    assert!(lost.unwrap_err().is_unknown());
    assert_eq!(machine(&look(&azure).await, "w1").secondary, only("10.0.0.4"));
    assert_eq!(arm.azure().puts(), 1, "it was not sent again");
}

#[tokio::test]
async fn what_azure_refuses_is_told_with_what_to_do() {
    let arm = Arm::with(&THREE).await;
    let azure = azure(&arm, arm::secret());
    let w1 = machine(&look(&azure).await, "w1");
    arm.azure().strangers.insert("10.0.0.9".into());
    let taken = azure
        .assign(&w1, &one("10.0.0.9", Pools::None))
        .await
        .unwrap_err();
    assert!(
        taken.is_refusal() && taken.to_string().contains("already allocated"),
        "{taken}"
    );
    arm.azure().outbound_rule = true;
    let rule = azure
        .assign(&w1, &one("10.0.0.4", Pools::AsPrimary))
        .await
        .unwrap_err();
    assert!(
        rule.to_string().contains("azure-egress-load-balancer: none"),
        "{rule}"
    );
    azure.assign(&w1, &one("10.0.0.4", Pools::None)).await.unwrap();
    assert_eq!(arm.azure().on("w1"), ["10.0.0.4".to_owned()].into());
}

#[tokio::test]
async fn a_wrong_secret_is_denied_and_shown_nowhere() {
    let arm = Arm::with(&THREE).await;
    let mut secret = arm::secret();
    secret.insert("azure_client_secret".into(), b"hidden-and-wrong".to_vec());
    let azure = azure(&arm, secret);
    let ids = [azure.machine_id(&Arm::provider_id("w1")).unwrap()].into();
    let error = azure.look(&ids).await.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("hidden"));
    assert!(arm.azure().calls.is_empty());
}

#[tokio::test]
async fn an_azure_stack_is_asked_where_the_cluster_says_and_tells_who_gives_tokens() {
    let arm = Arm::with(&THREE).await;
    arm.azure().stack = true;
    let place = Place {
        cloud: Some("AzureStackCloud".into()),
        manager: Some(format!("{}/", arm.url)),
    };
    let environment = Environment::default();
    let http = Http::new(&environment).unwrap();
    let stack = Azure::new(http, &place, Arc::new(|| Some(arm::secret())), &environment);
    let w1 = machine(&look(&stack).await, "w1");
    stack.assign(&w1, &one("10.0.0.40", Pools::None)).await.unwrap();
    assert_eq!(machine(&look(&stack).await, "w1").secondary, only("10.0.0.40"));
    let asked = arm
        .azure()
        .calls
        .iter()
        .filter(|call| *call == "GET endpoints")
        .count();
    assert_eq!(asked, 1, "it is not asked again");
}
