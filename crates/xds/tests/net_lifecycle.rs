//! What happens when Envoy or its control plane fails, and when a configuration is refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../../proxy/tests/battery/mod.rs"]
mod battery;
mod harness;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use battery::backends::{self, Identity};
use battery::clients::{Conversation, who};
use battery::world::World;
use battery::{Engine, in_time};
use harness::{Control, Envoy, NODE};
use oooi_api::proxy_server::LogLevel;
use oooi_proxy::config::ServiceKey;
use oooi_xds::bootstrap::Endpoint;
use oooi_xds::envoy_stats;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Short enough for a test: connections that Envoy wants to drain end within it.
const DRAIN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_older_than_the_drain_time_survives_adding_and_removing_names() {
    let identity = Identity::new(&["api.demo.test", "new.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let envoy = Envoy::start_with(DRAIN).await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip, 8443);
    let mut conversation = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    let more = serde_json::json!({"alternateHostnames": ["new.demo.test"]});
    for round in 0..2 {
        world.publish_with("api", "api.demo.test", 8443, &[api.address], more.clone());
        world.publish("neighbour", "neighbour.demo.test", 8443, &[api.address]);
        envoy.apply(world.snapshot()).await;
        talk_for(&mut conversation, Duration::from_secs(2)).await;
        world
            .publish("api", "api.demo.test", 8443, &[api.address])
            .withdraw("neighbour");
        envoy.apply(world.snapshot()).await;
        talk_for(&mut conversation, Duration::from_secs(2)).await;
        conversation.say(&format!("round {round}")).await.unwrap();
    }
    envoy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_idle_timeout_lets_open_connections_end_with_the_drain_time() {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let envoy = Envoy::start_with(3 * DRAIN).await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip, 8443);
    let mut old = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    world.idle_timeout = Some("1h");
    let start = Instant::now();
    envoy.apply(world.snapshot()).await;
    let mut new = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    in_time("the end of the drain time", async {
        while old.say("still there").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(start.elapsed() >= 2 * DRAIN, "{:?}", start.elapsed());
    talk_for(&mut new, DRAIN).await;
    envoy.stop().await;
}

async fn talk_for(conversation: &mut Conversation, time: Duration) {
    let start = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    while start.elapsed() < time {
        tick.tick().await;
        conversation.say("still there").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_dies_costs_nothing_and_its_successor_goes_on() {
    let identity = Identity::new(&["api.demo.test", "new.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let mut envoy = Envoy::start().await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip, 8443);
    let mut conversation = Conversation::start(&identity, at, "api.demo.test").await.unwrap();

    let endpoint = envoy.control.endpoint.clone();
    let placeholder = Control::start(envoy.ip, &Endpoint::Tcp((envoy.ip, 0).into())).await;
    std::mem::replace(&mut envoy.control, placeholder).kill().await;
    conversation.say("the control plane is gone").await.unwrap();
    assert_eq!(
        who(&identity, at, "api.demo.test").await.unwrap(),
        "api",
        "Envoy keeps serving what it has"
    );

    let successor = Control::start(envoy.ip, &endpoint).await;
    std::mem::replace(&mut envoy.control, successor).kill().await;
    world.publish("new", "new.demo.test", 8443, &[api.address]);
    envoy.apply(world.snapshot()).await;
    assert_eq!(who(&identity, at, "new.demo.test").await.unwrap(), "api");
    conversation.say("it is back").await.unwrap();
    let sent = envoy
        .control
        .metrics
        .resources_sent(oooi_xds::resources::Kind::Clusters);
    assert_eq!(sent, 1, "Envoy told what it has, and got only what is new");
    envoy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_does_not_know_the_endpoints_yet_leaves_envoy_what_it_has() {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let mut envoy = Envoy::start().await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip, 8443);

    let endpoint = envoy.control.endpoint.clone();
    let placeholder = Control::start(envoy.ip, &Endpoint::Tcp((envoy.ip, 0).into())).await;
    std::mem::replace(&mut envoy.control, placeholder).kill().await;
    let successor = Control::start(envoy.ip, &endpoint).await;
    std::mem::replace(&mut envoy.control, successor).kill().await;
    // The API server is slow: the resource is known, and nothing of its Services.
    let mut slow = World::default();
    slow.publish("api", "api.demo.test", 8443, &[]);
    slow.assembler.await_service(&ServiceKey {
        namespace: "demo".into(),
        name: "api".into(),
    });
    let unknown = slow.snapshot();
    assert!(unknown.problems.is_empty());
    envoy.apply(unknown).await;
    for _ in 0..20 {
        assert_eq!(who(&identity, at, "api.demo.test").await.unwrap(), "api");
    }
    envoy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_that_dies_is_started_again_and_gets_everything() {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let envoy = Envoy::start().await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip, 8443);
    let pid = battery::clients::program(
        &["curl", "-s", &format!("http://{}/server_info", envoy.admin.0)],
        "",
    )
    .await;
    assert!(pid.0, "{}", pid.1);
    // Envoy ends by its own admin interface, as unexpectedly for the supervisor as a crash.
    let quit = format!("http://{}/quitquitquit", envoy.admin.0);
    battery::clients::program(&["curl", "-sX", "POST", &quit], "").await;
    in_time("the supervisor to notice", async {
        while envoy.supervisor_report.events().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(envoy.supervisor_report.events()[0].reason, "EnvoyEnded");
    in_time("service after the restart", async {
        while who(&identity, at, "api.demo.test").await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    envoy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_envoy_refuses_is_reported_in_its_own_words_and_mended_later() {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let envoy = Envoy::start().await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    // A port that somebody else has: Envoy refuses the listener.
    let rival = std::net::TcpListener::bind((envoy.ip, 8500)).unwrap();
    world.publish("blocked", "*", 8500, &[api.address]);
    envoy.control.plane.update(&world.snapshot());
    in_time("a refusal", async {
        while envoy
            .control
            .report
            .latest()
            .is_none_or(|state| state.message.is_none())
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let state = envoy.control.report.latest().unwrap();
    assert!(!state.accepted);
    let message = state.message.unwrap();
    assert!(message.contains(NODE) && message.contains("8500"), "{message}");
    assert_eq!(
        envoy.control.report.events().last().unwrap().reason,
        "EngineRefused"
    );
    let at = SocketAddr::new(envoy.ip, 8443);
    assert_eq!(
        who(&identity, at, "api.demo.test").await.unwrap(),
        "api",
        "the other listener works"
    );

    drop(rival);
    in_time("the listener to be sent again and taken", async {
        while !envoy.control.report.latest().unwrap().accepted {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut stream = TcpStream::connect((envoy.ip, 8500)).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    world.withdraw("blocked");
    envoy.apply(world.snapshot()).await;
    world.publish("free", "*", 8501, &[api.address]);
    envoy.apply(world.snapshot()).await;
    assert!(envoy.control.report.latest().unwrap().accepted);
    envoy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_have_our_names_and_the_log_level_changes_live() {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let envoy = Envoy::start().await;
    let mut world = World::default();
    world.publish("api", "api.demo.test", 8443, &[api.address]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip, 8443);
    let _open = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    assert!(who(&identity, at, "unknown.demo.test").await.is_err());
    let lines = [
        "oooi_proxy_connections_active{backend=\"api\"} 1",
        "oooi_proxy_connections_total{backend=\"api\"} 1",
        "oooi_proxy_endpoints{backend=\"api\"} 1",
        "oooi_proxy_resets_total{reason=\"unknown_name\"} 1",
    ];
    statistics(&envoy, &lines).await;
    envoy.log_level.send_replace(LogLevel::Critical);
    in_time("the log level", async {
        let url = format!("http://{}/logging", envoy.admin.0);
        while !battery::clients::program(&["curl", "-sX", "POST", &url], "")
            .await
            .1
            .contains("admin: critical")
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    envoy.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_connections_end_and_how_long_they_take_to_make_have_our_names_too() {
    let identity = Identity::new(&["api.demo.test"]);
    let api = backends::tls("api", &identity).await;
    let envoy = Envoy::start().await;
    let mut world = World {
        idle_timeout: Some("1s"),
        ..World::default()
    };
    world
        .publish("api", "api.demo.test", 8443, &[api.address])
        .publish("empty", "empty.demo.test", 8443, &[])
        .publish("dead", "*", 8500, &["127.0.0.1:1".parse().unwrap()]);
    envoy.apply(world.snapshot()).await;
    let at = SocketAddr::new(envoy.ip, 8443);
    let _idle = Conversation::start(&identity, at, "api.demo.test").await.unwrap();
    assert!(who(&identity, at, "empty.demo.test").await.is_err());
    assert!(battery::clients::is_refused(SocketAddr::new(envoy.ip, 8500), b"x").await);
    let lines = [
        "oooi_proxy_connect_seconds_count{backend=\"api\"} 1",
        "oooi_proxy_connect_seconds_bucket{backend=\"api\",le=\"+Inf\"} 1",
        "oooi_proxy_connections_total{backend=\"api\"} 1",
        "oooi_proxy_connections_total{backend=\"dead\"} 0",
        "oooi_proxy_resets_total{reason=\"connect_failed\"} 1",
        "oooi_proxy_resets_total{reason=\"idle\"} 1",
        "oooi_proxy_resets_total{reason=\"no_endpoint\"} 1",
    ];
    statistics(&envoy, &lines).await;
    envoy.stop().await;
}

/// Waits until Envoy's statistics have all of these lines.
async fn statistics(envoy: &Envoy, lines: &[&str]) {
    in_time("the statistics", async {
        loop {
            let page = envoy_stats::translate(&envoy.admin.statistics().await.unwrap());
            if lines.iter().all(|line| page.lines().any(|have| have == *line)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}
