//! Accepts the connections of one listening socket within the limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::connection::Connection;
use crate::idle::{self, Place};
use crate::metrics::Reason;
use crate::shared::{Shared, Ticket, is_exhaustion};
use crate::snapshot::ListenerKey;

/// How long to wait before asking again whether a file descriptor is free.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts until told to stop; then takes what the kernel has already accepted, so that it is not reset.
pub(crate) async fn run(
    listener: TcpListener,
    key: ListenerKey,
    shared: Arc<Shared>,
    mut stop: oneshot::Receiver<()>,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        tokio::select! {
            () = admit(accepted, key, &shared) => {}
            _ = &mut stop => break,
        }
    }
    while let Some(Ok((client, peer))) = accept_now(&listener) {
        if let Ok(slot) = shared.slots.try_acquire() {
            slot.forget();
            serve(client, peer, key, &shared);
        }
    }
}

fn accept_now(listener: &TcpListener) -> Option<io::Result<(TcpStream, SocketAddr)>> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match listener.poll_accept(&mut context) {
        std::task::Poll::Ready(accepted) => Some(accepted),
        std::task::Poll::Pending => None,
    }
}

async fn admit(accepted: io::Result<(TcpStream, SocketAddr)>, key: ListenerKey, shared: &Arc<Shared>) {
    let (client, peer) = match accepted {
        Ok(accepted) => accepted,
        Err(error) if is_exhaustion(&error) => {
            shared.ran_out(&error);
            return pause(shared, sleep(PAUSE)).await;
        }
        // The client was gone before it was accepted, or the network went: nothing to do for it.
        Err(error) => return tracing::debug!(port = key.port, %error, "accept"),
    };
    shared.recovered();
    loop {
        let taken = shared.accepts.lock().take(Instant::now());
        match taken {
            Ok(()) => break,
            Err(time) => pause(shared, sleep(time)).await,
        }
    }
    // At the limit this one connection waits here and the others in the kernel's queue.
    let slot = match shared.slots.try_acquire() {
        Ok(slot) => Ok(slot),
        Err(_) => pause(shared, shared.slots.acquire()).await,
    };
    if let Ok(slot) = slot {
        slot.forget(); // the ticket gives it back
        serve(client, peer, key, shared);
    }
}

/// Waits, visibly.
async fn pause<T>(shared: &Shared, wait: impl Future<Output = T>) -> T {
    struct Paused<'a>(&'a Shared);
    impl Drop for Paused<'_> {
        fn drop(&mut self) {
            self.0.metrics.accept_paused.dec();
        }
    }
    shared.metrics.accept_paused.inc();
    let _paused = Paused(shared);
    wait.await
}

fn serve(client: TcpStream, peer: SocketAddr, key: ListenerKey, shared: &Arc<Shared>) {
    let Some(ticket) = Ticket::issue(shared, peer.ip()) else {
        let _ = client.set_zero_linger();
        shared.metrics.reset(Reason::ClientLimit);
        if shared.may_log() {
            tracing::warn!(client = %peer, port = key.port, "reset: this client has too many connections");
        }
        return;
    };
    let place = Place::take();
    let index = place.index();
    let task = tokio::spawn(Connection::new(client, peer, key, ticket, place));
    idle::name_task(index, task.abort_handle());
}
