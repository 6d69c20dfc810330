//! Many datagrams by one system call, with nothing around it.

#![allow(unsafe_code, reason = "recvmmsg and sendmmsg have no safe wrapper")]

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// How many there are at most.
pub(crate) const SIZE: usize = 128;
/// The longest of them.
pub(crate) const LONGEST: usize = 1500;

/// Datagrams that came together, and go together to whom they came from.
pub(crate) struct Datagrams {
    octets: Vec<[u8; LONGEST]>,
    lengths: [usize; SIZE],
    peers: Vec<libc::sockaddr_storage>,
    count: usize,
}

impl Default for Datagrams {
    fn default() -> Self {
        Datagrams {
            octets: vec![[0; LONGEST]; SIZE],
            lengths: [0; SIZE],
            // SAFETY: all-zero octets are a valid sockaddr_storage.
            peers: vec![unsafe { mem::zeroed() }; SIZE],
            count: 0,
        }
    }
}

impl Datagrams {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// One of them: its octets, and how many of those count.
    pub(crate) fn get(&mut self, at: usize) -> (&mut [u8; LONGEST], &mut usize) {
        (&mut self.octets[at], &mut self.lengths[at])
    }

    /// Waits for one, and takes those that are there with it.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.lengths = [LONGEST; SIZE];
        self.count = 0;
        let (headers, done) = self.call(SIZE, |first| {
            let wait = libc::MSG_WAITFORONE as _;
            // SAFETY: there are SIZE headers whose buffers and names outlive the call.
            unsafe { libc::recvmmsg(socket.as_raw_fd(), first, SIZE as _, wait, std::ptr::null_mut()) }
        })?;
        for (length, header) in self.lengths.iter_mut().zip(&headers) {
            *length = header.msg_len as usize;
        }
        self.count = done;
        Ok(())
    }

    /// Sends all of them.
    pub(crate) fn send(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let (count, mut sent) = (self.count, 0);
        while sent < count {
            let (_, done) = self.call(count, |first| {
                // SAFETY: there are `count` headers whose buffers and names outlive the call.
                unsafe { libc::sendmmsg(socket.as_raw_fd(), first.add(sent), (count - sent) as _, 0) }
            })?;
            sent += done;
        }
        Ok(())
    }

    fn call(
        &mut self,
        count: usize,
        call: impl FnOnce(*mut libc::mmsghdr) -> libc::c_int,
    ) -> io::Result<([libc::mmsghdr; SIZE], usize)> {
        // SAFETY: all-zero octets are valid for both types; every pointer used is set below.
        let (mut vectors, mut headers): ([libc::iovec; SIZE], [libc::mmsghdr; SIZE]) =
            unsafe { mem::zeroed() };
        for at in 0..count {
            vectors[at].iov_base = self.octets[at].as_mut_ptr().cast();
            vectors[at].iov_len = self.lengths[at];
            headers[at].msg_hdr.msg_name = (&raw mut self.peers[at]).cast();
            headers[at].msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            headers[at].msg_hdr.msg_iov = &raw mut vectors[at];
            headers[at].msg_hdr.msg_iovlen = 1;
        }
        let done = usize::try_from(call(headers.as_mut_ptr())).map_err(|_| io::Error::last_os_error())?;
        Ok((headers, done))
    }
}
