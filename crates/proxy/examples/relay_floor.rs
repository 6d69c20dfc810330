//! The floor of the benchmarks: the least that relaying costs with read, write and epoll.
//! `relay_floor LISTEN BACKEND [careless|splice]` connects each connection to the one backend and copies what comes, on
//! one thread.
//!
//! It reads no hello, knows no limits, no timeouts and no second endpoint, and makes no call that it can do without.
//! What it keeps is what a relay owes its users: small pieces do not wait for each other (TCP_NODELAY), the end of
//! one direction is passed on while the other goes on, and what the other side does not take is not read further.
//! Nothing that does the same can be cheaper. The careless one shows what the first two promises cost: it leaves
//! Nagle's algorithm on, and closes both sides when one has ended. The splicing one is the floor of bulk: what comes
//! goes through a pipe, and is never copied to this process.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use socket2::{Domain, SockRef, Socket, Type};

const LISTENER: u64 = u64::MAX;
const ARRIVALS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// As large as the gateway's.
const PIPE_SIZE: usize = 1 << 20;

/// How bytes get from one end to the other.
enum Way {
    Copy(Vec<u8>),
    /// The pipes that nobody uses now.
    Splice(Vec<Pipe>),
}

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

/// One end of a relay, and what came from it.
struct End {
    socket: OwnedFd,
    token: u64,
    /// Read here, and not yet taken by the other end.
    held: Vec<u8>,
    /// The same in a pipe, and how much it is.
    piped: Option<(Pipe, usize)>,
    /// A read may find something.
    readable: bool,
    /// The peer ended: a short read is followed by another.
    hung_up: bool,
    /// All that it sent was read.
    ended: bool,
    /// The other end was told so.
    told: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(backend)) = (arguments.next(), arguments.next()) else {
        return Err("usage: relay_floor LISTEN BACKEND [careless|splice]".into());
    };
    let variant = arguments.next().unwrap_or_default();
    let careless = variant == "careless";
    let mut way = match variant == "splice" {
        true => Way::Splice(Vec::new()),
        false => Way::Copy(vec![0; 64 << 10]),
    };
    let backend: SocketAddr = backend.parse()?;
    let listener = TcpListener::bind(listen.parse::<SocketAddr>()?)?;
    listener.set_nonblocking(true)?;
    SockRef::from(&listener).set_tcp_nodelay(!careless)?; // accepted sockets inherit it
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let (mut pairs, mut free) = (Vec::<Option<[End; 2]>>::new(), Vec::new());
    let mut events: Vec<Event> = Vec::with_capacity(256);
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut freed = Vec::new();
        for event in &events {
            let (token, flags) = (event.data.u64(), event.flags);
            if token == LISTENER {
                let Ok(client) = accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) else {
                    continue;
                };
                let place = free.pop().unwrap_or_else(|| {
                    pairs.push(None);
                    pairs.len() - 1
                });
                let token = (place as u64) << 1;
                let ends = [
                    End::new(client, token),
                    End::new(connect(backend, careless)?, token | 1),
                ];
                for end in &ends {
                    epoll::add(&poll, &end.socket, EventData::new_u64(end.token), ARRIVALS)?;
                }
                pairs[place] = Some(ends);
                continue;
            }
            let place = usize::try_from(token >> 1)?;
            let Some(ends) = pairs[place].as_mut() else {
                continue; // an event that was on its way when the pair ended
            };
            let end = &mut ends[usize::from(token & 1 == 1)];
            let broken = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            end.hung_up |= broken || flags.contains(EventFlags::RDHUP);
            end.readable |= end.hung_up || flags.contains(EventFlags::IN);
            let [client, server] = ends;
            let moved = client
                .pump(server, &poll, &mut way)
                .and_then(|()| server.pump(client, &poll, &mut way));
            let over = client.ended && server.ended || careless && (client.ended || server.ended);
            let told = match over {
                true => Ok(()), // closing tells both ends
                false => client.pass_end(server).and_then(|()| server.pass_end(client)),
            };
            if over || moved.is_err() || told.is_err() {
                pairs[place] = None;
                freed.push(place);
            }
        }
        free.append(&mut freed);
    }
}

