//! An upstream that does what the test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::{A, SOA};
use hickory_proto::rr::{Name, RData, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinHandle;

/// What to do with one question.
pub enum Act {
    /// Send these messages, in this order.
    Reply(Vec<Message>),
    /// Send these octets.
    Raw(Vec<Vec<u8>>),
    /// Answer after a while.
    Late(Duration, Message),
    /// Say nothing.
    Nothing,
}

/// Whether a question came by TCP.
pub type Rule = dyn Fn(&Message, bool) -> Act + Send + Sync;

/// An upstream on loopback; it is gone when it is dropped.
pub struct Upstream {
    pub address: SocketAddr,
    pub datagrams: Arc<AtomicUsize>,
    pub connections: Arc<AtomicUsize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Upstream {
    pub async fn start(rule: impl Fn(&Message, bool) -> Act + Send + Sync + 'static) -> Upstream {
        Upstream::start_at("127.0.3.53:0".parse().expect("an address"), rule).await
    }

    pub async fn start_at(
        at: SocketAddr,
        rule: impl Fn(&Message, bool) -> Act + Send + Sync + 'static,
    ) -> Upstream {
        let rule: Arc<Rule> = Arc::new(rule);
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind(at).await.expect("an upstream's socket");
            let address = udp.local_addr().expect("its address");
            if let Ok(tcp) = TcpListener::bind(address).await {
                break (Arc::new(udp), tcp);
            }
        };
        let address = udp.local_addr().expect("its address");
        let (datagrams, connections) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let by_udp = tokio::spawn(serve_udp(udp, Arc::clone(&rule), Arc::clone(&datagrams)));
        let counter = Arc::clone(&connections);
        let by_tcp = tokio::spawn(async move {
            while let Ok((stream, _)) = tcp.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve_stream(stream, Arc::clone(&rule)));
            }
        });
        Upstream {
            address,
            datagrams,
            connections,
            tasks: vec![by_udp, by_tcp],
        }
    }

    /// Questions by UDP, without those that look for loops.
    pub fn asked(&self) -> usize {
        self.datagrams.load(Ordering::SeqCst)
    }

    pub fn text(&self) -> String {
        self.address.to_string()
    }
}

/// Is it one of the server's own questions that look for loops?
fn is_probe(question: &Message) -> bool {
    question
        .queries
        .first()
        .is_some_and(|query| query.name().to_string().to_lowercase().starts_with("loop-"))
}

async fn serve_udp(socket: Arc<UdpSocket>, rule: Arc<Rule>, counter: Arc<AtomicUsize>) {
    let mut buffer = vec![0; 4096];
    while let Ok((length, client)) = socket.recv_from(&mut buffer).await {
        let question = Message::from_vec(&buffer[..length]).expect("the server's questions can be read");
        if is_probe(&question) {
            let _ = socket.send_to(&written(&refusal(&question)), client).await;
            continue;
        }
        counter.fetch_add(1, Ordering::SeqCst);
        match rule(&question, false) {
            Act::Reply(messages) => {
                for message in messages {
                    let _ = socket.send_to(&written(&message), client).await;
                }
            }
            Act::Raw(messages) => {
                for message in messages {
                    let _ = socket.send_to(&message, client).await;
                }
            }
            Act::Late(pause, message) => {
                let socket = Arc::clone(&socket);
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    let _ = socket.send_to(&written(&message), client).await;
                });
            }
            Act::Nothing => {}
        }
    }
}

/// Answers questions on a stream until it ends.
pub async fn serve_stream<S>(mut stream: S, rule: Arc<Rule>)
where
    S: AsyncReadExt + AsyncWriteExt + Unpin,
{
    while let Ok(length) = stream.read_u16().await {
        let mut buffer = vec![0; usize::from(length)];
        if stream.read_exact(&mut buffer).await.is_err() {
            return;
        }
        let question = Message::from_vec(&buffer).expect("the server's questions can be read");
        let act = match is_probe(&question) {
            true => Act::Reply(vec![refusal(&question)]),
            false => rule(&question, true),
        };
        let replies = match act {
            Act::Reply(messages) => messages,
            Act::Late(pause, message) => {
                tokio::time::sleep(pause).await;
                vec![message]
            }
            Act::Raw(_) | Act::Nothing => vec![],
        };
        for reply in replies {
            let wire = written(&reply);
            let frame = [&(wire.len() as u16).to_be_bytes()[..], &wire].concat();
            if stream.write_all(&frame).await.is_err() {
                return;
            }
        }
    }
}

fn written(message: &Message) -> Vec<u8> {
    message.to_vec().expect("an answer can be written")
}

/// An answer to this question without records; EDNS is spoken back.
pub fn reply(question: &Message) -> Message {
    let mut message = Message::new(
        question.metadata.id,
        MessageType::Response,
        question.metadata.op_code,
    );
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.add_queries(question.queries.iter().cloned());
    message.edns = question.edns.clone();
    message
}

fn refusal(question: &Message) -> Message {
    let mut message = reply(question);
    message.metadata.response_code = hickory_proto::op::ResponseCode::Refused;
    message
}

/// An answer with this address.
pub fn address(question: &Message, ttl: u32, last: u8) -> Message {
    let mut message = reply(question);
    let owner = question.queries[0].name().clone();
    message.add_answer(Record::from_rdata(owner, ttl, RData::A(A::new(192, 0, 2, last))));
    message
}

/// The denial of a name, with an SOA of this minimum.
pub fn denial(question: &Message, minimum: u32) -> Message {
    let mut message = reply(question);
    message.metadata.response_code = hickory_proto::op::ResponseCode::NXDomain;
    let zone = question.queries[0].name().base_name();
    let soa = SOA::new(Name::root(), Name::root(), 1, 2, 3, 4, minimum);
    message.add_authority(Record::from_rdata(zone, 3600, RData::SOA(soa)));
    message
}
