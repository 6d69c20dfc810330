//! Many packets by one system call.

#![allow(
    unsafe_code,
    reason = "recvmmsg and sendmmsg have no safe wrapper; each block says why it is sound"
)]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::AsRawFd;

use socket2::Socket as Raw;

use super::arrival;
use crate::message::Malformed;
use crate::respond::Arrival;

/// How many packets one call receives or sends.
const BATCH: usize = 32;
/// The longest packet that is taken: more than any Ethernet frame without jumbo frames.
const LONGEST: usize = 2048;

/// Room for one control message with the destination of a packet.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Packets that were received together.
pub struct Inbox {
    buffers: Box<[[u8; LONGEST]; BATCH]>,
    controls: [Control; BATCH],
    packets: Vec<Received>,
}

struct Received {
    length: usize,
    truncated: bool,
    arrival: Arrival,
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox {
            buffers: Box::new([[0; LONGEST]; BATCH]),
            controls: [Control([0; 64]); BATCH],
            packets: Vec::new(),
        }
    }
}

impl Inbox {
    /// Whether there may be more to receive.
    pub(super) fn is_full(&self) -> bool {
        self.packets.len() == BATCH
    }

    /// The packets and how each arrived.
    pub fn packets(&self) -> impl Iterator<Item = (Result<&[u8], Malformed>, Arrival)> {
        self.packets
            .iter()
            .zip(self.buffers.iter())
            .map(|(packet, buffer)| {
                let bytes = buffer.get(..packet.length).unwrap_or_default();
                (
                    if packet.truncated {
                        Err(Malformed::Oversized)
                    } else {
                        Ok(bytes)
                    },
                    packet.arrival,
                )
            })
    }
}

/// Receives what is there, up to a batch.
pub(super) fn receive(socket: &Raw, inbox: &mut Inbox) -> io::Result<()> {
    inbox.packets.clear();
    // SAFETY: all zeros are valid for these plain structures of pointers and lengths.
    let (mut headers, mut parts): ([libc::mmsghdr; BATCH], [libc::iovec; BATCH]) = unsafe { mem::zeroed() };
    for (((header, part), buffer), control) in headers
        .iter_mut()
        .zip(&mut parts)
        .zip(inbox.buffers.iter_mut())
        .zip(&mut inbox.controls)
    {
        *part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: LONGEST,
        };
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
        header.msg_hdr.msg_controllen = control.0.len() as _;
    }
    // SAFETY: every header points to a buffer and a control area of its own that outlive the call, with their lengths.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            BATCH as _,
            0,
            std::ptr::null_mut(),
        )
    };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    for header in headers.iter().take(count) {
        // SAFETY: the kernel filled this header and its control area just now.
        let destination = unsafe { destination(&header.msg_hdr) };
        inbox.packets.push(Received {
            length: (header.msg_len as usize).min(LONGEST),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            arrival: arrival(destination),
        });
    }
    Ok(())
}

/// The address that a packet was sent to.
///
/// # Safety
/// The header must be one that the kernel filled and whose control area is still there.
unsafe fn destination(header: &libc::msghdr) -> Option<Ipv4Addr> {
    // SAFETY: the macros stay inside the control area of a header that the kernel filled; the data of IP_PKTINFO is
    // an in_pktinfo, read without relying on its alignment.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while let Some(control) = message.as_ref() {
            if control.cmsg_level == libc::IPPROTO_IP && control.cmsg_type == libc::IP_PKTINFO {
                let info = libc::CMSG_DATA(message)
                    .cast::<libc::in_pktinfo>()
                    .read_unaligned();
                return Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// Packets that wait to be sent together.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
}

#[derive(Debug)]
struct Packet {
    range: Range<usize>,
    way: Way,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By UDP, from one of our addresses.
    Datagram(Ipv4Addr, SocketAddrV4),
    /// As it is.
    Frame,
    /// Not at all.
    Dropped,
}

impl Outbox {
    /// How many packets wait.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Queues a datagram.
    pub fn datagram(&mut self, from: Ipv4Addr, to: SocketAddrV4, message: &[u8]) {
        self.push(Way::Datagram(from, to), |bytes| bytes.extend(message));
    }

    /// Queues a frame that `write` appends.
    pub fn frame(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(Way::Frame, write);
    }

    /// Lets a queued packet not be sent.
    pub fn drop_packet(&mut self, index: usize) {
        if let Some(packet) = self.packets.get_mut(index) {
            packet.way = Way::Dropped;
        }
    }

    /// Empties the queue.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
    }

    fn push(&mut self, way: Way, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.packets.push(Packet {
            range: start..self.bytes.len(),
            way,
        });
    }

    /// Sends everything and returns how many packets the system did not take.
    pub(super) fn flush(&mut self, udp: &Raw, packet: &Raw) -> usize {
        let mut failed = 0;
        for (socket, framed) in [(udp, false), (packet, true)] {
            let wanted = |packet: &&Packet| match packet.way {
                Way::Datagram(..) => !framed,
                Way::Frame => framed,
                Way::Dropped => false,
            };
            let mut waiting = self.packets.iter().filter(wanted);
            loop {
                let batch: [Option<&Packet>; BATCH] = std::array::from_fn(|_| waiting.next());
                let count = batch.iter().flatten().count();
                if count == 0 {
                    break;
                }
                failed += send(socket, &self.bytes, &batch, count);
            }
        }
        self.clear();
        failed
    }
}

