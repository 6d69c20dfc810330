//! Moves the bytes of one connection in both directions until both have ended.
//!
//! A quiet connection holds no buffer. Each thread has one, and bytes pass through it from read to write
//! within one poll; only what the other side does not take at once is kept aside, and then that direction is
//! not read any further (back-pressure). A direction that fills the buffer again and again is bulk: from then on
//! its bytes go through a pooled pipe by splice(2) without being copied, until it runs dry.
//!
//! An end of stream is passed on as a half-close, after the bytes before it; a reset as a reset.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::pipe::{SpliceFlags, splice};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::pipe::Pipe;

const BUFFER: usize = 64 * 1024;
/// Full buffers in a row that make a direction bulk: 256 KiB without a pause.
const BULK_AFTER: u8 = 4;
/// Spliced pieces in a row that would have fitted into a quarter of the buffer, after which copying is cheaper.
const SMALL_AFTER: u8 = 8;
/// Rounds of reading and writing after which other connections get their turn.
const ROUNDS: usize = 16;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// Learns what a relay moved.
pub(crate) trait Account {
    /// Bytes were handed on, in one direction or the other.
    fn moved(&mut self, to_backend: u64, to_client: u64);
}

/// A connection on both sides.
pub(crate) struct Relay<A> {
    client: TcpStream,
    backend: TcpStream,
    to_backend: Direction,
    to_client: Direction,
    account: A,
}

/// Bytes that the other side did not take at once.
struct Held {
    bytes: Box<[u8]>,
    written: usize,
}

/// Bytes on their way through a pipe.
struct Spliced {
    pipe: Pipe,
    inside: usize,
}

#[derive(Default)]
struct Direction {
    held: Option<Box<Held>>,
    spliced: Option<Box<Spliced>>,
    moved: u64,
    /// Full reads in a row while copying, small ones in a row while splicing.
    streak: u8,
    bulk: bool,
    ended: bool,
    done: bool,
}

impl<A: Account + Unpin> Relay<A> {
    /// A relay that first hands `first` to the backend: the hello that was read to find it.
    pub(crate) fn new(client: TcpStream, backend: TcpStream, first: Vec<u8>, account: A) -> Self {
        let mut to_backend = Direction::default();
        if !first.is_empty() {
            to_backend.held = Some(Box::new(Held {
                bytes: first.into_boxed_slice(),
                written: 0,
            }));
        }
        Self {
            client,
            backend,
            to_backend,
            to_client: Direction::default(),
            account,
        }
    }

    /// Who counts.
    pub(crate) fn account(&self) -> &A {
        &self.account
    }

    fn poll_both(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self {
            client,
            backend,
            to_backend,
            to_client,
            ..
        } = self;
        let up = to_backend.poll(client, backend, cx);
        let down = match &up {
            Poll::Ready(Err(_)) => Poll::Pending,
            _ => to_client.poll(backend, client, cx),
        };
        let moved = (
            std::mem::take(&mut self.to_backend.moved),
            std::mem::take(&mut self.to_client.moved),
        );
        if moved != (0, 0) {
            self.account.moved(moved.0, moved.1);
        }
        match (up, down) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }
}

impl<A: Account + Unpin> Future for Relay<A> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.poll_both(cx));
        if result.is_err() {
            // One side was reset: the other must not take it for a proper end of stream.
            let _ = self.client.set_zero_linger();
            let _ = self.backend.set_zero_linger();
        }
        Poll::Ready(result)
    }
}

impl Direction {
    /// Moves what can be moved. Ready when the end of stream was passed on.
    fn poll(
        &mut self,
        from: &mut TcpStream,
        to: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS {
            ready!(self.poll_flush(to, cx))?;
            if self.ended {
                ready!(Pin::new(&mut *to).poll_shutdown(cx)).or_else(already_gone)?;
                self.done = true;
                return Poll::Ready(Ok(()));
            }
            if self.bulk {
                ready!(self.poll_splice_in(from, cx))?;
            } else {
                ready!(self.poll_copy(from, to, cx))?;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Hands on what was read before.
    fn poll_flush(&mut self, to: &mut TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(held) = &mut self.held {
            let written = ready!(Pin::new(&mut *to).poll_write(cx, &held.bytes[held.written..]))?;
            held.written += written;
            self.moved += written as u64;
            if held.written == held.bytes.len() {
                self.held = None;
            }
        }
        while let Some(spliced) = &mut self.spliced
            && spliced.inside > 0
        {
            ready!(to.poll_write_ready(cx))?;
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            let out = to.try_io(Interest::WRITABLE, || {
                splice(&spliced.pipe.reader, None, &*to, None, spliced.inside, flags).map_err(Into::into)
            });
            match out {
                Ok(written) => {
                    spliced.inside = spliced.inside.saturating_sub(written);
                    self.moved += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// One read through the thread's buffer, and as much of it written as the other side takes.
    fn poll_copy(
        &mut self,
        from: &mut TcpStream,
        to: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        SHARED.with_borrow_mut(|buffer| {
            let mut read = ReadBuf::new(buffer);
            ready!(Pin::new(from).poll_read(cx, &mut read))?;
            let bytes = read.filled();
            if bytes.is_empty() {
                self.ended = true;
                return Poll::Ready(Ok(()));
            }
            self.streak = if bytes.len() == BUFFER { self.streak + 1 } else { 0 };
            if self.streak == BULK_AFTER {
                (self.bulk, self.streak) = (true, 0);
            }
            let mut written = 0;
            while written < bytes.len() {
                match Pin::new(&mut *to).poll_write(cx, &bytes[written..]) {
                    Poll::Ready(Ok(count)) => written += count,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        self.held = Some(Box::new(Held {
                            bytes: bytes[written..].into(),
                            written: 0,
                        }));
                        break;
                    }
                }
            }
            self.moved += written as u64;
            Poll::Ready(Ok(()))
        })
    }

    /// One read into a pipe. A pipe is held only while bytes flow.
    fn poll_splice_in(&mut self, from: &mut TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if from.poll_read_ready(cx)?.is_pending() {
            self.rest_pipe();
            return Poll::Pending;
        }
        let spliced = match &mut self.spliced {
            Some(spliced) => spliced,
            empty => match Pipe::take() {
                Ok(pipe) => empty.insert(Box::new(Spliced { pipe, inside: 0 })),
                Err(_) => {
                    self.bulk = false; // no descriptor left for a pipe: copying still works
                    return Poll::Ready(Ok(()));
                }
            },
        };
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let read = from.try_io(Interest::READABLE, || {
            splice(&*from, None, &spliced.pipe.writer, None, Pipe::CAPACITY, flags).map_err(Into::into)
        });
        match read {
            Ok(0) => {
                self.ended = true;
                self.rest_pipe();
            }
            Ok(count) => {
                spliced.inside += count;
                self.streak = if count < BUFFER / 4 { self.streak + 1 } else { 0 };
                if self.streak == SMALL_AFTER {
                    (self.bulk, self.streak) = (false, 0);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        Poll::Ready(Ok(()))
    }

    /// Gives the pipe back if nothing is in it.
    fn rest_pipe(&mut self) {
        if let Some(spliced) = self.spliced.take_if(|spliced| spliced.inside == 0) {
            spliced.pipe.give_back();
        }
    }
}

/// A peer that is gone cannot be told that the stream ended; its own direction says how it went.
fn already_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotConnected {
        Ok(())
    } else {
        Err(error)
    }
}
