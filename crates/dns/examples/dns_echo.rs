//! The floor of the benchmarks: the least that batched system calls cost. `dns_echo ADDRESS:PORT`.
//!
//! It sends every datagram back with the bit that makes it an answer and knows nothing of DNS. No server
//! can be cheaper than this with the same calls.

#![allow(unsafe_code, reason = "recvmmsg and sendmmsg have no safe wrapper")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

const SIZE: usize = 32;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: dns_echo ADDRESS:PORT")?;
    let socket = UdpSocket::bind(address)?;
    let options = socket2::SockRef::from(&socket);
    options.set_recv_buffer_size(1 << 20)?;
    options.set_send_buffer_size(1 << 20)?;
    let mut octets = vec![[0u8; 1280]; SIZE];
    // SAFETY: all-zero octets are a valid sockaddr_storage.
    let mut peers = vec![unsafe { std::mem::zeroed::<libc::sockaddr_storage>() }; SIZE];
    loop {
        // SAFETY: all-zero octets are valid for both types; every pointer used is set below.
        let mut vectors: [libc::iovec; SIZE] = unsafe { std::mem::zeroed() };
        let mut headers: [libc::mmsghdr; SIZE] = unsafe { std::mem::zeroed() };
        for at in 0..SIZE {
            vectors[at].iov_base = octets[at].as_mut_ptr().cast();
            vectors[at].iov_len = octets[at].len();
            headers[at].msg_hdr.msg_name = (&raw mut peers[at]).cast();
            headers[at].msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            headers[at].msg_hdr.msg_iov = &raw mut vectors[at];
            headers[at].msg_hdr.msg_iovlen = 1;
        }
        let (descriptor, first) = (socket.as_raw_fd(), headers.as_mut_ptr());
        let wait = libc::MSG_WAITFORONE as _;
        // SAFETY: `headers` has SIZE entries whose buffers and names outlive the call.
        let count = unsafe { libc::recvmmsg(descriptor, first, SIZE as _, wait, std::ptr::null_mut()) };
        let count = usize::try_from(count).map_err(|_| std::io::Error::last_os_error())?;
        for at in 0..count {
            octets[at][2] |= 0x80;
            vectors[at].iov_len = headers[at].msg_len as usize;
        }
        let mut sent = 0;
        while sent < count {
            let rest = &mut headers[sent..count];
            // SAFETY: as above, for the headers that are left.
            let more = unsafe { libc::sendmmsg(descriptor, rest.as_mut_ptr(), rest.len() as _, 0) };
            sent += usize::try_from(more).map_err(|_| std::io::Error::last_os_error())?;
        }
    }
}
