//! One thread of the native engine: its own listening sockets and connections, and one epoll for all of them.
//!
//! A runtime for tasks would do the same with more than ten times the memory for an idle connection. The loop is:
//! wait; for each event advance its connection, or accept one within the limits; take turns with those that have
//! more to do; look at deadlines if there are any. With nothing to do it sleeps until the next sweep for silent
//! connections.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::Socket;
use tokio::sync::{SemaphorePermit, oneshot};

use crate::connection::{Connection, Step, Thread, Tokens, reset};
use crate::metrics::Reason;
use crate::relay::BUFFER;
use crate::shared::{Shared, is_exhaustion};
use crate::slab::Slab;
use crate::snapshot::ListenerKey;

/// How often deadlines are looked at while a connection has one.
const TICK: Duration = Duration::from_millis(100);
/// How long a listener that met a limit waits before it asks again.
const PAUSE: Duration = Duration::from_millis(20);
const EVENTS: usize = 256;
/// Up to so many events are few.
const FEW: usize = 32;
/// How many connections of a listener are accepted in a row.
const ACCEPTS: usize = 64;

const WAKE: u64 = u64::MAX;
const LISTENER: u64 = 1 << 63;

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
    commands: mpsc::Sender<Command>,
    wake: Arc<OwnedFd>,
    pub(crate) ended: oneshot::Receiver<()>,
}

impl Worker {
    /// Starts a thread.
    pub(crate) fn start(index: usize, shared: Arc<Shared>) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let (commands, receiver) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let mut work = Work {
            epoll,
            shared,
            wake: wake.clone(),
            commands: receiver,
            listeners: HashMap::new(),
            next_listener: 0,
            connections: Slab::default(),
            setups: 0,
            again: Vec::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            drain_until: None,
            last_tick: Instant::now(),
            last_sweep: Instant::now(),
        };
        thread::Builder::new()
            .name(format!("proxy-{index}"))
            .spawn(move || {
                work.run();
                drop(work); // connections that are left are closed here
                let _ = end.send(());
            })?;
        Ok(Self {
            commands,
            wake,
            ended,
        })
    }

    /// Tells the thread something. A thread that has ended needs no telling.
    pub(crate) fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

struct Listening {
    address: SocketAddr,
    key: ListenerKey,
    socket: Socket,
    paused_until: Option<Instant>,
}

struct Work {
    epoll: OwnedFd,
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    commands: mpsc::Receiver<Command>,
    listeners: HashMap<u64, Listening>,
    next_listener: u64,
    connections: Slab<Connection>,
    /// Connections that have a deadline.
    setups: usize,
    /// Connections that have more to do.
    again: Vec<usize>,
    buffer: Box<[u8]>,
    drain_until: Option<Instant>,
    last_tick: Instant,
    last_sweep: Instant,
}

