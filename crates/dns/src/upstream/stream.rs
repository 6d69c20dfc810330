//! Connections to an upstream: TCP for answers too long for UDP, TLS where the upstream is `tls://`.
//!
//! One connection an upstream and core carries all questions at once, answers in any order (RFC 7766). It
//! is opened by the first question, closed when it has been idle or answers nothing any more, and whoever
//! still waits when it breaks learns so at once.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;

use super::pending::{Pending, Trouble};
use super::{Target, tls};

/// For how long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(2);
/// For how long a write may wait for the upstream.
const WRITE: Duration = Duration::from_secs(2);
/// A connection on which questions wait and nothing comes is dead after this time, and so is one whose
/// octets nobody takes: a firewall that has forgotten it drops them without a word.
const STALLED: Duration = Duration::from_secs(5);
/// A connection without questions is closed after this time.
const IDLE: Duration = Duration::from_secs(10);

/// A connection, open or coming up.
pub(super) struct Connection {
    outgoing: UnboundedSender<Vec<u8>>,
    pub(super) pending: Rc<Pending>,
}

impl Connection {
    /// Opens a connection in the background.
    pub(super) fn open(target: Target, client: Option<Arc<ClientConfig>>) -> Connection {
        let (outgoing, questions) = unbounded_channel();
        let pending = Rc::new(Pending::default());
        let waiting = Rc::clone(&pending);
        tokio::task::spawn_local(async move {
            let mut questions = questions;
            let ended = run(&target, client, &mut questions, &waiting).await;
            if let Err(error) = ended {
                tracing::debug!(upstream = %target.address(), %error, "connection to the upstream ended");
            }
            drop(questions); // whoever comes now opens a new connection
            waiting.fail_all(Trouble::Unreachable);
        });
        Connection { outgoing, pending }
    }

    /// Can it carry another question?
    pub(super) fn is_open(&self) -> bool {
        !self.outgoing.is_closed()
    }

    /// Queues a question.
    pub(super) fn send(&self, message: Vec<u8>) -> Result<(), Trouble> {
        self.outgoing.send(message).map_err(|_| Trouble::Unreachable)
    }
}

async fn run(
    target: &Target,
    client: Option<Arc<ClientConfig>>,
    questions: &mut UnboundedReceiver<Vec<u8>>,
    pending: &Pending,
) -> io::Result<()> {
    match target {
        Target::Plain(address) => {
            let stream = timeout(CONNECT, connect(*address)).await??;
            carry(stream, questions, pending).await
        }
        Target::Tls(address, name) => {
            let client = client.ok_or_else(|| io::Error::other("no certificate authority is known"))?;
            let name = tls::server_name(*address, name.as_deref())
                .ok_or_else(|| io::Error::other("the name is no name for a certificate"))?;
            let handshake = async {
                let stream = connect(*address).await?;
                TlsConnector::from(client).connect(name, stream).await
            };
            carry(timeout(CONNECT, handshake).await??, questions, pending).await
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_user_timeout(Some(STALLED))?;
    Ok(stream)
}

async fn carry<S>(stream: S, questions: &mut UnboundedReceiver<Vec<u8>>, pending: &Pending) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut received = Vec::with_capacity(4096);
    let mut asked: Option<Instant> = None; // the first question since something came
    loop {
        let stalled = asked.unwrap_or_else(Instant::now) + STALLED;
        tokio::select! {
            question = questions.recv() => {
                let Some(message) = question else { return Ok(()) };
                let mut frames = Vec::with_capacity(message.len() + 2);
                append_frame(&mut frames, &message);
                while let Ok(message) = questions.try_recv() {
                    append_frame(&mut frames, &message);
                }
                timeout(WRITE, async {
                    writer.write_all(&frames).await?;
                    writer.flush().await
                })
                .await??;
                asked.get_or_insert_with(Instant::now);
            }
            read = reader.read_buf(&mut received) => {
                if read? == 0 {
                    return Ok(());
                }
                asked = None;
                deliver_frames(&mut received, pending);
            }
            () = sleep_until(stalled), if asked.is_some() => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the upstream answers nothing any more"));
            }
            () = tokio::time::sleep(IDLE) => {
                if pending.is_empty() {
                    return Ok(());
                }
            }
        }
    }
}

fn append_frame(frames: &mut Vec<u8>, message: &[u8]) {
    frames.extend((message.len() as u16).to_be_bytes());
    frames.extend(message);
}

/// Delivers every whole message and keeps the rest.
fn deliver_frames(received: &mut Vec<u8>, pending: &Pending) {
    let mut at = 0;
    while let Some(length) = crate::wire::read_u16(received, at) {
        let end = at + 2 + usize::from(length);
        let Some(message) = received.get(at + 2..end) else {
            break;
        };
        pending.deliver(message);
        at = end;
    }
    received.drain(..at);
}
