//! DHCP options: their numbers, and a view of those in a packet.
//!
//! [`Options`] borrows the packet. Its regions (the options field, then `file` and `sname` if option 52 says so)
//! are walked once by [`Options::new`], which refuses any option that runs over the end of its region; every later
//! look-up walks regions that are known to be sound. An option that occurs several times is one option in pieces
//! (RFC 3396). Nothing is copied unless it came in pieces.

use std::borrow::Cow;

use crate::message::Malformed;

/// Numbers of the options that the server knows by name.
#[allow(missing_docs, reason = "the names are those of RFC 2132 and its successors")]
pub mod code {
    pub const PAD: u8 = 0;
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTERS: u8 = 3;
    pub const DNS_SERVERS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN_NAME: u8 = 15;
    pub const MTU: u8 = 26;
    pub const BROADCAST_ADDRESS: u8 = 28;
    pub const NTP_SERVERS: u8 = 42;
    pub const VENDOR_SPECIFIC: u8 = 43;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_ID: u8 = 54;
    pub const PARAMETER_LIST: u8 = 55;
    pub const MESSAGE: u8 = 56;
    pub const MAX_MESSAGE_SIZE: u8 = 57;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const CLIENT_ID: u8 = 61;
    pub const TFTP_SERVER: u8 = 66;
    pub const BOOT_FILE: u8 = 67;
    pub const RAPID_COMMIT: u8 = 80;
    pub const FQDN: u8 = 81;
    pub const RELAY_AGENT: u8 = 82;
    pub const SUBNET_SELECTION: u8 = 118;
    pub const DOMAIN_SEARCH: u8 = 119;
    pub const CLASSLESS_ROUTES: u8 = 121;
    pub const END: u8 = 255;
}

/// The options of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// In the order in which pieces of one option are joined: options, `file`, `sname` (RFC 3396, section 5).
    regions: [&'a [u8]; 3],
}

impl<'a> Options<'a> {
    /// Checks the options field and, where option 52 lends them, `file` and `sname`.
    pub(crate) fn new(options: &'a [u8], file: &'a [u8], sname: &'a [u8]) -> Result<Self, Malformed> {
        let mut overload = 0;
        for option in walk(options) {
            let (code, value) = option?;
            if code == code::OVERLOAD {
                match value {
                    // Twice is a contradiction even when both agree: the field is one byte long.
                    [lent @ 1..=3] if overload == 0 => overload = *lent,
                    _ => return Err(Malformed::Option(code::OVERLOAD)),
                }
            }
        }
        let mut regions: [&[u8]; 3] = [options, &[], &[]];
        if overload & 1 != 0 {
            regions[1] = file;
        }
        if overload & 2 != 0 {
            regions[2] = sname;
        }
        // An option 52 inside a lent field has no meaning and is passed over like any other unknown option.
        for region in &regions[1..] {
            for option in walk(region) {
                option?;
            }
        }
        Ok(Options { regions })
    }

    /// Every option with its value, pieces apart.
    pub fn iter(self) -> impl Iterator<Item = (u8, &'a [u8])> {
        self.regions
            .into_iter()
            .flat_map(|region| walk(region).map_while(Result::ok))
    }

    /// The value of an option, its pieces joined.
    pub fn get(self, code: u8) -> Option<Cow<'a, [u8]>> {
        let mut pieces = self.iter().filter(|(c, _)| *c == code).map(|(_, value)| value);
        let mut value = Cow::Borrowed(pieces.next()?);
        for piece in pieces {
            value.to_mut().extend_from_slice(piece);
        }
        Some(value)
    }

    /// The value of an option that has exactly `N` bytes, or the reason to refuse the packet.
    pub(crate) fn fixed<const N: usize>(self, code: u8) -> Result<Option<[u8; N]>, Malformed> {
        match self.get(code) {
            None => Ok(None),
            Some(value) => <[u8; N]>::try_from(&*value)
                .map(Some)
                .map_err(|_| Malformed::Option(code)),
        }
    }

    /// Whether the option is there at all.
    pub fn contains(self, code: u8) -> bool {
        self.iter().any(|(c, _)| c == code)
    }
}

/// Walks one region. After an error there is nothing more.
fn walk(region: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8]), Malformed>> {
    let mut rest = region;
    std::iter::from_fn(move || {
        loop {
            let (&code, after) = rest.split_first()?;
            rest = match code {
                code::PAD => after,
                code::END => return None,
                _ => {
                    let Some((value, after)) = after
                        .split_first()
                        .and_then(|(&length, after)| after.split_at_checked(length.into()))
                    else {
                        rest = &[];
                        return Some(Err(Malformed::Option(code)));
                    };
                    rest = after;
                    return Some(Ok((code, value)));
                }
            };
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_in_pieces_is_one_option_across_the_lent_fields() {
        let options = [52, 1, 3, 12, 2, b'a', b'b', 255];
        let file = [12, 1, b'c', 255];
        let sname = [0, 12, 2, b'd', b'e'];
        let options = Options::new(&options, &file, &sname).unwrap();
        assert_eq!(options.get(code::HOST_NAME).unwrap(), b"abcde".as_slice());
        assert!(matches!(options.get(code::OVERLOAD), Some(Cow::Borrowed([3]))));
    }

    #[test]
    fn fields_that_are_not_lent_are_not_read() {
        let options = Options::new(&[52, 1, 1, 255], &[255], &[12, 200]).unwrap();
        assert!(!options.contains(code::HOST_NAME));
    }

    #[test]
    fn an_option_that_runs_over_its_region_is_refused_wherever_it_is() {
        assert_eq!(
            Options::new(&[12, 3, 0, 0], &[], &[]).unwrap_err(),
            Malformed::Option(12)
        );
        assert_eq!(Options::new(&[12], &[], &[]).unwrap_err(), Malformed::Option(12));
        assert_eq!(
            Options::new(&[52, 1, 2], &[], &[66, 9]).unwrap_err(),
            Malformed::Option(66)
        );
    }

    #[test]
    fn an_overload_that_contradicts_itself_is_refused() {
        for bad in [&[52, 1, 4][..], &[52, 0], &[52, 2, 1, 1], &[52, 1, 1, 52, 1, 1]] {
            assert_eq!(
                Options::new(bad, &[], &[]).unwrap_err(),
                Malformed::Option(52),
                "{bad:?}"
            );
        }
    }
}