impl Work {
    fn run(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let timeout = self.timeout(Instant::now());
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return tracing::error!(%error, "a thread of the gateway ends: epoll failed"),
            }
            // A thread with much to do comes by its listeners seldom. One with little comes by at once, and is spared the
            // call that finds nobody.
            let at_most = match events.len() > FEW || !self.again.is_empty() {
                true => ACCEPTS,
                false => 1,
            };
            for event in &events {
                let (token, flags) = (event.data.u64(), event.flags);
                match token {
                    WAKE => self.obey(),
                    _ if token & LISTENER != 0 => {
                        let _ = (0..at_most).find(|_| !self.accept(token));
                    }
                    _ => self.handle(token, flags),
                }
            }
            for index in std::mem::take(&mut self.again) {
                self.advance(index);
            }
            let now = Instant::now();
            self.resume_due(now);
            self.look_at_deadlines(now);
            self.connections.recycle();
            if self
                .drain_until
                .is_some_and(|until| until <= now || self.connections.is_empty())
            {
                return;
            }
        }
    }

    /// How long nothing has to be done.
    fn timeout(&self, now: Instant) -> Timespec {
        let mut time = sweep_period(self.shared.idle_timeout());
        if self.setups > 0 || self.drain_until.is_some() {
            time = time.min(TICK);
        }
        let paused = self.listeners.values().filter_map(|l| l.paused_until);
        if let Some(until) = paused.min() {
            time = time.min(until.saturating_duration_since(now));
        }
        if !self.again.is_empty() {
            time = Duration::ZERO;
        }
        // Rounded up: a wait that ends a little early would be followed by many that last nothing.
        let millis = i64::try_from(time.as_micros().div_ceil(1000)).unwrap_or(i64::MAX);
        Timespec {
            tv_sec: millis / 1000,
            tv_nsec: millis % 1000 * 1_000_000,
        }
    }

    fn obey(&mut self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Listen(address, key, socket) => self.listen(address, key, socket),
                Command::Stop(address, key) => {
                    self.stop(|listening| listening.address == address && listening.key == key);
                }
                Command::Drain(until) => {
                    self.drain_until = Some(until);
                    self.stop(|_| true);
                }
            }
        }
    }

    fn listen(&mut self, address: SocketAddr, key: ListenerKey, socket: Socket) {
        let token = LISTENER | self.next_listener;
        self.next_listener += 1;
        // Reported as long as a connection waits: to ask until there is none would cost one call more for most.
        if let Err(error) = epoll::add(&self.epoll, &socket, EventData::new_u64(token), EventFlags::IN) {
            return tracing::error!(%address, %error, "cannot watch a listening socket");
        }
        let listening = Listening {
            address,
            key,
            socket,
            paused_until: None,
        };
        self.listeners.insert(token, listening);
    }

    /// Closes listeners, after taking what the kernel has already accepted: it would be reset.
    fn stop(&mut self, which: impl Fn(&Listening) -> bool) {
        let stopped: Vec<u64> = self
            .listeners
            .iter()
            .filter(|(_, l)| which(l))
            .map(|(token, _)| *token)
            .collect();
        for token in stopped {
            let Some(listening) = self.listeners.remove(&token) else {
                continue;
            };
            if listening.paused_until.is_some() {
                self.shared.metrics.accept_paused.dec();
            }
            let shared = self.shared.clone();
            while let Ok(slot) = shared.slots.try_acquire() {
                let Ok(accepted) = accept(&listening.socket) else {
                    break;
                };
                slot.forget();
                self.serve(accepted, listening.key);
            }
        }
    }

    /// Accepts one connection, unless a limit is met. False if there was none to be had.
    fn accept(&mut self, token: u64) -> bool {
        let now = Instant::now();
        let Some(listening) = self.listeners.get(&token) else {
            return false;
        };
        let taken = self.shared.accepts.lock().take(now);
        if let Err(time) = taken {
            self.pause(token, now + time);
            return false;
        }
        let slot = self.shared.slots.try_acquire().map(SemaphorePermit::forget); // until the connection ends
        if slot.is_err() {
            self.shared.accepts.lock().put_back();
            self.shared.filled_up();
            self.pause(token, now + PAUSE); // further ones wait in the kernel's queue
            return false;
        }
        let key = listening.key;
        let error = match accept(&listening.socket) {
            Ok(accepted) => {
                self.shared.recovered();
                self.serve(accepted, key);
                return true;
            }
            Err(error) => error,
        };
        self.shared.slots.add_permits(1);
        self.shared.accepts.lock().put_back();
        if is_exhaustion(&error) {
            self.shared.ran_out(&error);
            self.pause(token, now + PAUSE);
        } else if error.kind() != io::ErrorKind::WouldBlock {
            // The client was gone before it was accepted, or the network went: nothing to do for it.
            tracing::debug!(port = key.port, %error, "accept");
        }
        false
    }

    fn pause(&mut self, token: u64, until: Instant) {
        let Some(listening) = self.listeners.get_mut(&token) else {
            return;
        };
        listening.paused_until = Some(until);
        self.shared.metrics.accept_paused.inc();
        self.report(token, EventFlags::empty());
    }

    fn resume_due(&mut self, now: Instant) {
        let due = |(token, listening): (&u64, &mut Listening)| {
            let due = listening.paused_until.take_if(|until| *until <= now);
            due.map(|_| *token)
        };
        let tokens: Vec<u64> = self.listeners.iter_mut().filter_map(due).collect();
        for token in tokens {
            self.shared.metrics.accept_paused.dec();
            self.report(token, EventFlags::IN);
        }
    }

    /// Makes epoll report other events of a listener.
    fn report(&self, token: u64, flags: EventFlags) {
        let Some(listening) = self.listeners.get(&token) else {
            return;
        };
        if let Err(error) = epoll::modify(&self.epoll, &listening.socket, EventData::new_u64(token), flags) {
            tracing::error!(address = %listening.address, %error, "cannot watch a listening socket");
        }
    }

    fn serve(&mut self, (client, peer): (TcpStream, SocketAddr), key: ListenerKey) {
        if !self.shared.enter(peer.ip()) {
            reset(&client);
            self.shared.slots.add_permits(1);
            self.shared.metrics.reset(Reason::ClientLimit);
            if self.shared.may_log() {
                tracing::warn!(client = %peer, port = key.port, "reset: this client has too many connections");
            }
            return;
        }
        let connection = Connection::new(client, peer, key, &self.shared, Instant::now());
        let index = self.connections.insert(connection);
        self.setups += 1;
        let watched = self
            .connections
            .get_mut(index)
            .map(|connection| connection.watch_client(&self.epoll, tokens(index).client));
        match watched {
            Some(Ok(())) => self.advance(index), // plain TCP connects at once
            _ => self.close(index),
        }
    }

    fn handle(&mut self, token: u64, flags: EventFlags) {
        let index = usize::try_from(token >> 1).unwrap_or(usize::MAX);
        if let Some(connection) = self.connections.get_mut(index) {
            connection.note(token & 1 == 1, flags);
            self.advance(index);
        }
    }

    fn advance(&mut self, index: usize) {
        self.step(index, |connection, tokens, thread| {
            connection.advance(tokens, thread)
        });
    }

    fn step(&mut self, index: usize, act: impl FnOnce(&mut Connection, Tokens, &mut Thread<'_>) -> Step) {
        let Some(connection) = self.connections.get_mut(index) else {
            return;
        };
        let was_setup = connection.is_setup();
        let mut thread = Thread {
            shared: &self.shared,
            epoll: &self.epoll,
            buffer: &mut self.buffer,
        };
        let step = act(connection, tokens(index), &mut thread);
        self.setups -= usize::from(was_setup && !connection.is_setup());
        match step {
            Step::Wait => {}
            Step::Again => self.again.push(index),
            Step::Close => self.close(index),
        }
    }

    fn close(&mut self, index: usize) {
        let Some(connection) = self.connections.remove(index) else {
            return;
        };
        self.setups -= usize::from(connection.is_setup());
        self.shared.leave(connection.peer);
        drop(connection);
        self.shared.slots.add_permits(1);
    }

    fn look_at_deadlines(&mut self, now: Instant) {
        if self.setups > 0 && now - self.last_tick >= TICK {
            self.last_tick = now;
            let setups: Vec<usize> = self.connections.indices(Connection::is_setup).collect();
            for index in setups {
                self.step(index, |connection, tokens, thread| {
                    connection.tick(tokens, now, thread)
                });
            }
        }
        let limit = self.shared.idle_timeout();
        let passed = now - self.last_sweep;
        if passed >= sweep_period(limit) {
            self.last_sweep = now;
            for index in self.connections.all_indices() {
                let idle = self
                    .connections
                    .get_mut(index)
                    .is_some_and(|c| c.is_idle(passed, limit));
                if idle {
                    self.shared.metrics.reset(Reason::Idle);
                    self.close(index);
                }
            }
        }
    }
}

fn tokens(index: usize) -> Tokens {
    let client = (index as u64) << 1;
    Tokens {
        client,
        backend: client | 1,
    }
}

/// How often to look for silent connections: one ends at most a sixteenth late.
fn sweep_period(limit: Duration) -> Duration {
    (limit / 16).clamp(Duration::from_millis(50), Duration::from_secs(60))
}

fn accept(socket: &Socket) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let peer = peer.ok_or_else(|| io::Error::other("a client without an address"))?;
    Ok((stream.into(), peer))
}
