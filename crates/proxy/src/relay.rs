//! Moves the bytes of an established connection, one direction at a time.
//!
//! A quiet connection holds no buffer. Each thread has one, and bytes pass through it from read to write at
//! once; only what the other side does not take is kept aside, and then that direction is not read any further
//! (back-pressure). A direction that fills the buffer again and again is bulk: from then on its bytes go through
//! a pooled pipe by splice(2) without being copied, until it runs dry.
//!
//! An end of stream is passed on as a half-close, after the bytes before it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::pipe::{SpliceFlags, splice};

use crate::pipe::Pipe;

/// The size of a thread's buffer.
pub(crate) const BUFFER: usize = 64 * 1024;
/// Full buffers in a row that make a direction bulk: 256 KiB without a pause.
const BULK_AFTER: u8 = 4;
/// Spliced pieces in a row that would have fitted into a quarter of the buffer, after which copying is cheaper.
const SMALL_AFTER: u8 = 8;
/// Rounds of reading and writing after which other connections get their turn.
const ROUNDS: usize = 16;

/// What epoll reports of every socket. Most can be written to at all times: room is asked for when one cannot.
const ARRIVALS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// A socket, and what is known of it: epoll tells changes only.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) stream: TcpStream,
    /// A read may find something.
    pub(crate) readable: bool,
    /// A write may go through.
    pub(crate) writable: bool,
    /// The peer ended or broke off: a short read does not mean that there is nothing more to learn.
    pub(crate) ended: bool,
    /// The socket is broken: the peer reset it, or cannot be reached any more.
    pub(crate) failed: bool,
    /// Epoll reports when a write may go through again.
    room_watched: bool,
}