/// Sends one batch and returns how many packets the system did not take.
fn send(socket: &Raw, bytes: &[u8], batch: &[Option<&Packet>; BATCH], count: usize) -> usize {
    // SAFETY: all zeros are valid for these plain structures of pointers, lengths and addresses.
    let (mut headers, mut parts, mut names): (
        [libc::mmsghdr; BATCH],
        [libc::iovec; BATCH],
        [libc::sockaddr_in; BATCH],
    ) = unsafe { mem::zeroed() };
    let mut controls = [Control([0; 64]); BATCH];
    let slots = headers
        .iter_mut()
        .zip(&mut parts)
        .zip(&mut names)
        .zip(&mut controls);
    for ((((header, part), name), control), packet) in slots.zip(batch.iter().flatten()) {
        let payload = bytes.get(packet.range.clone()).unwrap_or_default();
        *part = libc::iovec {
            iov_base: payload.as_ptr().cast_mut().cast(),
            iov_len: payload.len(),
        };
        header.msg_hdr.msg_iov = part;
        header.msg_hdr.msg_iovlen = 1;
        if let Way::Datagram(from, to) = packet.way {
            name.sin_family = libc::AF_INET as _;
            name.sin_port = to.port().to_be();
            name.sin_addr.s_addr = u32::from(*to.ip()).to_be();
            header.msg_hdr.msg_name = (&raw mut *name).cast();
            header.msg_hdr.msg_namelen = mem::size_of::<libc::sockaddr_in>() as _;
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = set_source(control, from) as _;
        }
    }
    let mut failed = 0;
    let mut at = 0;
    while let Some(rest) = headers.get_mut(at..count).filter(|rest| !rest.is_empty()) {
        // SAFETY: the headers point to bytes, names and control areas that outlive the call; the kernel only reads.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as _, 0) };
        match usize::try_from(sent) {
            Ok(sent) => at += sent.max(1),
            Err(_) => {
                // The first of the rest was refused; the others may fare better.
                failed += 1;
                at += 1;
            }
        }
    }
    failed
}

/// Writes the control message that sets the source address, and returns the length of the control area.
fn set_source(control: &mut Control, from: Ipv4Addr) -> usize {
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr {
            s_addr: u32::from(from).to_be(),
        },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    // SAFETY: the area is aligned and longer than one control message with an in_pktinfo.
    unsafe {
        let space = libc::CMSG_SPACE(mem::size_of::<libc::in_pktinfo>() as _) as usize;
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = space as _;
        if let Some(message) = libc::CMSG_FIRSTHDR(&raw const header).as_mut() {
            message.cmsg_level = libc::IPPROTO_IP;
            message.cmsg_type = libc::IP_PKTINFO;
            message.cmsg_len = libc::CMSG_LEN(mem::size_of::<libc::in_pktinfo>() as _) as _;
            libc::CMSG_DATA(message)
                .cast::<libc::in_pktinfo>()
                .write_unaligned(info);
        }
        space
    }
}
