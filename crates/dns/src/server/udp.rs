//! Datagrams of one address on one core.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::Serving;
use super::batch::{Batch, SIZE};
use super::handler::{Handler, Origin, Outcome};
use super::miss::{Miss, Outstanding};

/// After so many full batches other sockets get their turn.
const FULL_BATCHES: usize = 4;

/// Answers datagrams until the server stops. The state is looked at before each batch, so that a new one
/// is served from the next question on.
pub(super) async fn serve(
    socket: UdpSocket,
    asked: SocketAddr,
    handler: Rc<Handler>,
    mut serving: watch::Receiver<Option<Arc<Serving>>>,
) -> io::Result<()> {
    let socket = Rc::new(socket);
    let mut batch = Batch::new();
    let Some(mut state) = first_state(&mut serving).await else {
        return Ok(());
    };
    let mut full = 0;
    loop {
        socket.readable().await?;
        let received = socket.try_io(Interest::READABLE, || batch.receive(socket.as_fd()));
        let count = match received {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => {
                // What the kernel keeps of an earlier answer (ICMP), not of this socket.
                tracing::debug!(%error, %asked, "receiving failed");
                continue;
            }
        };
        if serving.has_changed().unwrap_or(false)
            && let Some(new) = serving.borrow_and_update().clone()
        {
            state = new;
        }
        let now = handler.shared.clock.seconds();
        for at in 0..count {
            let (message, client, out) = batch.question(at);
            let Some(client) = client else { continue };
            let origin = Origin {
                asked: asked.ip(),
                client,
                datagram: true,
            };
            let length = match handler.handle(&state, message, origin, out, now) {
                Outcome::Answer(length) => length,
                Outcome::Silence => continue,
                Outcome::Later(miss) => {
                    later(&handler, &socket, client, miss);
                    continue;
                }
                Outcome::AnswerAndRefresh(length, miss) => {
                    let outstanding = Outstanding::new(&handler);
                    let handler = Rc::clone(&handler);
                    tokio::task::spawn_local(async move {
                        let _outstanding = outstanding;
                        miss.refresh(&handler).await;
                    });
                    length
                }
            };
            if length > 0 {
                batch.answer(at, length);
            }
        }
        let mut waited = false;
        while let Err(error) = batch.send(socket.as_fd()) {
            waited = true;
            debug_assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            wait_writable(&socket).await?;
        }
        if count < SIZE && !waited {
            full = 0;
            // Fewer than asked for: the queue was empty, and what comes next wakes us (the poller is edge
            // triggered). Saying so here saves the call that would only find nothing. After a wait it would
            // be a lie: what came meanwhile has woken us already.
            let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = socket.try_io(Interest::READABLE, empty);
        } else {
            full += 1;
            if full >= FULL_BATCHES {
                full = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The state as soon as there is one; nothing where none will come.
pub(super) async fn first_state(serving: &mut watch::Receiver<Option<Arc<Serving>>>) -> Option<Arc<Serving>> {
    serving.wait_for(Option::is_some).await.ok()?.clone()
}

async fn wait_writable(socket: &UdpSocket) -> io::Result<()> {
    let full = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    let _ = socket.try_io(Interest::WRITABLE, full);
    socket.writable().await
}

fn later(handler: &Rc<Handler>, socket: &Rc<UdpSocket>, client: SocketAddr, miss: Miss) {
    let outstanding = Outstanding::new(handler);
    let (handler, socket) = (Rc::clone(handler), Rc::clone(socket));
    tokio::task::spawn_local(async move {
        let _outstanding = outstanding;
        miss.resolve(&handler, |answer| {
            // A full socket loses an answer as the network may; the client asks again.
            let _ = SockRef::from(&*socket).send_to(answer, &client.into());
        })
        .await;
    });
}