impl Side {
    /// A socket that nothing has come from yet.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            readable: false,
            writable: true,
            ended: false,
            failed: false,
            room_watched: false,
        }
    }

    /// Makes epoll report the socket under `token`.
    pub(crate) fn watch(&mut self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        self.room_watched = !self.writable;
        Ok(epoll::add(
            epoll,
            &self.stream,
            EventData::new_u64(token),
            self.reported(),
        )?)
    }

    /// Makes epoll report room as well, from the first time that there was none.
    pub(crate) fn watch_room(&mut self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        if self.writable || self.room_watched {
            return Ok(());
        }
        self.room_watched = true;
        Ok(epoll::modify(
            epoll,
            &self.stream,
            EventData::new_u64(token),
            self.reported(),
        )?)
    }

    fn reported(&self) -> EventFlags {
        match self.room_watched {
            true => ARRIVALS | EventFlags::OUT,
            false => ARRIVALS,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match again_if_interrupted(|| (&self.stream).read(buffer)) {
            Ok(count) => {
                // A short read drained the socket: the next bytes come with an event of their own.
                self.readable = count == buffer.len() || self.ended || count == 0;
                Ok(Some(count))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what the socket takes; 0 if that is nothing for now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match again_if_interrupted(|| (&self.stream).write(bytes)) {
            Ok(count) => {
                self.writable = count == bytes.len();
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads before the relay: `None` if there is nothing yet.
    pub(crate) fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.readable {
            self.read(buffer)
        } else {
            Ok(None)
        }
    }
}

fn again_if_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// How far a direction got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It waits for an event.
    Waiting,
    /// It could go on, but others should have their turn.
    Yielded,
    /// It ended, and everything before its end was passed on.
    Done,
}

/// Bytes that the other side did not take at once.
#[derive(Debug)]
struct Held {
    bytes: Box<[u8]>,
    written: usize,
}

/// Bytes on their way through a pipe.
#[derive(Debug)]
struct Spliced {
    pipe: Pipe,
    inside: usize,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Direction {
    held: Option<Box<Held>>,
    spliced: Option<Box<Spliced>>,
    /// Full reads in a row while copying, small ones in a row while splicing.
    streak: u8,
    bulk: bool,
    ended: bool,
    /// The end was passed on as well.
    told: bool,
}

impl Direction {
    /// A direction that first hands these bytes on.
    pub(crate) fn starting_with(bytes: Vec<u8>) -> Self {
        let held = (!bytes.is_empty()).then(|| {
            Box::new(Held {
                bytes: bytes.into_boxed_slice(),
                written: 0,
            })
        });
        Self {
            held,
            ..Self::default()
        }
    }

    /// Moves what can be moved, and counts it into `moved`.
    pub(crate) fn pump(
        &mut self,
        from: &mut Side,
        to: &mut Side,
        buffer: &mut [u8],
        moved: &mut u64,
    ) -> io::Result<Progress> {
        for _ in 0..ROUNDS {
            if !self.flush(to, moved)? {
                return Ok(Progress::Waiting);
            }
            if self.ended {
                return Ok(Progress::Done);
            }
            if !from.readable {
                self.rest_pipe();
                return Ok(Progress::Waiting);
            }
            if self.bulk {
                self.splice_in(from)?;
            } else {
                self.copy(from, to, buffer, moved)?;
            }
        }
        Ok(Progress::Yielded)
    }

    /// Passes the end on, once, to a side whose own direction goes on.
    pub(crate) fn pass_end(&mut self, to: &Side) -> io::Result<()> {
        if std::mem::replace(&mut self.told, true) {
            return Ok(());
        }
        match to.stream.shutdown(Shutdown::Write) {
            // A peer that is gone cannot be told; its own direction says how it went.
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(()),
            result => result,
        }
    }

    /// Hands on what was read before. False: the other side takes no more for now.
    fn flush(&mut self, to: &mut Side, moved: &mut u64) -> io::Result<bool> {
        while let Some(held) = &mut self.held {
            if !to.writable {
                return Ok(false);
            }
            let written = to.write(&held.bytes[held.written..])?;
            held.written += written;
            *moved += written as u64;
            if held.written == held.bytes.len() {
                self.held = None;
            }
        }
        while let Some(spliced) = &mut self.spliced
            && spliced.inside > 0
        {
            if !to.writable {
                return Ok(false);
            }
            match splice_between(&spliced.pipe.reader, &to.stream, spliced.inside)? {
                Some(written) => {
                    spliced.inside = spliced.inside.saturating_sub(written);
                    *moved += written as u64;
                }
                None => to.writable = false,
            }
        }
        Ok(true)
    }

    /// One read through the thread's buffer, and as much of it written as the other side takes.
    fn copy(&mut self, from: &mut Side, to: &mut Side, buffer: &mut [u8], moved: &mut u64) -> io::Result<()> {
        let Some(count) = from.read(buffer)? else {
            return Ok(());
        };
        if count == 0 {
            self.ended = true;
            return Ok(());
        }
        self.streak = if count == buffer.len() { self.streak + 1 } else { 0 };
        if self.streak == BULK_AFTER {
            (self.bulk, self.streak) = (true, 0);
        }
        let mut written = 0;
        while written < count && to.writable {
            written += to.write(&buffer[written..count])?;
        }
        *moved += written as u64;
        if written < count {
            self.held = Some(Box::new(Held {
                bytes: buffer[written..count].into(),
                written: 0,
            }));
        }
        Ok(())
    }

    /// One read into a pipe. A pipe is held only while bytes flow.
    fn splice_in(&mut self, from: &mut Side) -> io::Result<()> {
        let spliced = match &mut self.spliced {
            Some(spliced) => spliced,
            empty => match Pipe::take() {
                Ok(pipe) => empty.insert(Box::new(Spliced { pipe, inside: 0 })),
                Err(_) => {
                    self.bulk = false; // no descriptor left for a pipe: copying still works
                    return Ok(());
                }
            },
        };
        match splice_between(&from.stream, &spliced.pipe.writer, Pipe::CAPACITY)? {
            None => from.readable = false,
            Some(0) => {
                self.ended = true;
                self.rest_pipe();
            }
            Some(count) => {
                spliced.inside += count;
                self.streak = if count < BUFFER / 4 { self.streak + 1 } else { 0 };
                if self.streak == SMALL_AFTER {
                    (self.bulk, self.streak) = (false, 0);
                }
            }
        }
        Ok(())
    }

    /// Gives the pipe back if nothing is in it.
    fn rest_pipe(&mut self) {
        if let Some(spliced) = self.spliced.take_if(|spliced| spliced.inside == 0) {
            spliced.pipe.give_back();
        }
    }
}

/// `None`: it would block.
fn splice_between(
    from: impl rustix::fd::AsFd,
    to: impl rustix::fd::AsFd,
    length: usize,
) -> io::Result<Option<usize>> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    match again_if_interrupted(|| splice(&from, None, &to, None, length, flags).map_err(Into::into)) {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
