//! Forwarding to upstreams that lie, truncate, delay and die.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use oooi_api::dns_server::{ForwardZone, UpstreamPolicy};
use support::upstream::{Act, Upstream, address, denial, reply};
use support::{NODE, ask, data, question, start, until};

const A_TYPE: RecordType = RecordType::A;

#[tokio::test(flavor = "multi_thread")]
async fn zones_go_to_their_own_upstreams_and_the_rest_to_the_default() {
    let default = Upstream::start(|question, _| Act::Reply(vec![address(question, 60, 1)])).await;
    let corporate = Upstream::start(|question, _| Act::Reply(vec![address(question, 60, 2)])).await;
    let (one, two) = (default.text(), corporate.text());
    let server = start(|spec| {
        spec.upstream_dns = vec![one];
        spec.forward_zones = vec![ForwardZone {
            zone: "corp.example".into(),
            upstreams: vec![two],
            policy: None,
        }];
    })
    .await;
    assert_eq!(
        data(&server.node("www.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    assert_eq!(
        data(&server.node("git.corp.example.", A_TYPE).await),
        ["192.0.2.2"]
    );
    assert_eq!(
        data(&server.node("api.hub.example.com.", A_TYPE).await),
        ["127.0.1.4"],
        "own names stay own"
    );
    assert_eq!((default.asked(), corporate.asked()), (1, 1));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lying_upstream_is_not_believed() {
    let upstream = Upstream::start(|question, _| {
        let truth = address(question, 60, 1);
        let mut wrong_id = address(question, 60, 66);
        wrong_id.metadata.id = wrong_id.metadata.id.wrapping_add(1);
        let mut wrong_name = address(question, 60, 66);
        wrong_name.queries[0].set_name(Name::from_ascii("other.example.").expect("a name"));
        let mut not_an_answer = address(question, 60, 66);
        not_an_answer.metadata.message_type = hickory_proto::op::MessageType::Query;
        Act::Reply(vec![wrong_id, wrong_name, not_an_answer, truth])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    assert_eq!(
        data(&server.node("www.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    assert_eq!(upstream.asked(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_answers_from_elsewhere_are_not_believed() {
    let upstream = tokio::net::UdpSocket::bind("127.0.3.53:0")
        .await
        .expect("a socket");
    let elsewhere = tokio::net::UdpSocket::bind("127.0.3.54:0")
        .await
        .expect("a socket");
    let text = upstream.local_addr().expect("its address").to_string();
    let lies = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok((length, client)) = upstream.recv_from(&mut buffer).await {
            let asked = Message::from_vec(&buffer[..length]).expect("the server's questions can be read");
            let wire = |last| {
                address(&asked, 60, last)
                    .to_vec()
                    .expect("an answer can be written")
            };
            // The right answer from a wrong address, and from a wrong port of the right one.
            let _ = elsewhere.send_to(&wire(66), client).await;
            let port = tokio::net::UdpSocket::bind("127.0.3.53:0")
                .await
                .expect("a socket");
            let _ = port.send_to(&wire(67), client).await;
            let truth = wire(1);
            let id = &truth[..2];
            let garbage: [&[u8]; 6] = [
                &[],
                &[id[0]],
                id,
                &[0xff; 700],
                &[
                    id,
                    &[0x81, 0x80, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..],
                    &[0xc0; 90],
                ]
                .concat(),
                &[id, &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0, 0xc0, 12]].concat(),
            ];
            for octets in garbage {
                let _ = upstream.send_to(octets, client).await;
            }
            let _ = upstream.send_to(&truth, client).await;
        }
    });
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    for number in 0..20 {
        let answer = server.node(&format!("n{number}.example.org."), A_TYPE).await;
        assert_eq!(data(&answer), ["192.0.2.1"]);
    }
    lies.abort();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_spelling_is_asked_again_by_tcp() {
    let upstream = Upstream::start(|question, tcp| {
        let mut message = address(question, 60, if tcp { 1 } else { 66 });
        if !tcp {
            let folded = question.queries[0].name().to_lowercase();
            message.queries[0].set_name(folded);
        }
        Act::Reply(vec![message])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    // Thirty letters: the chance that the random spelling is all lower case is one in a thousand million.
    let name = "abcdefghijklmnopqrstuvwxyz.example.org.";
    assert_eq!(data(&server.node(name, A_TYPE).await), ["192.0.2.1"]);
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_records_reach_neither_the_client_nor_the_cache() {
    let upstream = Upstream::start(|question, _| {
        let mut message = address(question, 60, 1);
        let victim = Name::from_ascii("bank.example.").expect("a name");
        let poison = Record::from_rdata(victim, 60, RData::A(A::new(192, 0, 2, 66)));
        message.add_answer(poison.clone());
        message.add_additional(poison);
        let asked = question.queries[0].name().to_lowercase().to_string();
        Act::Reply(vec![if asked == "bank.example." {
            address(question, 60, 9)
        } else {
            message
        }])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let answer = server.node("www.example.org.", A_TYPE).await;
    assert_eq!(data(&answer), ["192.0.2.1"]);
    assert!(answer.additionals.is_empty());
    assert_eq!(data(&server.node("bank.example.", A_TYPE).await), ["192.0.2.9"]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_answer_is_fetched_by_tcp_and_cut_again_for_a_small_client() {
    let upstream = Upstream::start(|question, tcp| {
        let mut message = reply(question);
        if !tcp {
            message.metadata.truncation = true;
            return Act::Reply(vec![message]);
        }
        for last in 0..60 {
            let owner = question.queries[0].name().clone();
            message.add_answer(Record::from_rdata(owner, 60, RData::A(A::new(192, 0, 2, last))));
        }
        Act::Reply(vec![message])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    assert_eq!(server.node("big.example.org.", A_TYPE).await.answers.len(), 60);
    let mut small = question("big.example.org.", A_TYPE);
    small.edns = None;
    let cut = ask(NODE, server.vlan, &small).await;
    assert!(cut.metadata.truncation && cut.answers.is_empty());
    assert_eq!(upstream.asked(), 1, "the second question was a hit");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_upstream_is_left_out_and_comes_back() {
    let alive = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&alive);
    let first = Upstream::start(move |question, _| match says.load(Ordering::SeqCst) {
        true => Act::Reply(vec![address(question, 0, 1)]),
        false => Act::Nothing,
    })
    .await;
    let second = Upstream::start(|question, _| Act::Reply(vec![address(question, 0, 2)])).await;
    let list = vec![first.text(), second.text()];
    let server = start(|spec| spec.upstream_dns = list).await;
    for number in 0..4 {
        let begun = Instant::now();
        let answer = server.node(&format!("n{number}.example.org."), A_TYPE).await;
        assert_eq!(data(&answer), ["192.0.2.2"]);
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "the next one was asked too late"
        );
    }
    until("the loss is reported", || {
        server
            .report
            .events()
            .iter()
            .any(|event| event.reason == "UpstreamLost")
    })
    .await;
    let begun = Instant::now();
    assert_eq!(
        data(&server.node("quick.example.org.", A_TYPE).await),
        ["192.0.2.2"]
    );
    assert!(
        begun.elapsed() < Duration::from_millis(200),
        "the lost one was waited for"
    );
    alive.store(true, Ordering::SeqCst);
    until("the return is reported", || {
        server
            .report
            .events()
            .iter()
            .any(|event| event.reason == "UpstreamRecovered")
    })
    .await;
    assert_eq!(
        data(&server.node("back.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_name_of_a_quick_upstream_is_waited_for_and_its_upstream_is_not_lost() {
    let upstream = Upstream::start(|question, _| {
        let answer = address(question, 60, 1);
        match question.queries[0]
            .name()
            .to_lowercase()
            .to_string()
            .starts_with("slow")
        {
            true => Act::Late(Duration::from_millis(1500), answer),
            false => Act::Reply(vec![answer]),
        }
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    for number in 0..8 {
        let quick = server.node(&format!("quick{number}.example.org."), A_TYPE).await;
        assert_eq!(data(&quick), ["192.0.2.1"]);
    }
    // Many at once: their answers come after several of them were asked again, and none is a guess.
    let vlan = server.vlan;
    let slow = (0..20).map(|number| {
        tokio::spawn(async move {
            ask(
                NODE,
                vlan,
                &question(&format!("slow{number}.example.org."), A_TYPE),
            )
            .await
        })
    });
    for answer in slow.collect::<Vec<_>>() {
        assert_eq!(data(&answer.await.expect("an answer")), ["192.0.2.1"]);
    }
    assert!(
        !server.has_event("UpstreamLost"),
        "it is slow for some names only"
    );
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 0, "nobody guessed");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_gone_fails_once_for_each_question() {
    let upstream = Upstream::start(|_, _| Act::Nothing).await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let lost = server.node("one.example.org.", A_TYPE).await;
    assert_eq!(lost.metadata.response_code, ResponseCode::ServFail);
    assert!(upstream.asked() >= 3, "a datagram may get lost");
    assert_eq!(server.metric("oooi_dns_upstream_failures_total"), 1.0);
    drop(upstream); // now the kernel says that nobody is there
    let refused = server.node("two.example.org.", A_TYPE).await;
    assert_eq!(refused.metadata.response_code, ResponseCode::ServFail);
    assert_eq!(server.metric("oooi_dns_upstream_failures_total"), 2.0);
    assert!(!server.has_event("UpstreamLost"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datagram_longer_than_we_take_is_asked_for_by_tcp() {
    let upstream = Upstream::start(|question, tcp| {
        let mut message = reply(question);
        for last in 0..if tcp { 2 } else { 100 } {
            let owner = question.queries[0].name().clone();
            message.add_answer(Record::from_rdata(owner, 60, RData::A(A::new(192, 0, 2, last))));
        }
        Act::Reply(vec![message])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    assert_eq!(server.node("big.example.org.", A_TYPE).await.answers.len(), 2);
    assert_eq!(upstream.asked(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_fails_is_passed_over_and_its_failure_only_the_last_resort() {
    let failing = |code: ResponseCode| {
        Upstream::start(move |question, _| {
            let mut message = reply(question);
            message.metadata.response_code = code;
            Act::Reply(vec![message])
        })
    };
    let (refusing, broken) = (
        failing(ResponseCode::Refused).await,
        failing(ResponseCode::ServFail).await,
    );
    let good = Upstream::start(|question, _| Act::Reply(vec![address(question, 60, 1)])).await;
    let list = vec![refusing.text(), broken.text(), good.text()];
    let server = start(|spec| spec.upstream_dns = list).await;
    assert_eq!(
        data(&server.node("www.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    let list = vec![refusing.text(), broken.text()];
    server.reconfigure(|spec| spec.upstream_dns = list);
    let mut last = ResponseCode::NoError;
    for number in 0..100 {
        last = server
            .node(&format!("w{number}.example.org."), A_TYPE)
            .await
            .metadata
            .response_code;
        if last != ResponseCode::NoError {
            break;
        }
    }
    assert_eq!(last, ResponseCode::Refused, "the first failure is passed on");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_question_in_flight_is_asked_once() {
    let upstream =
        Upstream::start(|question, _| Act::Late(Duration::from_millis(100), address(question, 60, 1))).await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let asks = (0..40).map(|_| {
        let vlan = server.vlan;
        tokio::spawn(async move { ask(NODE, vlan, &question("same.example.org.", A_TYPE)).await })
    });
    for answer in asks.collect::<Vec<_>>() {
        assert_eq!(data(&answer.await.expect("an answer")), ["192.0.2.1"]);
    }
    assert_eq!(upstream.asked(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_from_before_edns_is_asked_without() {
    let upstream = Upstream::start(|question, _| {
        if question.edns.is_none() {
            return Act::Reply(vec![address(question, 60, 1)]);
        }
        let mut message = reply(question);
        message.edns = None;
        message.metadata.response_code = ResponseCode::FormErr;
        Act::Reply(vec![message])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    assert_eq!(
        data(&server.node("www.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    assert_eq!(
        data(&server.node("ftp.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    assert_eq!(
        upstream.asked(),
        3,
        "the second question is asked without EDNS at once"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_one_question_with_and_without_edns_is_asked_with_it_further_on() {
    let upstream = Upstream::start(|question, _| {
        if question.queries[0].name().to_lowercase().to_string() != "odd.example.org." {
            assert!(question.edns.is_some(), "EDNS was left out");
            return Act::Reply(vec![address(question, 60, 1)]);
        }
        let mut message = reply(question);
        message.edns = None;
        message.metadata.response_code = ResponseCode::NotImp;
        Act::Reply(vec![message])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let odd = server.node("odd.example.org.", A_TYPE).await;
    assert_eq!(odd.metadata.response_code, ResponseCode::NotImp);
    assert_eq!(
        data(&server.node("www.example.org.", A_TYPE).await),
        ["192.0.2.1"]
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn do_and_ad_pass_through_and_unknown_options_do_not() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let upstream = Upstream::start(move |question, _| {
        let edns = question.edns.as_ref().expect("the server speaks EDNS");
        let note = (
            edns.flags().dnssec_ok,
            edns.options().as_ref().len(),
            edns.max_payload(),
        );
        notes.lock().expect("not poisoned").push(note);
        let mut message = address(question, 60, 1);
        message.metadata.authentic_data = true;
        Act::Reply(vec![message])
    })
    .await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let mut wire = question("www.example.org.", A_TYPE);
    let edns = wire.edns.as_mut().expect("it has EDNS");
    edns.set_dnssec_ok(true);
    edns.options_mut()
        .insert(hickory_proto::rr::rdata::opt::EdnsOption::Unknown(10, vec![1; 8]));
    edns.set_max_payload(4096);
    let answer = ask(NODE, server.vlan, &wire).await;
    assert!(answer.metadata.authentic_data && answer.edns.expect("EDNS").flags().dnssec_ok);
    let plain = server.node("www.example.org.", A_TYPE).await;
    assert!(!plain.metadata.authentic_data, "AD is for those who asked for it");
    assert_eq!(
        *seen.lock().expect("not poisoned"),
        [(true, 0, 1232), (false, 0, 1232)]
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn round_robin_spreads_and_fastest_prefers() {
    let counters: Vec<Arc<AtomicUsize>> = (0..2).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let mut upstreams = Vec::new();
    for (counter, pause) in counters.iter().zip([0, 30]) {
        let counter = Arc::clone(counter);
        let upstream = Upstream::start(move |question, _| {
            counter.fetch_add(1, Ordering::SeqCst);
            Act::Late(Duration::from_millis(pause), address(question, 0, 1))
        });
        upstreams.push(upstream.await);
    }
    let list: Vec<String> = upstreams.iter().map(Upstream::text).collect();
    for (policy, slow) in [
        (UpstreamPolicy::RoundRobin, 10..=10),
        (UpstreamPolicy::Fastest, 1..=3),
    ] {
        let list = list.clone();
        let server = start(|spec| {
            spec.upstream_dns = list;
            spec.upstream_policy = Some(policy);
        })
        .await;
        counters
            .iter()
            .for_each(|counter| counter.store(0, Ordering::SeqCst));
        for number in 0..20 {
            server
                .node(&format!("{policy:?}{number}.example.org."), A_TYPE)
                .await;
        }
        let asked = counters[1].load(Ordering::SeqCst);
        assert!(
            slow.contains(&asked),
            "{policy:?}: the slow one was asked {asked} times of 20"
        );
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_is_kept_for_the_minimum_of_its_soa() {
    let upstream = Upstream::start(|question, _| Act::Reply(vec![denial(question, 1)])).await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let ask = || server.node("no.example.org.", A_TYPE);
    let first = ask().await;
    assert_eq!(first.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(first.authorities[0].ttl, 1);
    let begun = Instant::now();
    while upstream.asked() < 2 {
        assert_eq!(ask().await.metadata.response_code, ResponseCode::NXDomain);
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "the denial is kept for longer than a second"
        );
    }
    assert!(
        server.metric("oooi_dns_cache_hits_total") > 0.0,
        "the denial was kept at all"
    );
    server.stop().await;
}