fn connect(backend: SocketAddr, careless: bool) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(backend), Type::STREAM.nonblocking(), None)?;
    if !careless {
        socket.set_tcp_nodelay(true)?;
    }
    match socket.connect(&backend.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => return Err(error),
        _ => {}
    }
    Ok(OwnedFd::from(TcpStream::from(socket)))
}

impl End {
    fn new(socket: OwnedFd, token: u64) -> Self {
        Self {
            socket,
            token,
            held: Vec::new(),
            piped: None,
            readable: false,
            hung_up: false,
            ended: false,
            told: false,
        }
    }

    /// Passes the end on, once.
    fn pass_end(&mut self, other: &Self) -> Result<(), Errno> {
        if !self.ended || std::mem::replace(&mut self.told, true) {
            return Ok(());
        }
        shutdown(&other.socket, Shutdown::Write)
    }

    /// Moves what came from here to the other end.
    fn pump(&mut self, other: &Self, poll: &OwnedFd, way: &mut Way) -> Result<(), Errno> {
        match way {
            Way::Copy(buffer) => self.copy(other, poll, buffer),
            Way::Splice(pipes) => self.splice(other, poll, pipes),
        }
    }

    fn copy(&mut self, other: &Self, poll: &OwnedFd, buffer: &mut [u8]) -> Result<(), Errno> {
        if !self.held.is_empty() {
            let count = taken(send(&other.socket, &self.held, SendFlags::NOSIGNAL))?;
            self.held.drain(..count);
        }
        while self.held.is_empty() && self.readable && !self.ended {
            let count = match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((_, count)) => count,
                Err(Errno::AGAIN) => {
                    self.readable = false;
                    break;
                }
                Err(error) => return Err(error),
            };
            if count == 0 {
                self.ended = true;
                break;
            }
            // A short read drained the socket: the next bytes come with an event of their own.
            self.readable = count == buffer.len() || self.hung_up;
            let sent = taken(send(&other.socket, &buffer[..count], SendFlags::NOSIGNAL))?;
            if sent < count {
                self.held.extend_from_slice(&buffer[sent..count]);
                other.await_room(poll)?;
            }
        }
        Ok(())
    }

    fn splice(&mut self, other: &Self, poll: &OwnedFd, pipes: &mut Vec<Pipe>) -> Result<(), Errno> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        loop {
            if let Some((pipe, left)) = &mut self.piped {
                *left -= taken(splice(&pipe.reader, None, &other.socket, None, *left, flags))?;
                if *left > 0 {
                    return other.await_room(poll);
                }
            }
            let pipe = self.piped.take().map(|(pipe, _)| pipe);
            if !self.readable || self.ended {
                pipes.extend(pipe);
                return Ok(());
            }
            let pipe = match pipe.or_else(|| pipes.pop()) {
                Some(pipe) => pipe,
                None => Pipe::new()?,
            };
            match splice(&self.socket, None, &pipe.writer, None, PIPE_SIZE, flags) {
                Ok(0) => self.ended = true,
                Err(Errno::AGAIN) => self.readable = false,
                Err(error) => return Err(error),
                Ok(count) => {
                    self.piped = Some((pipe, count));
                    continue;
                }
            }
            pipes.push(pipe);
        }
    }

    /// Lets an event say when this end takes more.
    fn await_room(&self, poll: &OwnedFd) -> Result<(), Errno> {
        let room = ARRIVALS | EventFlags::OUT;
        epoll::modify(poll, &self.socket, EventData::new_u64(self.token), room)
    }
}

impl Pipe {
    fn new() -> Result<Self, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&writer, PIPE_SIZE)?;
        Ok(Self { reader, writer })
    }
}

/// How much a socket took: nothing, if it has no room or is not connected yet.
fn taken(result: Result<usize, Errno>) -> Result<usize, Errno> {
    match result {
        Err(Errno::AGAIN) => Ok(0),
        result => result,
    }
}
