//! Ethernet hardware addresses.

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address. Written as six pairs of hexadecimal digits with colons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The address of every station on the link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Whether the address can belong to one station: not zero, not a group.
    pub fn is_unicast(self) -> bool {
        self.0 != [0; 6] && self.0[0] & 1 == 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Text that is not a hardware address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a hardware address: write six pairs of hexadecimal digits, such as 02:00:00:00:00:01")]
pub struct BadMac(pub String);

impl FromStr for Mac {
    type Err = BadMac;

    /// Reads `02:00:00:00:00:01`; dashes do as well.
    fn from_str(text: &str) -> Result<Self, BadMac> {
        let bad = || BadMac(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(bad)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        match parts.next() {
            None => Ok(Mac(bytes)),
            Some(_) => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_read_as_it_is_written() {
        let mac: Mac = "02:00:5E:00-53-fe".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:5e:00:53:fe");
    }

    #[test]
    fn what_is_not_a_hardware_address_is_refused() {
        for text in [
            "",
            "02:00:5e:00:53",
            "02:00:5e:00:53:fe:00",
            "2:0:5e:0:53:fe",
            "02:00:5e:00:53:+e",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
