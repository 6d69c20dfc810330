//! Many datagrams in one system call.
//!
//! A [`Batch`] owns the buffers of up to [`SIZE`] questions and their answers. [`Batch::receive`] fills it,
//! the caller writes an answer for each question that has one, and [`Batch::send`] sends them all, each to
//! where its question came from. The socket is bound to one address, so answers leave from the one asked.

#![allow(unsafe_code, reason = "recvmmsg and sendmmsg have no safe wrapper")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::wire::UDP_LIMIT;

/// Questions a call.
pub(super) const SIZE: usize = 32;

/// The longest question that is read whole; what is cut off makes a question malformed.
const QUESTION: usize = 1280;

/// Questions that came together, and their answers.
pub(super) struct Batch {
    peers: Vec<libc::sockaddr_storage>,
    questions: Vec<[u8; QUESTION]>,
    lengths: Vec<(usize, libc::socklen_t)>,
    answers: Vec<[u8; UDP_LIMIT]>,
    /// Which question each answer is for, and its length.
    queued: Vec<(usize, usize)>,
    sent: usize,
}

impl Batch {
    pub(super) fn new() -> Batch {
        // SAFETY: all-zero octets are a valid sockaddr_storage.
        let peer: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        Batch {
            peers: vec![peer; SIZE],
            questions: vec![[0; QUESTION]; SIZE],
            lengths: vec![(0, 0); SIZE],
            answers: vec![[0; UDP_LIMIT]; SIZE],
            queued: Vec::with_capacity(SIZE),
            sent: 0,
        }
    }

    /// Reads what is there without waiting; gives how many questions came.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.queued.clear();
        self.sent = 0;
        // SAFETY: all-zero octets are valid for both types; every pointer used is set below.
        let mut vectors: [libc::iovec; SIZE] = unsafe { std::mem::zeroed() };
        let mut headers: [libc::mmsghdr; SIZE] = unsafe { std::mem::zeroed() };
        for at in 0..SIZE {
            vectors[at].iov_base = self.questions[at].as_mut_ptr().cast();
            vectors[at].iov_len = QUESTION;
            let header = &mut headers[at].msg_hdr;
            header.msg_name = (&raw mut self.peers[at]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut vectors[at];
            header.msg_iovlen = 1;
        }
        // SAFETY: `headers` has SIZE entries, whose buffers and names outlive the call and have the sizes given.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                SIZE as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (length, header) in self.lengths.iter_mut().zip(&headers).take(count) {
            *length = (
                (header.msg_len as usize).min(QUESTION),
                header.msg_hdr.msg_namelen,
            );
        }
        Ok(count)
    }

    /// Question number `at`, its sender, and the buffer for its answer.
    pub(super) fn question(&mut self, at: usize) -> (&[u8], Option<SocketAddr>, &mut [u8]) {
        let peer = read_address(&self.peers[at]);
        (
            &self.questions[at][..self.lengths[at].0],
            peer,
            &mut self.answers[at],
        )
    }

    /// Queues the answer to question number `at`.
    pub(super) fn answer(&mut self, at: usize, length: usize) {
        self.queued.push((at, length.min(UDP_LIMIT)));
    }

    /// Sends what is queued without waiting. Ok where all is sent; `WouldBlock` where the rest must wait.
    ///
    /// An answer that cannot be sent at all (its client's address has become unreachable) is given up.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: all-zero octets are valid for both types; every pointer used is set below.
        let mut vectors: [libc::iovec; SIZE] = unsafe { std::mem::zeroed() };
        let mut headers: [libc::mmsghdr; SIZE] = unsafe { std::mem::zeroed() };
        for (slot, &(at, length)) in self.queued.iter().enumerate() {
            vectors[slot].iov_base = self.answers[at].as_mut_ptr().cast();
            vectors[slot].iov_len = length;
            let header = &mut headers[slot].msg_hdr;
            header.msg_name = (&raw mut self.peers[at]).cast();
            header.msg_namelen = self.lengths[at].1;
            header.msg_iov = &raw mut vectors[slot];
            header.msg_iovlen = 1;
        }
        while self.sent < self.queued.len() {
            let rest = &mut headers[self.sent..self.queued.len()];
            // SAFETY: `rest` are initialised headers whose buffers and names outlive the call.
            let count = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            match usize::try_from(count) {
                Ok(count) => self.sent += count,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    match error.kind() {
                        io::ErrorKind::WouldBlock => return Err(error),
                        io::ErrorKind::Interrupted => {}
                        _ => self.sent += 1,
                    }
                }
            }
        }
        Ok(())
    }
}

/// The sender's address as the kernel wrote it.
fn read_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the storage holds a sockaddr_in, which is smaller.
            let address = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the storage holds a sockaddr_in6, which is smaller.
            let address = unsafe { &*std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            Some(SocketAddr::new(IpAddr::V6(ip), u16::from_be(address.sin6_port)))
        }
        _ => None,
    }
}
