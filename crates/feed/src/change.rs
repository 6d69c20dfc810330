//! Tells when something in a directory changed, by inotify.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// A change in one of some directories.
pub(crate) struct Changes {
    inotify: AsyncFd<OwnedFd>,
}

impl Changes {
    /// Watches directories. A mounted ConfigMap changes by a renamed link in its directory, an editor by a renamed
    /// file, a script by a file that is written and closed: the directory tells of all three.
    pub(crate) fn in_directories(directories: &[PathBuf]) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let what = WatchFlags::CLOSE_WRITE | WatchFlags::MOVE | WatchFlags::CREATE | WatchFlags::DELETE;
        for directory in directories {
            inotify::add_watch(&inotify, directory, what)?;
        }
        // SAFETY: the descriptor is owned here, and nobody else closes or replaces it while it is registered.
        #[allow(unsafe_code, reason = "the runtime cannot know who owns a descriptor")]
        let inotify = unsafe { AsyncFd::register(inotify) }?;
        Ok(Changes { inotify })
    }

    /// Waits for a change and takes all that are known by then.
    pub(crate) async fn next(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            if drain(self.inotify.get_ref())? {
                return Ok(());
            }
            ready.clear_ready();
        }
    }
}

/// Reads all events that are there; whether there were any.
fn drain(inotify: &OwnedFd) -> io::Result<bool> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(inotify, &mut buffer);
    let mut any = false;
    loop {
        match reader.next() {
            // Which file it was does not matter: all of them are read again and compared.
            Ok(_) => any = true,
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(any),
            Err(error) => return Err(error.into()),
        }
    }
}
