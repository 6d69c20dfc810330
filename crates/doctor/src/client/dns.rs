//! A resolver as a node's libc is one: a question by UDP or TCP, the addresses of the answer.
//!
//! It shares no code with the server, so that the two cannot agree on a mistake.

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How long one answer may take. UDP is asked twice.
const WAIT: Duration = Duration::from_secs(1);
const PORT: u16 = 53;

/// How a question travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Transport {
    /// In a datagram.
    #[serde(rename = "UDP")]
    Udp,
    /// On a connection.
    #[serde(rename = "TCP")]
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Udp => "UDP",
            Transport::Tcp => "TCP",
        })
    }
}

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel refused, or the server's host did.
    #[error("{server} cannot be asked: {source}")]
    Socket {
        /// Who was asked.
        server: Ipv4Addr,
        /// Why it cannot be.
        source: io::Error,
    },
    /// Nobody answered.
    #[error("{server} did not answer")]
    Silence {
        /// Who was asked.
        server: Ipv4Addr,
    },
    /// The server said no.
    #[error("{server} answered {name} with {}", rcode(*.code))]
    Code {
        /// Who was asked.
        server: Ipv4Addr,
        /// For which name.
        name: String,
        /// What it said.
        code: u8,
    },
    /// The name is there, an address is not.
    #[error("{server} has no address for {name}")]
    NoAddress {
        /// Who was asked.
        server: Ipv4Addr,
        /// For which name.
        name: String,
    },
    /// What came is not an answer.
    #[error("{server} sent what is not an answer")]
    Garbage {
        /// Who was asked.
        server: Ipv4Addr,
    },
    /// No question can be made of the name.
    #[error("`{0}` is no name")]
    BadName(String),
}

/// The code of an answer in words.
pub fn rcode(code: u8) -> String {
    match code {
        2 => "SERVFAIL".into(),
        3 => "NXDOMAIN".into(),
        5 => "REFUSED".into(),
        other => format!("code {other}"),
    }
}

/// The addresses of a name.
pub async fn resolve(server: Ipv4Addr, name: &str, transport: Transport) -> Result<Vec<Ipv4Addr>, Error> {
    let question = question(name).ok_or_else(|| Error::BadName(name.into()))?;
    let failed = |source| Error::Socket { server, source };
    let packet = match transport {
        Transport::Udp => by_udp(server, &question).await,
        Transport::Tcp => match timeout(2 * WAIT, by_tcp(server, &question)).await {
            Ok(Ok(packet)) => Ok(Some(packet)),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        },
    };
    let packet = packet.map_err(failed)?.ok_or(Error::Silence { server })?;
    match read(&packet).ok_or(Error::Garbage { server })? {
        (0, addresses) if addresses.is_empty() => Err(Error::NoAddress {
            server,
            name: name.into(),
        }),
        (0, addresses) => Ok(addresses),
        (code, _) => Err(Error::Code {
            server,
            name: name.into(),
            code,
        }),
    }
}

async fn by_udp(server: Ipv4Addr, question: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect((server, PORT)).await?;
    let mut buffer = [0; 1500];
    for _ in 0..2 {
        socket.send(question).await?;
        if let Ok(length) = timeout(WAIT, socket.recv(&mut buffer)).await {
            return Ok(buffer.get(..length?).map(<[u8]>::to_vec));
        }
    }
    Ok(None)
}

async fn by_tcp(server: Ipv4Addr, question: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((server, PORT)).await?;
    let mut framed = (question.len() as u16).to_be_bytes().to_vec();
    framed.extend(question);
    stream.write_all(&framed).await?;
    let length = stream.read_u16().await?;
    let mut packet = vec![0; usize::from(length)];
    stream.read_exact(&mut packet).await?;
    Ok(packet)
}

/// The first two bytes of every question: each has a socket of its own, so it needs no other mark.
const ID: [u8; 2] = *b"oo";

fn question(name: &str) -> Option<Vec<u8>> {
    let mut message = [&ID[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.trim_end_matches('.').split('.') {
        let length = u8::try_from(label.len())
            .ok()
            .filter(|length| (1..64).contains(length))?;
        message.push(length);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    // The header has 12 bytes, type and class 4, and a name at most 255.
    (message.len() <= 12 + 4 + 255).then_some(message)
}

/// The code and the A records of an answer.
fn read(packet: &[u8]) -> Option<(u8, Vec<Ipv4Addr>)> {
    if packet.get(..2)? != ID {
        return None;
    }
    let code = packet.get(3)? & 15;
    let answers = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?);
    let mut at = after_name(packet, 12)? + 4;
    let mut addresses = Vec::new();
    for _ in 0..answers {
        at = after_name(packet, at)?;
        let fixed: &[u8; 10] = packet.get(at..at + 10)?.try_into().ok()?;
        let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let data = packet.get(at + 10..at + 10 + length)?;
        if fixed[..2] == [0, 1] {
            addresses.push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?));
        }
        at += 10 + length;
    }
    Some((code, addresses))
}

fn after_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer >= 0xc0 => return Some(at + 2),
            length => at += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn answer() -> Vec<u8> {
        let mut packet = question("api.lab.example.com").unwrap();
        packet[2..4].copy_from_slice(&[0x85, 0x80]);
        packet[7] = 1;
        packet.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 168, 100, 4]);
        packet
    }

    #[test]
    fn the_addresses_of_an_answer_are_read() {
        assert_eq!(read(&answer()), Some((0, vec![Ipv4Addr::new(192, 168, 100, 4)])));
    }

    #[test]
    fn no_prefix_of_an_answer_is_an_answer() {
        let packet = answer();
        for length in 0..packet.len() {
            assert_eq!(read(&packet[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_name_that_no_question_can_carry_is_refused() {
        for bad in ["", "a..b", &"x".repeat(64), &["abcdefg"; 40].join(".")] {
            assert!(question(bad).is_none(), "{bad}");
        }
    }
}
