//! TCP of one address on one core (RFC 7766, RFC 9210).
//!
//! Questions on a connection are answered as their answers come, in any order. A connection that says
//! nothing is closed, as is one that does not read its answers; a client that has many questions in flight
//! is not read further until some are answered.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Serving;
use super::handler::{Handler, Origin, Outcome};
use super::miss::{Outstanding, with_scratch};
use super::udp::first_state;
use crate::wire::read_u16;

/// A connection on which nothing is asked and nothing awaited is closed after this time.
const IDLE: Duration = Duration::from_secs(10);
/// A client that does not take its answers is given up after this time.
const WRITE: Duration = Duration::from_secs(5);
/// The longest question that is taken. It bounds what all connections together may hold.
const LONGEST: usize = 4096;
/// Questions in flight on one connection.
const PIPELINED: usize = 64;
/// When connections cannot be taken at all (no file descriptors), wait so long before the next try.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes connections until the server stops. `room` counts the connections that this core may hold.
pub(super) async fn serve(
    listener: TcpListener,
    asked: SocketAddr,
    handler: Rc<Handler>,
    room: Rc<Room>,
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
        let Some(place) = room.take(client.ip()) else {
            handler.counters().connections_refused.bump();
            continue; // dropping the stream closes it
        };
        handler.counters().connections.bump();
        let (handler, serving) = (Rc::clone(&handler), serving.clone());
        tokio::task::spawn_local(async move {
            let _place = place;
            if let Err(error) = connection(stream, asked.ip(), client, handler, serving).await {
                tracing::debug!(%error, %client, "a connection ended");
            }
        });
    }
}

/// The connections of one core: so many in all, a quarter of them for one client.
pub(super) struct Room {
    most: usize,
    taken: RefCell<HashMap<IpAddr, usize>>,
}

impl Room {
    pub(super) fn new(most: usize) -> Rc<Room> {
        Rc::new(Room {
            most,
            taken: RefCell::default(),
        })
    }

    fn take(self: &Rc<Self>, client: IpAddr) -> Option<Place> {
        let mut taken = self.taken.borrow_mut();
        let own = taken.get(&client).copied().unwrap_or(0);
        if taken.values().sum::<usize>() >= self.most || own >= self.most.div_ceil(4) {
            return None;
        }
        taken.insert(client, own + 1);
        Some(Place {
            room: Rc::clone(self),
            client,
        })
    }
}

/// A place among the connections of this core.
struct Place {
    room: Rc<Room>,
    client: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.taken.borrow_mut();
        if let Some(own) = taken.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
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

/// Reads questions until the client ends or falls silent. A message must be whole within the idle time:
/// one that comes octet by octet does not keep the connection.
async fn read(
    mut reader: OwnedReadHalf,
    origin: Origin,
    handler: Rc<Handler>,
    serving: watch::Receiver<Option<Arc<Serving>>>,
    answers: mpsc::UnboundedSender<Frame>,
) -> io::Result<()> {
    let in_flight = Arc::new(Semaphore::new(PIPELINED));
    let mut received: Vec<u8> = Vec::with_capacity(1024);
    let mut deadline = Instant::now() + IDLE;
    loop {
        while let Some(message) = next_message(&received)? {
            let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else {
                return Ok(());
            };
            let Some(state) = serving.borrow().clone() else {
                return Ok(());
            };
            let now = handler.shared.clock.seconds();
            let (outcome, frame) = with_scratch(|out| {
                let outcome = handler.handle(&state, message, origin, out, now);
                let length = match outcome {
                    Outcome::Answer(length) | Outcome::AnswerAndRefresh(length, _) => length,
                    Outcome::Silence | Outcome::Later(_) => 0,
                };
                (outcome, frame_of(&out[..length]))
            });
            let used = 2 + message.len();
            received.drain(..used);
            deadline = Instant::now() + IDLE;
            match outcome {
                Outcome::Silence => {}
                Outcome::Answer(_) => queue(&answers, frame, permit),
                Outcome::AnswerAndRefresh(_, miss) => {
                    queue(&answers, frame, permit);
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
                        miss.resolve(&handler, |answer| queue(&answers, frame_of(answer), permit))
                            .await;
                    });
                }
            }
        }
        match timeout_at(deadline, reader.read_buf(&mut received)).await {
            Ok(Ok(0)) => break,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) if received.is_empty() && in_flight.available_permits() < PIPELINED => {
                deadline = Instant::now() + IDLE; // it waits for answers
            }
            Err(_) => break,
        }
    }
    // The client has said its last word; what it waits for still goes out.
    let _all = timeout(WRITE, in_flight.acquire_many(PIPELINED as u32)).await;
    Ok(())
}

/// The first whole message that was received; an error where it is longer than any question.
fn next_message(received: &[u8]) -> io::Result<Option<&[u8]>> {
    let Some(length) = read_u16(received, 0).map(usize::from) else {
        return Ok(None);
    };
    if length > LONGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a question of {length} octets is too long"),
        ));
    }
    Ok(received.get(2..2 + length))
}

/// An answer on its way, and the place in flight that it gives back once it is written.
type Frame = (Vec<u8>, OwnedSemaphorePermit);

/// An answer behind its length; nothing where there is none.
fn frame_of(answer: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(answer.len() + 2);
    if !answer.is_empty() {
        frame.extend((answer.len() as u16).to_be_bytes());
        frame.extend(answer);
    }
    frame
}

fn queue(answers: &mpsc::UnboundedSender<Frame>, frame: Vec<u8>, permit: OwnedSemaphorePermit) {
    if !frame.is_empty() {
        let _ = answers.send((frame, permit)); // the connection may have ended meanwhile
    }
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
