//! The floor of the benchmarks: the least that relaying costs with read, write and epoll.
//! `relay_floor LISTEN BACKEND` connects each connection to the one backend and copies what comes, on one thread.
//!
//! It reads no hello, knows no limits, no timeouts and no second endpoint. Nothing that does can be cheaper.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use socket2::{Domain, Socket, Type};

const LISTENER: u64 = u64::MAX;

/// One direction of a relay.
#[derive(Default)]
struct Way {
    /// Read, and not yet taken by the other side.
    held: Vec<u8>,
    ended: bool,
}

struct Pair {
    ends: [OwnedFd; 2],
    ways: [Way; 2],
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(backend)) = (arguments.next(), arguments.next()) else {
        return Err("usage: relay_floor LISTEN BACKEND".into());
    };
    let backend: SocketAddr = backend.parse()?;
    let listener = TcpListener::bind(listen.parse::<SocketAddr>()?)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let (mut pairs, mut free) = (Vec::<Option<Pair>>::new(), Vec::new());
    let mut events: Vec<Event> = Vec::with_capacity(256);
    let mut buffer = vec![0; 64 << 10];
    loop {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let token = event.data.u64();
            if token != LISTENER {
                let place = usize::try_from(token)?;
                let done = match pairs.get_mut(place).and_then(Option::as_mut) {
                    Some(pair) => !pair.pump(&mut buffer),
                    None => false, // an event that was on its way when the pair ended
                };
                if done {
                    pairs[place] = None;
                    free.push(place);
                }
                continue;
            }
            while let Ok(client) = accept_with(&listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                let place = free.pop().unwrap_or_else(|| {
                    pairs.push(None);
                    pairs.len() - 1
                });
                let ends = [client, connect(backend)?];
                for end in &ends {
                    let wanted = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                    epoll::add(&poll, end, EventData::new_u64(place as u64), wanted)?;
                }
                pairs[place] = Some(Pair {
                    ends,
                    ways: Default::default(),
                });
            }
        }
    }
}

fn connect(backend: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(backend), Type::STREAM.nonblocking(), None)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&backend.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => return Err(error),
        _ => {}
    }
    Ok(OwnedFd::from(TcpStream::from(socket)))
}

impl Pair {
    /// Moves what can be moved. False when both directions have ended, or one broke.
    fn pump(&mut self, buffer: &mut [u8]) -> bool {
        let [client, backend] = &self.ends;
        let [there, back] = &mut self.ways;
        let moved = there
            .pump(client, backend, buffer)
            .and_then(|()| back.pump(backend, client, buffer));
        moved.is_ok() && !(there.ended && back.ended)
    }
}

impl Way {
    fn pump(&mut self, from: &impl AsFd, to: &impl AsFd, buffer: &mut [u8]) -> Result<(), Errno> {
        while !self.ended {
            if !self.held.is_empty() {
                match rustix::io::write(to, &self.held) {
                    Ok(count) => drop(self.held.drain(..count)),
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(error) => return Err(error),
                }
                continue;
            }
            let count = match rustix::io::read(from, &mut *buffer) {
                Ok(0) => {
                    self.ended = true;
                    return shutdown(to, Shutdown::Write);
                }
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::NOTCONN) => return Ok(()),
                Err(error) => return Err(error),
            };
            let sent = match rustix::io::write(to, &buffer[..count]) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::NOTCONN) => 0,
                Err(error) => return Err(error),
            };
            self.held.extend_from_slice(&buffer[sent..count]);
            if sent < count {
                return Ok(());
            }
        }
        Ok(())
    }
}
