//! TCP of one address on one core (RFC 7766, RFC 9210).
//!
//! Questions on a connection are answered as their answers come, in any order. A connection that says
//! nothing is closed, as is one that does not read its answers; a client that has many questions in flight
//! is not read further until some are answered.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

use super::Serving;
use super::handler::{Handler, Origin, Outcome};
use super::miss::Outstanding;
use super::udp::first_state;
use crate::wire::{TCP_LIMIT, read_u16};

/// A connection on which nothing is asked and nothing awaited is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
/// A client that does not take its answers is given up after this time.
const WRITE: Duration = Duration::from_secs(5);
/// Questions in flight on one connection.
const PIPELINED: usize = 64;
/// When connections cannot be taken at all (no file descriptors), wait so long before the next try.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes connections until the server stops. `room` counts down the connections that this core may hold.
pub(super) async fn serve(
    listener: TcpListener,
    asked: SocketAddr,
    handler: Rc<Handler>,
    room: Rc<Cell<usize>>,
    mut serving: watch::Receiver<Option<Arc<Serving>>>,
) {
    if first_state(&mut serving).await.is_none() {
        return;
    }
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, %asked, "a connection could not be taken");
                sleep(PAUSE).await;
                continue;
            }
        };
        if room.get() == 0 {
            handler.counters().connections_refused.bump();
            continue; // dropping the stream closes it
        }
        handler.counters().connections.bump();
        let held = Room::take(&room);
        let (handler, serving) = (Rc::clone(&handler), serving.clone());
        tokio::task::spawn_local(async move {
            let _held = held;
            if let Err(error) = connection(stream, asked.ip(), client, handler, serving).await {
                tracing::debug!(%error, %client, "a connection ended");
            }
        });
    }
}

/// A place among the connections of this core.
struct Room(Rc<Cell<usize>>);

impl Room {
    fn take(room: &Rc<Cell<usize>>) -> Room {
        room.set(room.get().saturating_sub(1));
        Room(Rc::clone(room))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

async fn connection(
    stream: TcpStream,
    asked: IpAddr,
    client: SocketAddr,
    handler: Rc<Handler>,
    serving: watch::Receiver<Option<Arc<Serving>>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let (answers, queue) = mpsc::unbounded_channel();
    let origin = Origin {
        asked,
        client,
        datagram: false,
    };
    tokio::select! {
        ended = read(reader, origin, handler, serving, answers) => ended,
        ended = write(writer, queue) => ended,
    }
}

/// Reads questions until the client ends or falls silent.
async fn read(
    mut reader: OwnedReadHalf,
    origin: Origin,
    handler: Rc<Handler>,
    serving: watch::Receiver<Option<Arc<Serving>>>,
    answers: mpsc::UnboundedSender<Frame>,
) -> io::Result<()> {
    let in_flight = Arc::new(Semaphore::new(PIPELINED));
    let mut received: Vec<u8> = Vec::with_capacity(1024);
    let mut out = Vec::new();
    loop {
        while let Some(message) = next_message(&received) {
            let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else {
                return Ok(());
            };
            let Some(state) = serving.borrow().clone() else {
                return Ok(());
            };
            out.resize(TCP_LIMIT, 0);
            let now = handler.shared.clock.seconds();
            let outcome = handler.handle(&state, message, origin, &mut out, now);
            let used = 2 + message.len();
            match outcome {
                Outcome::Answer(length) => queue(&answers, &out[..length], permit),
                Outcome::Silence => {}
                Outcome::AnswerAndRefresh(length, miss) => {
                    queue(&answers, &out[..length], permit);
                    let (handler, outstanding) = (Rc::clone(&handler), Outstanding::new(&handler));
                    tokio::task::spawn_local(async move {
                        let _outstanding = outstanding;
                        miss.refresh(&handler).await;
                    });
                }
                Outcome::Later(miss) => {
                    let (handler, outstanding) = (Rc::clone(&handler), Outstanding::new(&handler));
                    let answers = answers.clone();
                    tokio::task::spawn_local(async move {
                        let _outstanding = outstanding;
                        miss.resolve(&handler, |answer| queue(&answers, answer, permit))
                            .await;
                    });
                }
            }
            received.drain(..used);
        }
        out = Vec::new(); // an idle connection holds no buffer
        match timeout(IDLE, reader.read_buf(&mut received)).await {
            Ok(Ok(0)) => break,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) if in_flight.available_permits() < PIPELINED => {}
            Err(_) => break,
        }
    }
    // The client has said its last word; what it waits for still goes out.
    let _all = timeout(WRITE, in_flight.acquire_many(PIPELINED as u32)).await;
    Ok(())
}

/// The first whole message that was received.
fn next_message(received: &[u8]) -> Option<&[u8]> {
    let length = usize::from(read_u16(received, 0)?);
    received.get(2..2 + length)
}

/// An answer on its way, and the place in flight that it gives back once it is written.
type Frame = (Vec<u8>, tokio::sync::OwnedSemaphorePermit);

fn queue(answers: &mpsc::UnboundedSender<Frame>, answer: &[u8], permit: tokio::sync::OwnedSemaphorePermit) {
    if answer.is_empty() {
        return;
    }
    let mut frame = Vec::with_capacity(answer.len() + 2);
    frame.extend((answer.len() as u16).to_be_bytes());
    frame.extend(answer);
    let _ = answers.send((frame, permit)); // the connection may have ended meanwhile
}

/// Writes answers as they come, several at once where they wait.
async fn write(mut writer: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Frame>) -> io::Result<()> {
    while let Some((mut frames, permit)) = queue.recv().await {
        let mut permits = vec![permit];
        while let Ok((frame, permit)) = queue.try_recv() {
            frames.extend(frame);
            permits.push(permit);
        }
        timeout(WRITE, writer.write_all(&frames)).await??;
    }
    Ok(())
}
