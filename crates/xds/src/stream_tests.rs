use oooi_proxy::assemble::Assembler;
use proptest::prelude::*;
use serde_json::json;

use std::collections::BTreeSet;

use super::*;

/// Resources of backends with these names and this many endpoints. Each is on port 443, unless its name starts with its
/// port.
fn resources(before: &Resources, backends: &[(&str, u8)]) -> Resources {
    let mut assembler = Assembler::default();
    let list: Vec<_> = backends
        .iter()
        .map(|(name, _)| {
            let port = name.split('-').next().and_then(|port| port.parse().ok());
            json!({"name": name, "hostname": format!("{name}.example"), "port": port.unwrap_or(443),
            "targetService": name, "targetPort": 443, "targetNamespace": "demo"})
        })
        .collect();
    let spec = json!({"networkConfig": {"serverIP": "192.0.2.4"}, "backends": list});
    assembler.set_spec(&serde_json::from_value(spec).unwrap());
    for (name, count) in backends {
        let endpoints: Vec<_> = (0..*count)
            .map(|i| json!({"addresses": [format!("10.0.0.{i}")]}))
            .collect();
        let slice = json!({"metadata": {"namespace": "demo", "name": name,
            "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
            "ports": [{"port": 8443}], "endpoints": endpoints});
        assembler.set_slice(&serde_json::from_value(slice).unwrap());
    }
    Resources::next(before, &assembler.snapshot(), &["192.0.2.4".parse().unwrap()])
}

fn first(kind: Kind, names: &[&str]) -> Request {
    Request {
        type_url: kind.type_url().to_owned(),
        subscribe: names.iter().map(ToString::to_string).collect(),
        ..Request::default()
    }
}

/// A client that behaves as Envoy does: it takes everything over and asks for the endpoints of its clusters.
struct Client {
    stream: Stream,
    clusters: BTreeSet<String>,
    log: Vec<String>,
}

impl Client {
    fn connect(variant: Variant, resources: &Resources) -> Self {
        let mut client = Self {
            stream: Stream::new(variant),
            clusters: BTreeSet::new(),
            log: Vec::new(),
        };
        client.stream.request(first(Kind::Clusters, &[]), resources);
        client.settle(resources);
        client.stream.request(first(Kind::Listeners, &[]), resources);
        client.settle(resources);
        client
    }

    fn settle(&mut self, resources: &Resources) {
        while let Some(response) = self.stream.next(resources) {
            let names: Vec<&str> = response.resources.iter().map(|r| r.name.as_str()).collect();
            self.log.push(format!(
                "{} +{} -{}",
                response.kind.label(),
                names.join(","),
                response.removed.join(",")
            ));
            let answer = self.answer(&response);
            assert_eq!(
                self.stream.request(answer, resources),
                Verdict::Accepted(response.kind)
            );
            if response.kind == Kind::Clusters {
                let before = self.clusters.clone();
                match self.stream.variant {
                    Variant::StateOfTheWorld => {
                        self.clusters = names.iter().map(ToString::to_string).collect();
                    }
                    Variant::Delta => {
                        self.clusters.extend(names.iter().map(ToString::to_string));
                        self.clusters.retain(|name| !response.removed.contains(name));
                    }
                }
                if self.clusters != before {
                    let mut request = Request {
                        type_url: Kind::Endpoints.type_url().into(),
                        ..Request::default()
                    };
                    match self.stream.variant {
                        Variant::StateOfTheWorld => {
                            request.subscribe = self.clusters.iter().cloned().collect();
                        }
                        Variant::Delta => {
                            request.subscribe = self.clusters.difference(&before).cloned().collect();
                            request.unsubscribe = before.difference(&self.clusters).cloned().collect();
                        }
                    }
                    self.stream.request(request, resources);
                }
            }
        }
        assert!(!self.stream.is_gated(resources), "{:?}", self.log);
    }

    fn answer(&self, response: &Response) -> Request {
        let mut answer = Request {
            type_url: response.kind.type_url().to_owned(),
            nonce: response.nonce.clone(),
            ..Request::default()
        };
        if self.stream.variant == Variant::StateOfTheWorld && response.kind == Kind::Endpoints {
            answer.subscribe = self.clusters.iter().cloned().collect();
        }
        answer
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

#[test]
fn a_new_client_gets_clusters_then_endpoints_then_listeners() {
    for variant in [Variant::Delta, Variant::StateOfTheWorld] {
        let resources = resources(&Resources::default(), &[("a", 1), ("b", 2)]);
        let mut client = Client::connect(variant, &resources);
        assert_eq!(
            client.take_log(),
            ["clusters +a,b -", "endpoints +a,b -", "listeners +tcp-443 -"],
            "{variant:?}"
        );
        client.settle(&resources);
        assert!(client.take_log().is_empty(), "nothing is sent twice");
    }
}

#[test]
fn an_empty_world_is_answered_too() {
    for variant in [Variant::Delta, Variant::StateOfTheWorld] {
        let mut client = Client::connect(variant, &Resources::default());
        assert_eq!(client.take_log(), ["clusters + -", "listeners + -"]);
    }
}

#[test]
fn an_endpoint_change_sends_those_endpoints_alone() {
    for variant in [Variant::Delta, Variant::StateOfTheWorld] {
        let before = resources(&Resources::default(), &[("a", 1), ("b", 2)]);
        let mut client = Client::connect(variant, &before);
        client.take_log();
        client.settle(&resources(&before, &[("a", 1), ("b", 3)]));
        assert_eq!(client.take_log(), ["endpoints +b -"]);
    }
}

#[test]
fn what_is_new_is_made_before_what_is_old_is_broken() {
    let before = resources(&Resources::default(), &[("old", 1), ("same", 1)]);
    let after = resources(&before, &[("new", 1), ("same", 1)]);
    let mut delta = Client::connect(Variant::Delta, &before);
    delta.take_log();
    delta.settle(&after);
    assert_eq!(
        delta.take_log(),
        [
            "clusters +new -",
            "endpoints +new -",
            "listeners +tcp-443 -",
            "clusters + -old"
        ]
    );
    let mut whole = Client::connect(Variant::StateOfTheWorld, &before);
    whole.take_log();
    whole.settle(&after);
    assert_eq!(
        whole.take_log(),
        [
            "clusters +new,same,old -",
            "endpoints +new -",
            "listeners +tcp-443 -",
            "clusters +new,same -"
        ]
    );
}

#[test]
fn listeners_wait_for_the_endpoints_of_a_new_cluster() {
    let before = resources(&Resources::default(), &[("a", 1)]);
    let after = resources(&before, &[("a", 1), ("b", 1)]);
    let mut client = Client::connect(Variant::Delta, &before);
    let response = client.stream.next(&after).unwrap();
    assert_eq!(response.kind, Kind::Clusters);
    let answer = client.answer(&response);
    client.stream.request(answer, &after);
    assert!(
        client.stream.next(&after).is_none(),
        "the client did not ask for the endpoints of b yet"
    );
    assert!(client.stream.is_gated(&after));
    client.stream.lift_gate();
    assert_eq!(client.stream.next(&after).unwrap().kind, Kind::Listeners);
}

#[test]
fn a_refused_resource_is_reported_and_not_sent_again_until_it_changes() {
    for variant in [Variant::Delta, Variant::StateOfTheWorld] {
        let before = resources(&Resources::default(), &[("a", 1)]);
        let mut client = Client::connect(variant, &before);
        let after = resources(&before, &[("a", 2)]);
        let response = client.stream.next(&after).unwrap();
        let refusal = Request {
            error: Some("no such thing".into()),
            ..client.answer(&response)
        };
        let verdict = client.stream.request(refusal, &after);
        assert_eq!(verdict, Verdict::Refused(Kind::Endpoints, "no such thing".into()));
        assert!(client.stream.next(&after).is_none());
        let mended = resources(&after, &[("a", 3)]);
        assert_eq!(client.stream.next(&mended).unwrap().kind, Kind::Endpoints);
    }
}

#[test]
fn what_was_refused_goes_with_the_next_of_its_kind() {
    let before = resources(&Resources::default(), &[("a", 1), ("b", 1), ("c", 1)]);
    let mut client = Client::connect(Variant::Delta, &before);
    let after = resources(&before, &[("a", 2), ("b", 1), ("c", 1)]);
    let response = client.stream.next(&after).unwrap();
    let refusal = Request {
        error: Some("no such thing".into()),
        ..client.answer(&response)
    };
    // Another changed while the refusal was on its way.
    let both = resources(&after, &[("a", 2), ("b", 2), ("c", 1)]);
    client.stream.request(refusal, &both);
    client.take_log();
    client.settle(&both);
    assert_eq!(client.take_log(), ["endpoints +a,b -"]);
    let last = resources(&both, &[("a", 2), ("b", 2), ("c", 2)]);
    client.settle(&last);
    assert_eq!(client.take_log(), ["endpoints +c -"], "the others were accepted");
}

#[test]
fn one_response_of_a_kind_is_on_its_way_and_the_next_holds_the_newest() {
    let before = resources(&Resources::default(), &[("a", 1)]);
    let mut client = Client::connect(Variant::Delta, &before);
    let second = resources(&before, &[("a", 2)]);
    let response = client.stream.next(&second).unwrap();
    let newest = resources(&second, &[("a", 4)]);
    assert!(client.stream.next(&newest).is_none());
    let stale = Request {
        nonce: "0".into(),
        ..client.answer(&response)
    };
    assert_eq!(client.stream.request(stale, &newest), Verdict::Noted);
    assert!(
        client.stream.next(&newest).is_none(),
        "an answer to something else frees nothing"
    );
    let answer = client.answer(&response);
    client.stream.request(answer, &newest);
    let latest = client.stream.next(&newest).unwrap();
    assert_eq!(
        latest.resources[0].version,
        newest.set(Kind::Endpoints).get("a").unwrap().version
    );
}

#[test]
fn a_client_that_comes_back_gets_the_difference() {
    let before = resources(&Resources::default(), &[("a", 1), ("b", 1)]);
    let after = resources(&before, &[("b", 2), ("c", 1)]);
    let mut stream = Stream::new(Variant::Delta);
    let has = |kind| {
        before
            .set(kind)
            .values()
            .map(|r| (r.name.clone(), r.version.clone()))
            .collect()
    };
    stream.request(
        Request {
            has: has(Kind::Clusters),
            ..first(Kind::Clusters, &[])
        },
        &after,
    );
    let response = stream.next(&after).unwrap();
    assert_eq!(response.resources.len(), 1, "b's cluster is the same");
    assert!(response.removed.is_empty(), "its listeners may name it");
    let answer = Request {
        nonce: response.nonce,
        ..first(Kind::Clusters, &[])
    };
    stream.request(answer, &after);
    assert!(stream.next(&after).is_none() && stream.is_gated(&after));
    stream.lift_gate(); // it never asks for listeners
    assert_eq!(stream.next(&after).unwrap().removed, ["a"]);
    let mut stream = Stream::new(Variant::Delta);
    stream.request(
        Request {
            has: has(Kind::Endpoints),
            ..first(Kind::Endpoints, &["b", "c"])
        },
        &after,
    );
    let names: Vec<String> = stream
        .next(&after)
        .unwrap()
        .resources
        .iter()
        .map(|r| r.name.clone())
        .collect();
    assert_eq!(names, ["b", "c"]);

    let mut stream = Stream::new(Variant::StateOfTheWorld);
    let version = before.version(Kind::Clusters);
    stream.request(
        Request {
            has_version: version.clone(),
            ..first(Kind::Clusters, &[])
        },
        &before,
    );
    assert!(stream.next(&before).is_none(), "it has everything");
    let mut stream = Stream::new(Variant::StateOfTheWorld);
    stream.request(
        Request {
            has_version: version,
            ..first(Kind::Clusters, &[])
        },
        &after,
    );
    assert_eq!(stream.next(&after).unwrap().resources.len(), 2);
}

#[test]
fn a_name_that_does_not_exist_is_told_once_and_sent_when_it_comes() {
    let none = Resources::default();
    let mut stream = Stream::new(Variant::Delta);
    stream.request(first(Kind::Endpoints, &["a"]), &none);
    let response = stream.next(&none).unwrap();
    assert_eq!(response.removed, ["a"]);
    let ack = Request {
        nonce: response.nonce,
        ..first(Kind::Endpoints, &[])
    };
    stream.request(ack, &none);
    assert!(stream.next(&none).is_none());
    let some = resources(&none, &[("a", 1)]);
    assert_eq!(stream.next(&some).unwrap().resources.len(), 1);
}

#[test]
fn asking_again_for_a_name_sends_it_again() {
    let some = resources(&Resources::default(), &[("a", 1)]);
    let mut stream = Stream::new(Variant::Delta);
    stream.request(first(Kind::Endpoints, &["a"]), &some);
    let response = stream.next(&some).unwrap();
    stream.request(
        Request {
            nonce: response.nonce,
            ..first(Kind::Endpoints, &["a"])
        },
        &some,
    );
    assert_eq!(stream.next(&some).unwrap().resources.len(), 1);
}

#[test]
fn an_unknown_kind_is_no_reason_to_fall_over() {
    let request = Request {
        type_url: "type.googleapis.com/unknown".into(),
        ..Request::default()
    };
    assert_eq!(
        Stream::new(Variant::Delta).request(request, &Resources::default()),
        Verdict::Unknown
    );
}

#[test]
fn a_state_of_the_world_client_changes_its_names_after_it_accepted() {
    let some = resources(&Resources::default(), &[("a", 1), ("b", 1)]);
    let mut stream = Stream::new(Variant::StateOfTheWorld);
    stream.request(first(Kind::Endpoints, &["a"]), &some);
    let nonce = stream.next(&some).unwrap().nonce;
    let says = |names| Request {
        nonce: nonce.clone(),
        ..first(Kind::Endpoints, names)
    };
    assert_eq!(
        stream.request(says(&["a"]), &some),
        Verdict::Accepted(Kind::Endpoints)
    );
    assert_eq!(stream.request(says(&["a", "b"]), &some), Verdict::Noted);
    let names: Vec<String> = stream
        .next(&some)
        .unwrap()
        .resources
        .iter()
        .map(|one| one.name.clone())
        .collect();
    assert_eq!(names, ["b"]);
}

/// Refuses the listeners that come next, whatever else comes before them.
fn refuse_listeners(client: &mut Client, resources: &Resources) -> Response {
    loop {
        let response = client.stream.next(resources).unwrap();
        let answer = client.answer(&response);
        if response.kind != Kind::Listeners {
            client.stream.request(answer, resources);
            continue;
        }
        let refusal = Request {
            error: Some("the port is taken".into()),
            ..answer
        };
        client.stream.request(refusal, resources);
        return response;
    }
}

#[test]
fn clusters_stay_while_the_listeners_without_them_are_refused() {
    let before = resources(&Resources::default(), &[("old", 1), ("same", 1)]);
    let after = resources(&before, &[("same", 1)]);
    for variant in [Variant::Delta, Variant::StateOfTheWorld] {
        let mut client = Client::connect(variant, &before);
        client.take_log();
        refuse_listeners(&mut client, &after);
        client.settle(&after);
        assert!(
            client.take_log().is_empty(),
            "{variant:?}: Envoy has the old listeners"
        );
        assert!(client.stream.has_refused());
        client.stream.retry();
        client.settle(&after);
        let (listeners, clusters) = match variant {
            Variant::Delta => ("listeners +tcp-443 -", "clusters + -old"),
            Variant::StateOfTheWorld => ("listeners +tcp-443 -", "clusters +same -"),
        };
        assert_eq!(client.take_log(), [listeners, clusters]);
        assert!(!client.stream.has_refused());
    }
}

#[test]
fn refused_listeners_go_with_the_next_that_are_sent() {
    let before = resources(&Resources::default(), &[("80-a", 1)]);
    let mut client = Client::connect(Variant::Delta, &before);
    client.take_log();
    let blocked = resources(&before, &[("80-a", 1), ("81-b", 1)]);
    client.stream.lift_gate(); // that the client asks for the endpoints is of no interest here
    assert_eq!(
        refuse_listeners(&mut client, &blocked).resources[0].name,
        "tcp-81"
    );
    assert!(client.stream.next(&blocked).is_none(), "not at once");
    let after = resources(&blocked, &[("81-b", 1)]);
    let response = refuse_listeners(&mut client, &after);
    assert_eq!(response.removed, ["tcp-80"]);
    assert_eq!(response.resources[0].name, "tcp-81");
}

proptest! {
    #[test]
    fn a_client_that_missed_any_updates_ends_with_what_there_is(
        updates in prop::collection::vec((prop::collection::vec(0..4u8, 5), any::<bool>()), 1..12),
    ) {
        let mut stream = Stream::new(Variant::Delta);
        let mut world = Resources::default();
        let mut has = [(); 3].map(|()| BTreeMap::new());
        stream.request(first(Kind::Clusters, &[]), &world);
        stream.request(first(Kind::Endpoints, &["n0", "n1", "n2", "n3", "n4"]), &world);
        stream.request(first(Kind::Listeners, &[]), &world);
        for (counts, follows) in updates.iter().chain([&(vec![1, 0, 2, 0, 3], true)]) {
            let names: Vec<String> = (0..counts.len()).map(|number| format!("n{number}")).collect();
            let backends = names.iter().map(String::as_str).zip(counts.iter().copied());
            let backends: Vec<(&str, u8)> = backends.filter(|(_, count)| *count > 0).collect();
            world = resources(&world, &backends);
            while let Some(response) = follows.then(|| stream.next(&world)).flatten() {
                let kind: &mut BTreeMap<String, String> = &mut has[response.kind as usize];
                kind.extend(response.resources.iter().map(|one| (one.name.clone(), one.version.clone())));
                kind.retain(|name, _| !response.removed.contains(name));
                let answer = Request { nonce: response.nonce, ..first(response.kind, &[]) };
                prop_assert_eq!(stream.request(answer, &world), Verdict::Accepted(response.kind));
            }
        }
        prop_assert!(stream.is_settled(&world));
        for kind in Kind::ALL {
            let there = world.set(kind).values().map(|one| (one.name.clone(), one.version.clone()));
            prop_assert_eq!(&has[kind as usize], &there.collect::<BTreeMap<_, _>>(), "{}", kind.label());
        }
    }

    #[test]
    fn no_sequence_of_requests_makes_it_panic_or_answer_forever(
        steps in prop::collection::vec((0..4usize, 0..4u8, any::<bool>(), any::<bool>()), 0..40),
        delta in any::<bool>(),
    ) {
        let worlds = [
            resources(&Resources::default(), &[]),
            resources(&Resources::default(), &[("a", 1)]),
            resources(&Resources::default(), &[("a", 2), ("b", 1)]),
        ];
        let mut stream = Stream::new(if delta { Variant::Delta } else { Variant::StateOfTheWorld });
        let mut last = String::new();
        for (step, (kind, names, refuse, ack)) in steps.into_iter().enumerate() {
            let world = &worlds[step % worlds.len()];
            let names: Vec<String> = ["a", "b", "*", "x"].iter().take(names.into()).map(ToString::to_string).collect();
            let request = Request {
                type_url: Kind::ALL.get(kind).map_or("x", |kind| kind.type_url()).to_owned(),
                nonce: if ack { last.clone() } else { String::new() },
                error: refuse.then(|| "no".to_owned()),
                subscribe: names.clone(),
                unsubscribe: if refuse { names } else { Vec::new() },
                ..Request::default()
            };
            stream.request(request, world);
            for _ in 0..4 {
                match stream.next(world) {
                    Some(response) => last = response.nonce,
                    None => break,
                }
            }
            prop_assert!(stream.next(world).is_none(), "at most one response of a kind is on its way");
        }
    }
}
