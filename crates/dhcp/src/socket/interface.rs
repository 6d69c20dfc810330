//! What the system knows of an interface, and the packet socket on it.

#![allow(
    unsafe_code,
    reason = "these calls have no safe wrapper; each block says why it is sound"
)]

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket as Raw, Type};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::mac::Mac;

/// A socket whose readiness the runtime watches.
pub(super) fn watched(socket: Raw) -> io::Result<AsyncFd<Raw>> {
    // SAFETY: the socket owns its descriptor and keeps the same one until it is dropped.
    // Reading alone: with writing each packet that left would wake the server once more.
    Ok(unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) }?)
}

/// The number of an interface.
pub(super) fn index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the argument is a string that ends in NUL and lives for the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The IPv4 addresses of an interface.
pub(super) fn addresses(name: &str) -> io::Result<Vec<Ipv4Addr>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs writes a list to the pointer, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut addresses = Vec::new();
    let mut entry = list;
    // SAFETY: the list is whole until it is freed; names end in NUL; an address of family AF_INET is a sockaddr_in.
    unsafe {
        while let Some(interface) = entry.as_ref() {
            let address = interface.ifa_addr;
            if !address.is_null()
                && i32::from((*address).sa_family) == libc::AF_INET
                && CStr::from_ptr(interface.ifa_name).to_bytes() == name.as_bytes()
            {
                let address = &*address.cast::<libc::sockaddr_in>();
                addresses.push(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)));
            }
            entry = interface.ifa_next;
        }
        libc::freeifaddrs(list);
    }
    Ok(addresses)
}

/// Makes a UDP socket say which address each packet was sent to.
pub(super) fn want_destination(socket: &Raw) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO)
}

/// Turns an option of a socket on that takes an int.
fn set(socket: &Raw, level: libc::c_int, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = mem::size_of_val(&on) as libc::socklen_t;
    // SAFETY: the value is an int, which lives for the call.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), length) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes up the right to raw sockets where this process has it and does not use it: so it is given by the file
/// capability of an image whose other pods must start without it. Where it is missing, the sockets say so.
pub(super) fn take_up_net_raw() {
    let Ok(mut sets) = capabilities(None) else { return };
    if sets.permitted.contains(CapabilitySet::NET_RAW) && !sets.effective.contains(CapabilitySet::NET_RAW) {
        sets.effective |= CapabilitySet::NET_RAW;
        let _ = set_capabilities(None, sets);
    }
}

/// A packet socket on an interface that hears ARP answers and DHCP servers, and nothing that this host sends.
pub(super) fn packet_socket(index: u32) -> io::Result<Raw> {
    // Protocol 0 hears nothing, so that nothing slips in before the filter is there.
    let socket = Raw::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(&FILTER.map(|(code, k, jt, jf)| SockFilter::new(code, jt, jf, k)))?;
    // The filter refuses what this host sends; so none of it is copied for it. Linux before 4.20 does not know this.
    let _ = set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING);
    socket.bind(&link(index))?;
    Ok(socket)
}

fn link(index: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: sockaddr_ll is one of the types that the storage is made for, and all zeros are a valid one.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the length is that of the type written above.
    unsafe { SockAddr::new(storage, mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

/// The hardware address of the interface that a packet socket is bound to, if it is Ethernet.
pub(super) fn mac(socket: &Raw) -> Option<Mac> {
    let mut address: MaybeUninit<libc::sockaddr_ll> = MaybeUninit::zeroed();
    let mut length = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the buffer has the length that is told; all zeros are a valid sockaddr_ll.
    let address = unsafe {
        if libc::getsockname(socket.as_raw_fd(), address.as_mut_ptr().cast(), &raw mut length) != 0 {
            return None;
        }
        address.assume_init()
    };
    let [a, b, c, d, e, f, _, _] = address.sll_addr;
    let ethernet = address.sll_hatype == libc::ARPHRD_ETHER && address.sll_halen == 6;
    ethernet.then_some(Mac([a, b, c, d, e, f]))
}

/// Code, operand, and how many instructions to skip if true and if false.
type Instruction = (u16, u32, u8, u8);

const fn op(code: u32, k: u32, jt: u8, jf: u8) -> Instruction {
    (code as u16, k, jt, jf)
}

/// Not sent by this host, and either an ARP answer or a whole UDP packet from port 67 to port 68.
const FILTER: [Instruction; 18] = {
    use libc::{
        BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_MSH, BPF_RET,
    };
    const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    [
        op(BPF_LD | BPF_B | BPF_ABS, PACKET_TYPE, 0, 0),
        op(BPF_JMP | BPF_JEQ | BPF_K, libc::PACKET_OUTGOING as u32, 15, 0), // our own: refuse
        op(BPF_LD | BPF_H | BPF_ABS, 12, 0, 0),                             // EtherType
        op(BPF_JMP | BPF_JEQ | BPF_K, 0x0806, 0, 2),                        // ARP: on; else three down
        op(BPF_LD | BPF_H | BPF_ABS, 20, 0, 0),                             // ARP operation
        op(BPF_JMP | BPF_JEQ | BPF_K, 2, 10, 11),                           // answer: take; else refuse
        op(BPF_JMP | BPF_JEQ | BPF_K, 0x0800, 0, 10),                       // IPv4 or refuse
        op(BPF_LD | BPF_B | BPF_ABS, 23, 0, 0),                             // IP protocol
        op(BPF_JMP | BPF_JEQ | BPF_K, 17, 0, 8),                            // UDP or refuse
        op(BPF_LD | BPF_H | BPF_ABS, 20, 0, 0),                             // fragment offset
        op(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 6, 0),                       // a later fragment: refuse
        op(BPF_LDX | BPF_B | BPF_MSH, 14, 0, 0),                            // length of the IP header
        op(BPF_LD | BPF_H | BPF_IND, 14, 0, 0),                             // source port
        op(BPF_JMP | BPF_JEQ | BPF_K, 67, 0, 3),                            // 67 or refuse
        op(BPF_LD | BPF_H | BPF_IND, 16, 0, 0),                             // destination port
        op(BPF_JMP | BPF_JEQ | BPF_K, 68, 0, 1),                            // 68 or refuse
        op(BPF_RET | BPF_K, 0xffff, 0, 0),                                  // take
        op(BPF_RET | BPF_K, 0, 0, 0),                                       // refuse
    ]
};
