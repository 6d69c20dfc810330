//! One battery of tests for every engine: real clients, real TLS backends, a gateway in between.
//!
//! An engine implements [`Engine`] and calls [`battery!`] with a function that starts it.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, which use parts of it"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

pub mod backends;
pub mod changes;
pub mod clients;
pub mod routing;
pub mod streams;
pub mod upgrades;
pub mod world;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use oooi_proxy::snapshot::Snapshot;

/// Longer than anything here takes on a loaded machine: only a failure waits that long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway under test.
#[allow(async_fn_in_trait, reason = "the tests call it with concrete types")]
pub trait Engine {
    /// Where it listens.
    fn ip(&self) -> IpAddr;
    /// Hands a snapshot over, and returns when new connections are served by it.
    async fn apply(&self, snapshot: Arc<Snapshot>);
}

/// A loopback address that no other test of this process has, and hardly one of another.
pub fn own_address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [.., a, b] = (std::process::id() % 50_000).to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    IpAddr::from([127, 1 + a % 250, b, u8::try_from(next % 250 + 2).unwrap()])
}

/// Fails the test if something takes forever.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(done) => done,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Runs every test of the battery against the engine that `$start` makes.
#[macro_export]
macro_rules! battery {
    ($start:path: $($module:ident::{$($test:ident),* $(,)?}),* $(,)?) => {$($(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let engine = $start().await;
            $crate::battery::$module::$test(&engine).await;
        }
    )*)*};
    ($start:path) => {
        battery!($start:
            routing::{
                names_lead_to_their_backends, curl_and_openssl_and_go_get_through, without_a_name_kube_apiserver_answers,
                what_no_route_names_is_reset, a_hello_is_read_however_it_is_split, a_hello_of_three_segments_is_read, plain_tcp_is_passed_on_unread,
                a_backend_that_wants_it_learns_the_client, datagrams_are_relayed_by_session,
            },
            streams::{
                a_half_close_is_passed_on_in_both_directions, bulk_arrives_whole_in_both_directions,
                a_slow_reader_holds_its_sender_back, a_silent_connection_ends_and_a_used_one_stays,
                a_backend_that_dies_ends_its_connections,
                a_backend_that_dies_in_the_middle_of_bulk_leaves_a_stream_that_is_short_and_ends, many_streams_keep_to_themselves,
            },
            upgrades::{upgraded_connections_and_watches_outlive_a_long_silence},
            changes::{
                an_established_connection_survives_every_change_of_names,
                an_established_connection_survives_another_connect_timeout, ports_come_and_go,
                a_dead_endpoint_costs_no_connection, without_endpoints_connections_are_reset_until_some_come,
                a_thousand_changes_under_load_fail_no_connection,
            },
        );
    };
}
