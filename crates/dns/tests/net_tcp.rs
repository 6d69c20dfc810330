//! TCP: many questions on one connection, answers in any order, limits.

#![allow(clippy::expect_used, reason = "helpers of tests fail by panicking")]

mod support;

use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use oooi_dns::Options;
use support::upstream::{Act, Upstream, address};
use support::{NODE, data, question, start, start_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

async fn connect(server: &support::Running) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((NODE, 0).into()).expect("a client's address");
    socket.connect(server.vlan).await.expect("a connection")
}

fn frame(message: &Message) -> Vec<u8> {
    let wire = message.to_vec().expect("a question can be written");
    [&(wire.len() as u16).to_be_bytes()[..], &wire].concat()
}

async fn read(stream: &mut TcpStream) -> Option<Message> {
    let length = stream.read_u16().await.ok()?;
    let mut wire = vec![0; usize::from(length)];
    stream.read_exact(&mut wire).await.ok()?;
    Some(Message::from_vec(&wire).expect("an answer can be read"))
}

#[tokio::test(flavor = "multi_thread")]
async fn many_questions_in_one_write_are_all_answered() {
    let server = start(|_| {}).await;
    let mut stream = connect(&server).await;
    let questions: Vec<Message> = (0..200)
        .map(|number| {
            let mut message = question(&format!("n{number}.apps.hub.example.com."), RecordType::A);
            message.metadata.id = number;
            message
        })
        .collect();
    let octets: Vec<u8> = questions.iter().flat_map(frame).collect();
    // In odd pieces, so that messages begin and end anywhere in them.
    for piece in octets.chunks(37) {
        stream.write_all(piece).await.expect("questions are taken");
    }
    let mut ids = Vec::new();
    for _ in 0..200 {
        let answer = read(&mut stream).await.expect("an answer");
        assert_eq!(data(&answer), ["127.0.1.4"]);
        ids.push(answer.metadata.id);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..200).collect::<Vec<u16>>());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quick_answer_overtakes_a_slow_one_and_a_half_closed_client_gets_both() {
    let upstream =
        Upstream::start(|question, _| Act::Late(Duration::from_millis(300), address(question, 60, 1))).await;
    let text = upstream.text();
    let server = start(|spec| spec.upstream_dns = vec![text]).await;
    let mut stream = connect(&server).await;
    let slow = question("slow.example.org.", RecordType::A);
    let quick = question("api.hub.example.com.", RecordType::A);
    let both = [frame(&slow), frame(&quick)].concat();
    stream.write_all(&both).await.expect("questions are taken");
    stream.shutdown().await.expect("the client says no more");
    let first = read(&mut stream).await.expect("an answer");
    assert_eq!(first.metadata.id, quick.metadata.id);
    let second = read(&mut stream).await.expect("an answer");
    assert_eq!(
        (second.metadata.id, data(&second)),
        (slow.metadata.id, vec!["192.0.2.1".to_owned()])
    );
    assert!(read(&mut stream).await.is_none(), "then the connection ends");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_closed_and_too_many_are_turned_away() {
    let options = Options {
        connections: 16,
        ..Options::default()
    };
    let server = start_with(options, |_| {}).await;
    let begun = Instant::now();
    let mut silent = connect(&server).await;
    let mut slow = connect(&server).await;
    let trickle = tokio::spawn(async move {
        // A question that comes an octet a second never ends in time.
        let question = frame(&question("api.hub.example.com.", RecordType::A));
        for octet in &question {
            if slow.write_all(&[*octet]).await.is_err() {
                return true;
            }
            if let Ok(end) = tokio::time::timeout(Duration::from_secs(1), slow.read(&mut [0; 1])).await {
                return end.unwrap_or(0) == 0;
            }
        }
        false
    });
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..20 {
        let mut stream = connect(&server).await;
        let asked = question("api.hub.example.com.", RecordType::A);
        let written = stream.write_all(&frame(&asked)).await;
        match read(&mut stream).await.filter(|_| written.is_ok()) {
            Some(_) => held.push(stream),
            None => refused += 1,
        }
    }
    assert!(
        refused >= 8,
        "only {refused} of 12 were turned away, {} are held",
        held.len()
    );
    assert!(server.metric("oooi_dns_tcp_connections_refused_total") >= f64::from(refused));
    assert_eq!(silent.read(&mut [0; 1]).await.expect("a proper end"), 0);
    let waited = begun.elapsed();
    assert!(
        (Duration::from_secs(9)..Duration::from_secs(13)).contains(&waited),
        "closed after {waited:?}"
    );
    assert!(
        trickle.await.expect("the slow client ends"),
        "a connection that trickles was kept"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_longer_than_any_ends_the_connection_before_it_is_sent() {
    let server = start(|_| {}).await;
    let mut stream = connect(&server).await;
    let asked = question("api.hub.example.com.", RecordType::A);
    stream
        .write_all(&frame(&asked))
        .await
        .expect("a question is taken");
    assert!(read(&mut stream).await.is_some());
    let begun = Instant::now();
    stream
        .write_all(&[0xff, 0xff, 0])
        .await
        .expect("octets are taken");
    assert!(read(&mut stream).await.is_none());
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "it was kept for the idle time"
    );
    server.stop().await;
}
