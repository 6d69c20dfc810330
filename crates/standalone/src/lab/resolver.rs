//! A resolver as a node's libc is one: a question by UDP, the addresses of the answer.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(2);

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
    #[error("{server} did not answer within {WAIT:?}")]
    Silence { server: Ipv4Addr },
    #[error("{server} answered {name} with {}", rcode(*.code))]
    Code {
        server: Ipv4Addr,
        name: String,
        code: u8,
    },
    #[error("{server} has no address for {name}")]
    NoAddress { server: Ipv4Addr, name: String },
    #[error("{server} sent what is not an answer")]
    Garbage { server: Ipv4Addr },
}

fn rcode(code: u8) -> String {
    match code {
        2 => "SERVFAIL".into(),
        3 => "NXDOMAIN".into(),
        5 => "REFUSED".into(),
        other => format!("code {other}"),
    }
}

/// The addresses of a name.
pub(crate) async fn resolve(server: Ipv4Addr, name: &str) -> Result<Vec<Ipv4Addr>, Error> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
    socket.connect((server, 53)).await?;
    socket.send(&question(name)).await?;
    let mut buffer = [0; 1500];
    let length = timeout(WAIT, socket.recv(&mut buffer))
        .await
        .map_err(|_| Error::Silence { server })??;
    let packet = buffer.get(..length).unwrap_or_default();
    match read(packet).ok_or(Error::Garbage { server })? {
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

fn question(name: &str) -> Vec<u8> {
    let mut message = vec![0x6f, 0x6f, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// The code and the A records of an answer.
fn read(packet: &[u8]) -> Option<(u8, Vec<Ipv4Addr>)> {
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
