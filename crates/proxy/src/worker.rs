//! One thread of the native engine: a single-threaded runtime with its own listening sockets and connections.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use socket2::Socket;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::Transport;
use crate::metrics::Reason;
use crate::shared::Shared;
use crate::snapshot::ListenerKey;
use crate::{accept, idle, udp};

/// What the server tells a thread.
pub(crate) enum Command {
    /// Listen on this socket, which is bound.
    Listen(SocketAddr, ListenerKey, Socket),
    /// Stop listening there; connections go on.
    Stop(SocketAddr, ListenerKey),
    /// Stop listening everywhere; end when no connection is left, or at this moment.
    Drain(Instant),
}

/// A running thread.
pub(crate) struct Worker {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) ended: oneshot::Receiver<()>,
}

impl Worker {
    /// Starts a thread.
    pub(crate) fn start(index: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let (commands, receiver) = mpsc::unbounded_channel();
        let (end, ended) = oneshot::channel();
        thread::Builder::new()
            .name(format!("proxy-{index}"))
            .spawn(move || {
                runtime.block_on(work(shared, receiver));
                drop(runtime); // connections that are left are closed here
                let _ = end.send(());
            })?;
        Ok(Self { commands, ended })
    }
}

type Listening = HashMap<(SocketAddr, ListenerKey), (oneshot::Sender<()>, JoinHandle<()>)>;

async fn work(shared: Arc<Shared>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let sweeper = tokio::spawn(sweep(shared.clone()));
    let mut listening = Listening::new();
    let deadline = loop {
        match commands.recv().await {
            Some(Command::Listen(address, key, socket)) => match listen(&shared, key, socket) {
                Ok(task) => _ = listening.insert((address, key), task),
                Err(error) => tracing::error!(%address, %key, %error, "cannot listen on a bound socket"),
            },
            Some(Command::Stop(address, key)) => stop(listening.remove(&(address, key)).into_iter()).await,
            Some(Command::Drain(deadline)) => break deadline,
            None => break Instant::now(),
        }
    };
    stop(listening.drain().map(|(_, task)| task)).await;
    let _ = timeout_at(deadline, async {
        while idle::count() > 0 {
            sleep(Duration::from_millis(10)).await; // only while draining
        }
    })
    .await;
    sweeper.abort();
}

fn listen(
    shared: &Arc<Shared>,
    key: ListenerKey,
    socket: Socket,
) -> io::Result<(oneshot::Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = oneshot::channel();
    let task = match key.transport {
        Transport::Tcp => {
            let listener = TcpListener::from_std(socket.into())?;
            tokio::spawn(accept::run(listener, key, shared.clone(), stopped))
        }
        Transport::Udp => {
            let socket = UdpSocket::from_std(socket.into())?;
            tokio::spawn(udp::run(socket, key, shared.clone(), stopped))
        }
    };
    Ok((stop, task))
}

async fn stop(tasks: impl Iterator<Item = (oneshot::Sender<()>, JoinHandle<()>)>) {
    for (stop, task) in tasks {
        let _ = stop.send(());
        let _ = task.await;
    }
}

/// Ends silent connections, now and then.
async fn sweep(shared: Arc<Shared>) {
    let mut last = Instant::now();
    let mut tables = shared.table.subscribe();
    loop {
        let limit = tables.borrow_and_update().idle_timeout;
        tokio::select! {
            () = sleep(idle::period(limit)) => {}
            changed = tables.changed() => if changed.is_err() { return },
        }
        let now = Instant::now();
        for _ in 0..idle::sweep(now - last, limit) {
            shared.metrics.reset(Reason::Idle);
        }
        last = now;
    }
}
