//! Foreign kinds on a real API server. Needs the testbed.
//!
//! Definitions that pinned Go modules carry are the vendors' own; the others have stand-ins under `testbed/crds`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api_server;
mod round_trip;

use std::path::Path;

use api_server::ApiServer;
use oooi_testkit::Cluster;

#[tokio::test]
async fn every_field_that_we_know_survives_a_round_trip() {
    // It makes and deletes objects that a cluster has but one of, such as what the cluster runs on.
    let cluster = &Cluster::start().await.unwrap();
    let namespace = cluster.namespace("foreign").await.unwrap();
    let server = ApiServer::of(cluster).await;
    let stand_ins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/crds");
    let mut installed = server.install(&cluster.parts().crds()).await;
    installed.extend(server.install(&stand_ins).await);

    let mut wrong = Vec::new();
    for trip in round_trip::every_kind() {
        assert!(
            installed.contains(&trip.resource),
            "no definition is installed for {:?}",
            trip.resource
        );
        wrong.extend(trip.run(&server, namespace.name()).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
