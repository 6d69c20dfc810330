//! The load of the benchmarks where perfdhcp cannot ask faster: `dhcp_load SERVER LOCAL CLIENTS SECONDS LEASES SEED`.
//!
//! It speaks as a relay for so many clients at once. Each of them gets a lease by four messages and is followed by
//! another one with a new hardware address, so that the server has always as much to do as it can. It ends after so many
//! seconds or leases, and prints leases, clients that waited in vain, the seconds that it took, and how many microseconds
//! half, 99 % and 99.9 % of the clients waited at most from REQUEST to ACK.

mod datagrams;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use datagrams::{Datagrams, LONGEST};

/// A client that has waited so long gives up.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a client asks for: what perfdhcp's do.
const PARAMETERS: [u8; 9] = [55, 7, 1, 28, 2, 3, 15, 6, 12];
const REQUEST: u8 = 3;
const DISCOVER: u8 = 1;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, local, clients, seconds, most, seed] = arguments.as_slice() else {
        return Err("usage: dhcp_load SERVER LOCAL CLIENTS SECONDS LEASES SEED".into());
    };
    let (server, local): (Ipv4Addr, Ipv4Addr) = (server.parse()?, local.parse()?);
    let socket = UdpSocket::bind((local, 67))?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut clients = Clients {
        relay: local,
        seed: seed.parse()?,
        made: 0,
        asking: vec![(0, Instant::now()); clients.parse::<u16>()?.into()],
        waited: Vec::new(),
    };
    let to = SocketAddrV4::new(server, 67);
    let mut message = [0; LONGEST];
    for place in 0..clients.asking.len() {
        let length = clients.begin(place, &mut message);
        socket.send_to(&message[..length], to)?;
    }
    let (began, time) = (Instant::now(), Duration::from_secs(seconds.parse()?));
    let most: usize = most.parse()?;
    let (mut lost, mut looked) = (0u64, began);
    let mut datagrams = Datagrams::default();
    while clients.waited.len() < most && began.elapsed() < time {
        match datagrams.receive(&socket) {
            Ok(()) => {
                for at in 0..datagrams.count() {
                    let (octets, length) = datagrams.get(at);
                    *length = clients.follow(octets, *length);
                }
                datagrams.send(&socket)?;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
        if looked.elapsed() > Duration::from_millis(500) {
            looked = Instant::now();
            for place in 0..clients.asking.len() {
                if clients.asking[place].1.elapsed() > PATIENCE {
                    lost += 1;
                    let length = clients.begin(place, &mut message);
                    socket.send_to(&message[..length], to)?;
                }
            }
        }
    }
    let (seconds, mut waited) = (began.elapsed().as_secs_f64(), clients.waited);
    waited.sort_unstable();
    let [half, most, nearly_all] = [0.5, 0.99, 0.999].map(|share| {
        let at = (waited.len() as f64 * share) as usize;
        waited.get(at).map_or(0, Duration::as_micros)
    });
    println!("{} {lost} {seconds:.3} {half} {most} {nearly_all}", waited.len());
    Ok(())
}

/// Those who ask at this moment.
struct Clients {
    relay: Ipv4Addr,
    seed: u16,
    made: u32,
    /// By place: the number of the client, and when it asked last.
    asking: Vec<(u32, Instant)>,
    /// How long each that has its lease waited for the ACK.
    waited: Vec<Duration>,
}

impl Clients {
    /// Lets another client ask at a place. Returns how long its DISCOVER is.
    fn begin(&mut self, place: usize, octets: &mut [u8; LONGEST]) -> usize {
        self.made += 1;
        self.asking[place] = (self.made, Instant::now());
        let (number, place, seed) = (
            self.made.to_be_bytes(),
            (place as u16).to_be_bytes(),
            self.seed.to_be_bytes(),
        );
        octets[..300].fill(0);
        octets[..4].copy_from_slice(&[1, 1, 6, 1]);
        // The transaction says which place, and which of the clients that were there.
        octets[4..8].copy_from_slice(&[place[0], place[1], number[2], number[3]]);
        octets[24..28].copy_from_slice(&self.relay.octets());
        octets[28..34].copy_from_slice(&[2, seed[0], seed[1], number[1], number[2], number[3]]);
        octets[236..240].copy_from_slice(&[99, 130, 83, 99]);
        options(octets, &[&[53, 1, DISCOVER], &PARAMETERS])
    }

    /// Makes of an answer what its client says next. Returns how long that is.
    fn follow(&mut self, octets: &mut [u8; LONGEST], length: usize) -> usize {
        let place = usize::from(u16::from_be_bytes([octets[4], octets[5]]));
        let (kind, server) = said(&octets[240..length.max(240)]);
        let known = self
            .asking
            .get_mut(place)
            .filter(|(number, _)| octets[6..8] == number.to_be_bytes()[2..]);
        let Some((_, asked)) = known else {
            return 0; // of a client that gave up
        };
        let waited = std::mem::replace(asked, Instant::now()).elapsed();
        match (kind, server) {
            (2, Some(server)) => {
                let address: [u8; 4] = [octets[16], octets[17], octets[18], octets[19]];
                octets[0] = 1;
                octets[12..24].fill(0);
                let (address, server) = (option(50, address), option(54, server));
                options(octets, &[&[53, 1, REQUEST], &address, &server, &PARAMETERS])
            }
            (5, _) => {
                self.waited.push(waited);
                self.begin(place, octets)
            }
            _ => 0,
        }
    }
}

fn option(code: u8, [a, b, c, d]: [u8; 4]) -> [u8; 6] {
    [code, 4, a, b, c, d]
}

/// Writes options, and pads the message.
fn options(octets: &mut [u8; LONGEST], parts: &[&[u8]]) -> usize {
    octets[240..300].fill(0);
    let mut at = 240;
    for part in parts {
        octets[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    octets[at] = 255;
    300
}

/// Message type and server of an answer.
fn said(mut options: &[u8]) -> (u8, Option<[u8; 4]>) {
    let (mut kind, mut server) = (0, None);
    while let [code, rest @ ..] = options {
        if *code == 255 {
            break;
        }
        if *code == 0 {
            options = rest;
            continue;
        }
        let Some((value, rest)) = rest
            .split_first()
            .and_then(|(length, rest)| rest.split_at_checked((*length).into()))
        else {
            break;
        };
        match (*code, value) {
            (53, [said]) => kind = *said,
            (54, value) => server = value.try_into().ok(),
            _ => {}
        }
        options = rest;
    }
    (kind, server)
}
