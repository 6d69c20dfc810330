//! The floor of the benchmarks: the least that a DHCP server with these system calls costs.
//! `dhcp_floor ADDRESS JOURNAL` writes each lease and synchronises before its ACK; `dhcp_floor ADDRESS -` does not.
//!
//! It answers every relayed DISCOVER and REQUEST with the next address or the one asked for, checks nothing, remembers
//! nothing and serves no other client. No server that keeps its promises can be cheaper.

mod datagrams;

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, UdpSocket};

use datagrams::{Datagrams, LONGEST};

/// What an answer has at least.
const LENGTH: usize = 300;
/// About what a lease takes in a journal.
const RECORD: usize = 48;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(journal)) = (arguments.next(), arguments.next()) else {
        return Err("usage: dhcp_floor ADDRESS JOURNAL|-".into());
    };
    let server: Ipv4Addr = address.parse()?;
    let mut journal = if journal == "-" {
        None
    } else {
        Some(File::create(journal)?)
    };
    let socket = UdpSocket::bind((server, 67))?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(1 << 20)?;
    let mut datagrams = Datagrams::default();
    let mut next = u32::from(server) + 0x1000;
    let mut records = Vec::new();
    loop {
        datagrams.receive(&socket)?;
        records.clear();
        for at in 0..datagrams.count() {
            let (octets, length) = datagrams.get(at);
            if answer(octets, *length, server, &mut next) {
                records.extend_from_slice(&octets[4..4 + RECORD]);
            }
            *length = LENGTH;
        }
        if let Some(journal) = journal.as_mut().filter(|_| !records.is_empty()) {
            journal.write_all(&records)?;
            journal.sync_data()?;
        }
        datagrams.send(&socket)?;
    }
}

/// Makes an answer of a message in its place. True for an ACK.
fn answer(octets: &mut [u8; LONGEST], length: usize, server: Ipv4Addr, next: &mut u32) -> bool {
    let (mut requested, mut is_request) = (None, false);
    let mut at = 240;
    while at + 1 < length && octets[at] != 255 {
        match octets[at] {
            50 => requested = octets[at + 2..].first_chunk::<4>().copied(),
            53 => is_request = octets[at + 2] == 3,
            _ => {}
        }
        at += 2 + usize::from(octets[at + 1]);
    }
    let address = requested.unwrap_or_else(|| {
        *next += 1;
        next.to_be_bytes()
    });
    octets[0] = 2;
    octets[16..20].copy_from_slice(&address);
    octets[240..LENGTH].fill(0);
    let options = [
        &[53, 1, if is_request { 5 } else { 2 }, 54, 4][..],
        &server.octets(),
        &[
            51, 4, 0, 0, 14, 16, 1, 4, 255, 254, 0, 0, 58, 4, 0, 0, 7, 8, 59, 4, 0, 0, 12, 78, 255,
        ],
    ]
    .concat();
    octets[240..240 + options.len()].copy_from_slice(&options);
    is_request
}
