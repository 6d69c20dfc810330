//! The header of the PROXY protocol, version 2, by which a backend learns who the client is.

use std::net::{IpAddr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_2_PROXY: u8 = 0x21;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

/// The header of a TCP connection from `client`, which reached the gateway at `gateway`. Where one address is
/// IPv4 and the other IPv6, both are written as IPv6.
pub fn header(client: SocketAddr, gateway: SocketAddr) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.push(VERSION_2_PROXY);
    match (client.ip().to_canonical(), gateway.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            header.extend([TCP_OVER_IPV4, 0, 12]);
            header.extend(source.octets());
            header.extend(destination.octets());
        }
        (source, destination) => {
            header.extend([TCP_OVER_IPV6, 0, 36]);
            for address in [source, destination] {
                let v6 = match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                header.extend(v6.octets());
            }
        }
    }
    header.extend(client.port().to_be_bytes());
    header.extend(gateway.port().to_be_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_header_is_as_the_specification_draws_it() {
        let bytes = header(([192, 0, 2, 7], 0x1234).into(), ([192, 0, 2, 4], 443).into());
        let mut expected = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x21\x11\x00\x0c".to_vec();
        expected.extend([192, 0, 2, 7, 192, 0, 2, 4, 0x12, 0x34, 0x01, 0xbb]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn mixed_addresses_are_written_as_ipv6() {
        let bytes = header("[2001:db8::1]:1".parse().unwrap(), ([192, 0, 2, 4], 443).into());
        assert_eq!(bytes[13..16], [TCP_OVER_IPV6, 0, 36]);
        assert_eq!(bytes.len(), 16 + 36);
        let mapped = header(
            "[::ffff:192.0.2.7]:1".parse().unwrap(),
            ([192, 0, 2, 4], 443).into(),
        );
        assert_eq!(
            mapped[13], TCP_OVER_IPV4,
            "a dual-stack socket shows IPv4 clients as mapped"
        );
    }
}
