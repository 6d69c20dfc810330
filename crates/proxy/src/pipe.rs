//! Pipes for splice(2), pooled by thread: making one costs more than a small transfer.

use std::cell::RefCell;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// Few wakeups a gigabyte; the most that an unprivileged process may ask for by default.
const PIPE_SIZE: usize = 1 << 20;
/// Pipes that a thread keeps while nobody uses them.
const KEPT: usize = 16;

thread_local! {
    static POOL: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// An empty pipe, or one with bytes on their way.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) reader: OwnedFd,
    pub(crate) writer: OwnedFd,
}

impl Pipe {
    /// A pooled pipe or a new one. Fails where file descriptors run out: then bytes are copied instead.
    pub(crate) fn take() -> std::io::Result<Self> {
        if let Some(pipe) = POOL.with_borrow_mut(Vec::pop) {
            return Ok(pipe);
        }
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // Past the user's share of pipe memory the kernel refuses; 64 KiB work too, with more wakeups.
        let _ = fcntl_setpipe_size(&writer, PIPE_SIZE);
        Ok(Self { reader, writer })
    }

    /// Gives an empty pipe back.
    pub(crate) fn give_back(self) {
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < KEPT {
                pool.push(self);
            }
        });
    }

    /// How many bytes to ask for at a time.
    pub(crate) const CAPACITY: usize = PIPE_SIZE;
}
