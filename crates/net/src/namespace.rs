//! Network namespaces without names.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace. It ends with its last holder and its last thread.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: Arc<str>,
    handle: Arc<OwnedFd>,
}

impl Namespace {
    /// A new namespace with nothing but a loopback interface that is down.
    pub fn new(name: &str) -> io::Result<Self> {
        let made = thread::Builder::new().name(name.to_owned()).spawn(|| {
            // SAFETY: only this thread leaves the namespace, and it shares no descriptors table with anybody that
            // relies on the old one; the flag asks for nothing else.
            #[allow(unsafe_code, reason = "there is no safe way to leave a namespace")]
            unsafe {
                unshare_unsafe(UnshareFlags::NEWNET)?;
            }
            let handle = rustix::fs::open(
                "/proc/thread-self/ns/net",
                OFlags::RDONLY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            io::Result::Ok(handle)
        })?;
        let handle = made
            .join()
            .map_err(|_| io::Error::other("the thread that makes a namespace died"))??;
        Ok(Namespace {
            name: name.into(),
            handle: Arc::new(handle),
        })
    }

    /// What it is called in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where other processes find it while this one runs: `nsenter --net=PATH`.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd()).into()
    }

    /// Runs a future on a thread of its own inside the namespace. Every socket that it opens belongs there.
    pub fn spawn<F, Fut, T>(&self, work: F) -> io::Result<JoinHandle<io::Result<T>>>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T>,
        T: Send + 'static,
    {
        let handle = self.handle.clone();
        thread::Builder::new().name(self.name.to_string()).spawn(move || {
            move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Network))?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            Ok(runtime.block_on(work()))
        })
    }

    /// Runs a future inside the namespace and waits for it.
    pub fn run<F, Fut, T>(&self, work: F) -> io::Result<T>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future<Output = T>,
        T: Send + 'static,
    {
        let name = self.name.clone();
        self.spawn(work)?
            .join()
            .map_err(move |_| io::Error::other(format!("the thread in {name} died")))?
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}
