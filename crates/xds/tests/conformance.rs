//! The protocol as a generic client sees it over gRPC, without an Envoy; and what it costs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../../proxy/tests/battery/mod.rs"]
mod battery;
mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use battery::in_time;
use battery::world::World;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::rpc::Status;
use harness::Control;
use oooi_xds::bootstrap::Endpoint;
use oooi_xds::resources::Kind;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint as Target};

async fn control() -> Control {
    Control::start(
        battery::own_address(),
        &Endpoint::Tcp("127.0.0.1:0".parse().unwrap()),
    )
    .await
}

async fn channel(control: &Control) -> AggregatedDiscoveryServiceClient<Channel> {
    let Endpoint::Tcp(address) = &control.endpoint else {
        panic!("TCP")
    };
    let target = Target::from_shared(format!("http://{address}")).unwrap();
    AggregatedDiscoveryServiceClient::new(target.connect().await.unwrap()).max_decoding_message_size(64 << 20)
}

/// A delta client.
struct Delta {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Delta {
    async fn open(control: &Control, node: &str) -> Self {
        let (requests, receiver) = mpsc::channel(16);
        let first = DeltaDiscoveryRequest {
            node: Some(Node {
                id: node.to_owned(),
                ..Node::default()
            }),
            type_url: Kind::Clusters.type_url().to_owned(),
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(first).await.unwrap();
        let mut channel = channel(control).await;
        let stream = channel.delta_aggregated_resources(ReceiverStream::new(receiver));
        let responses = in_time("a stream", stream).await.unwrap().into_inner();
        Self { requests, responses }
    }

    async fn subscribe(&self, kind: Kind, names: &[&str]) {
        let request = DeltaDiscoveryRequest {
            type_url: kind.type_url().to_owned(),
            resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }

    async fn receive(&mut self) -> DeltaDiscoveryResponse {
        in_time("a response", self.responses.message())
            .await
            .unwrap()
            .unwrap()
    }

    async fn answer(&self, response: &DeltaDiscoveryResponse, error: Option<&str>) {
        let error_detail = error.map(|message| Status {
            message: message.to_owned(),
            ..Status::default()
        });
        let request = DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail,
            ..DeltaDiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }

    /// Receives, checks the kind and accepts.
    async fn accept(&mut self, kind: Kind) -> DeltaDiscoveryResponse {
        let response = self.receive().await;
        assert_eq!(response.type_url, kind.type_url());
        self.answer(&response, None).await;
        response
    }
}

/// A client of the state of the world. As the protocol has it, every request holds the nonce of the last response of
/// its kind.
struct Whole {
    requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
    last: BTreeMap<&'static str, DiscoveryResponse>,
}

impl Whole {
    async fn open(control: &Control, node: &str) -> Self {
        let (requests, receiver) = mpsc::channel(16);
        let first = DiscoveryRequest {
            node: Some(Node {
                id: node.to_owned(),
                ..Node::default()
            }),
            type_url: Kind::Clusters.type_url().to_owned(),
            ..DiscoveryRequest::default()
        };
        requests.send(first).await.unwrap();
        let mut channel = channel(control).await;
        let stream = channel.stream_aggregated_resources(ReceiverStream::new(receiver));
        let responses = in_time("a stream", stream).await.unwrap().into_inner();
        let last = BTreeMap::new();
        Self {
            requests,
            responses,
            last,
        }
    }

    async fn request(&self, kind: Kind, names: &[&str]) {
        let last = self.last.get(kind.type_url()).cloned().unwrap_or_default();
        let request = DiscoveryRequest {
            type_url: kind.type_url().to_owned(),
            version_info: last.version_info,
            response_nonce: last.nonce,
            resource_names: names.iter().map(ToString::to_string).collect(),
            ..DiscoveryRequest::default()
        };
        self.requests.send(request).await.unwrap();
    }

    /// Receives, checks the kind and accepts.
    async fn accept(&mut self, kind: Kind, names: &[&str]) -> DiscoveryResponse {
        let response = in_time("a response", self.responses.message()).await;
        let response = response.unwrap().unwrap();
        assert_eq!(response.type_url, kind.type_url());
        self.last.insert(kind.type_url(), response.clone());
        self.request(kind, names).await;
        response
    }
}

fn names(response: &DeltaDiscoveryResponse) -> Vec<&str> {
    response
        .resources
        .iter()
        .map(|resource| resource.name.as_str())
        .collect()
}

fn world(backends: &[&str]) -> World {
    let mut world = World::default();
    for name in backends {
        world.publish(
            name,
            &format!("{name}.demo.test"),
            8443,
            &["10.0.0.1:443".parse().unwrap()],
        );
    }
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delta_client_is_led_through_an_update_without_a_gap() {
    let control = control().await;
    let mut world = world(&["old", "same"]);
    control.plane.update(&world.snapshot());
    let mut client = Delta::open(&control, "generic").await;
    assert_eq!(names(&client.accept(Kind::Clusters).await), ["old", "same"]);
    client.subscribe(Kind::Endpoints, &["old", "same"]).await;
    assert_eq!(names(&client.accept(Kind::Endpoints).await), ["old", "same"]);
    client.subscribe(Kind::Listeners, &[]).await;
    assert_eq!(names(&client.accept(Kind::Listeners).await), ["tcp-8443"]);

    world
        .withdraw("old")
        .publish("new", "new.demo.test", 8443, &["10.0.0.2:443".parse().unwrap()]);
    control.plane.update(&world.snapshot());
    let added = client.accept(Kind::Clusters).await;
    assert_eq!(
        (names(&added), added.removed_resources.len()),
        (vec!["new"], 0),
        "nothing is broken yet"
    );
    client.subscribe(Kind::Endpoints, &["new"]).await;
    assert_eq!(names(&client.accept(Kind::Endpoints).await), ["new"]);
    assert_eq!(names(&client.accept(Kind::Listeners).await), ["tcp-8443"]);
    assert_eq!(client.accept(Kind::Clusters).await.removed_resources, ["old"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_clients_are_told_apart_and_one_refusal_does_not_stop_the_others() {
    let control = control().await;
    let mut world = world(&["api"]);
    control.plane.update(&world.snapshot());
    let mut good = Delta::open(&control, "good").await;
    let mut bad = Delta::open(&control, "bad").await;
    good.accept(Kind::Clusters).await;
    let response = bad.receive().await;
    bad.answer(&response, Some("not to my taste")).await;
    in_time("the refusal to be known", async {
        while control
            .report
            .latest()
            .is_none_or(|state| state.message.is_none())
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let message = control.report.latest().unwrap().message.unwrap();
    assert!(
        message.contains("Envoy bad refused the clusters: not to my taste"),
        "{message}"
    );
    assert_eq!(control.plane.connected(), 2);
    world.publish("next", "next.demo.test", 8443, &["10.0.0.2:443".parse().unwrap()]);
    control.plane.update(&world.snapshot());
    assert_eq!(names(&good.accept(Kind::Clusters).await), ["next"]);
    assert_eq!(
        names(&bad.accept(Kind::Clusters).await),
        ["api", "next"],
        "what was refused goes with what is new"
    );
    drop(bad);
    in_time("the client to be forgotten", async {
        while control.plane.connected() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_refused_is_forgotten_with_it() {
    let control = control().await;
    control.plane.update(&world(&["api"]).snapshot());
    let mut bad = Delta::open(&control, "bad").await;
    let response = bad.receive().await;
    bad.answer(&response, Some("not to my taste")).await;
    in_time("the refusal to be known", refusing(&control, true)).await;
    drop(bad);
    in_time("the refusal to be gone", refusing(&control, false)).await;
}

/// Waits until clusters are refused, or are not any more, by what is reported and counted.
async fn refusing(control: &Control, expected: bool) {
    while control.metrics.is_refusing(Kind::Clusters) != expected
        || control
            .report
            .latest()
            .is_none_or(|state| state.accepted == expected)
    {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_stands_until_what_was_refused_is_accepted() {
    let control = control().await;
    let mut world = world(&["a"]);
    control.plane.update(&world.snapshot());
    let mut client = Delta::open(&control, "generic").await;
    let refused = client.receive().await;
    // Both change before the client says that it minds one of them.
    world.publish("b", "b.demo.test", 8443, &["10.0.0.2:443".parse().unwrap()]);
    control.plane.update(&world.snapshot());
    client.answer(&refused, Some("not to my taste")).await;
    let both = client.receive().await;
    assert_eq!(names(&both), ["a", "b"], "it never took the first");
    client.answer(&both, Some("not to my taste")).await;
    world.publish("c", "c.demo.test", 8443, &["10.0.0.3:443".parse().unwrap()]);
    control.plane.update(&world.snapshot());
    let all = client.receive().await;
    assert_eq!(names(&all), ["a", "b", "c"]);
    assert!(
        !control.report.latest().unwrap().accepted,
        "nothing of it was accepted so far"
    );
    client.answer(&all, None).await;
    in_time("the refusal to be over", refusing(&control, false)).await;
    world.withdraw("c");
    world.publish("d", "d.demo.test", 8443, &["10.0.0.4:443".parse().unwrap()]);
    control.plane.update(&world.snapshot());
    assert_eq!(names(&client.accept(Kind::Clusters).await), ["d"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_listener_is_sent_again_and_the_refusal_is_said_once() {
    let control = control().await;
    control.plane.update(&world(&["api"]).snapshot());
    let mut client = Delta::open(&control, "generic").await;
    client.accept(Kind::Clusters).await;
    client.subscribe(Kind::Endpoints, &["api"]).await;
    client.accept(Kind::Endpoints).await;
    client.subscribe(Kind::Listeners, &[]).await;
    for _ in 0..2 {
        let response = client.receive().await;
        assert_eq!(names(&response), ["tcp-8443"]);
        client.answer(&response, Some("the port is taken")).await;
    }
    let events = control.report.events();
    let said = events.iter().filter(|event| event.reason == "EngineRefused");
    assert_eq!(said.count(), 1, "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_the_world_client_gets_whole_responses() {
    let control = control().await;
    control.plane.update(&world(&["a", "b"]).snapshot());
    let mut client = Whole::open(&control, "sotw").await;
    let first = client.accept(Kind::Clusters, &[]).await;
    assert_eq!(first.resources.len(), 2);
    client.request(Kind::Endpoints, &["a"]).await;
    assert_eq!(client.accept(Kind::Endpoints, &["a"]).await.resources.len(), 1);
    client.request(Kind::Endpoints, &["a", "b"]).await;
    let more = client.accept(Kind::Endpoints, &["a", "b"]).await;
    assert_eq!(
        more.resources.len(),
        1,
        "what it asked for after it accepted the first"
    );
    let mut larger = world(&["a", "b", "c"]);
    control.plane.update(&larger.snapshot());
    let second = client.accept(Kind::Clusters, &[]).await;
    assert_eq!(second.resources.len(), 3, "all of them, not only the new one");
    assert_ne!(second.version_info, first.version_info);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_serves_too_and_is_taken_over_from_the_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let endpoint = Endpoint::Unix(path.clone());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap()); // left behind by a process that is gone
    let control = Control::start(battery::own_address(), &endpoint).await;
    assert!(
        oooi_xds::server::Listener::bind(&endpoint).await.is_err(),
        "a living one is not robbed"
    );
    control.plane.update(&world(&["api"]).snapshot());
    let target = Target::from_shared(format!("unix://{}", path.display())).unwrap();
    let channel = target.connect().await.unwrap();
    let (requests, receiver) = mpsc::channel(1);
    let first = DeltaDiscoveryRequest {
        type_url: Kind::Clusters.type_url().into(),
        ..Default::default()
    };
    requests.send(first).await.unwrap();
    let stream = AggregatedDiscoveryServiceClient::new(channel)
        .delta_aggregated_resources(ReceiverStream::new(receiver))
        .await
        .unwrap();
    let response = in_time("clusters", stream.into_inner().message())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(names(&response), ["api"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_loopback_is_served() {
    let outside = Endpoint::Tcp("0.0.0.0:0".parse().unwrap());
    let error = oooi_xds::server::Listener::bind(&outside).await.err().unwrap();
    assert!(error.to_string().contains("loopback"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_change_among_many_backends_sends_one_resource() {
    let control = control().await;
    let backends: Vec<String> = (0..250).map(|i| format!("b{i}")).collect();
    let backends: Vec<&str> = backends.iter().map(String::as_str).collect();
    let mut world = world(&backends);
    control.plane.update(&world.snapshot());
    let mut client = Delta::open(&control, "generic").await;
    assert_eq!(client.accept(Kind::Clusters).await.resources.len(), 250);
    client.subscribe(Kind::Endpoints, &backends).await;
    let seen: BTreeSet<String> = client
        .accept(Kind::Endpoints)
        .await
        .resources
        .into_iter()
        .map(|resource| resource.name)
        .collect();
    assert_eq!(seen.len(), 250);
    world.endpoints("b17", &["10.0.0.9:443".parse().unwrap()]);
    let snapshot = world.snapshot();
    let start = Instant::now();
    control.plane.update(&snapshot);
    assert_eq!(names(&client.accept(Kind::Endpoints).await), ["b17"]);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_backends_are_built_and_pushed_in_a_moment() {
    let control = control().await;
    control.plane.update(&world(&["first"]).snapshot());
    let mut client = Delta::open(&control, "generic").await;
    client.accept(Kind::Clusters).await;
    let backends: Vec<String> = (0..1000).map(|i| format!("b{i}")).collect();
    let backends: Vec<&str> = backends.iter().map(String::as_str).collect();
    let endpoints: Vec<_> = (0..10)
        .map(|i| format!("10.0.0.{i}:443").parse().unwrap())
        .collect();
    let mut world = world(&backends);
    for name in &backends {
        world.endpoints(name, &endpoints);
    }
    let snapshot = world.snapshot();
    client.subscribe(Kind::Endpoints, &backends).await;
    client.accept(Kind::Endpoints).await;
    let start = Instant::now();
    control.plane.update(&snapshot);
    assert_eq!(client.accept(Kind::Clusters).await.resources.len(), 1000);
    assert_eq!(client.accept(Kind::Endpoints).await.resources.len(), 1000);
    let pushed = start.elapsed();
    world.endpoints("b500", &endpoints[..9]);
    let snapshot = world.snapshot();
    let start = Instant::now();
    control.plane.update(&snapshot);
    assert_eq!(names(&client.accept(Kind::Endpoints).await), ["b500"]);
    println!(
        "1,000 backends with 10 endpoints each: {pushed:?}; one endpoint less: {:?}",
        start.elapsed()
    );
    // Ten times what an optimised build takes on two shared cores: a build for development must pass too.
    assert!(pushed < Duration::from_secs(2), "{pushed:?}");
}
