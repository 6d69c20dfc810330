//! DHCP options: their numbers, and those of a packet.
//!
//! [`Options`] borrows the packet. Its regions (the options field, then `file` and `sname` if option 52 says so) are
//! walked once: an option that runs over the end of its region is refused, the ones that the server looks at are kept,
//! and the others are passed over. An option that occurs several times is one option in pieces (RFC 3396). Nothing is
//! copied unless it came in pieces.

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

/// An option's value, its pieces joined; nothing if the packet does not have it.
pub type Value<'a> = Option<Cow<'a, [u8]>>;

/// The options of one packet that the server looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the numbers above")]
pub struct Options<'a> {
    pub host_name: Value<'a>,
    pub requested_address: Value<'a>,
    overload: Value<'a>,
    pub message_type: Value<'a>,
    pub server_id: Value<'a>,
    pub parameter_list: Value<'a>,
    pub max_message_size: Value<'a>,
    pub client_id: Value<'a>,
    pub rapid_commit: Value<'a>,
    pub fqdn: Value<'a>,
    pub relay_agent: Value<'a>,
}

impl<'a> Options<'a> {
    /// Reads the options field and, where option 52 lends them, `file` and `sname`.
    pub(crate) fn read(options: &'a [u8], file: &'a [u8], sname: &'a [u8]) -> Result<Self, Malformed> {
        let mut read = Options::default();
        read.take(options)?;
        let lent = match read.overload.as_deref() {
            None => 0,
            // Twice is a contradiction even when both agree: the field is one byte long.
            Some([lent @ 1..=3]) => *lent,
            Some(_) => return Err(Malformed::Option(code::OVERLOAD)),
        };
        // An option 52 inside a lent field has no meaning: it is not looked at again.
        if lent & 1 != 0 {
            read.take(file)?;
        }
        if lent & 2 != 0 {
            read.take(sname)?;
        }
        Ok(read)
    }

    /// Takes what one region has. Regions come in the order in which pieces are joined (RFC 3396, section 5).
    fn take(&mut self, region: &'a [u8]) -> Result<(), Malformed> {
        let mut rest = region;
        while let Some((&code, after)) = rest.split_first() {
            rest = match code {
                code::PAD => after,
                code::END => return Ok(()),
                _ => {
                    let (value, after) = after
                        .split_first()
                        .and_then(|(&length, after)| after.split_at_checked(length.into()))
                        .ok_or(Malformed::Option(code))?;
                    match self.slot(code) {
                        Some(Some(pieces)) => pieces.to_mut().extend_from_slice(value),
                        Some(slot) => *slot = Some(Cow::Borrowed(value)),
                        None => {}
                    }
                    after
                }
            };
        }
        Ok(())
    }

    fn slot(&mut self, code: u8) -> Option<&mut Value<'a>> {
        Some(match code {
            code::HOST_NAME => &mut self.host_name,
            code::REQUESTED_ADDRESS => &mut self.requested_address,
            code::OVERLOAD => &mut self.overload,
            code::MESSAGE_TYPE => &mut self.message_type,
            code::SERVER_ID => &mut self.server_id,
            code::PARAMETER_LIST => &mut self.parameter_list,
            code::MAX_MESSAGE_SIZE => &mut self.max_message_size,
            code::CLIENT_ID => &mut self.client_id,
            code::RAPID_COMMIT => &mut self.rapid_commit,
            code::FQDN => &mut self.fqdn,
            code::RELAY_AGENT => &mut self.relay_agent,
            _ => return None,
        })
    }
}

/// The value of an option that has exactly `N` bytes, or the reason to refuse the packet.
pub(crate) fn fixed<const N: usize>(value: &Value<'_>, code: u8) -> Result<Option<[u8; N]>, Malformed> {
    match value.as_deref() {
        None => Ok(None),
        Some(value) => <[u8; N]>::try_from(value)
            .map(Some)
            .map_err(|_| Malformed::Option(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_in_pieces_is_one_option_across_the_lent_fields() {
        let options = [52, 1, 3, 12, 2, b'a', b'b', 255];
        let file = [12, 1, b'c', 255];
        let sname = [0, 12, 2, b'd', b'e'];
        let options = Options::read(&options, &file, &sname).unwrap();
        assert_eq!(options.host_name.as_deref(), Some(b"abcde".as_slice()));
        assert!(matches!(options.overload, Some(Cow::Borrowed([3]))));
    }

    #[test]
    fn fields_that_are_not_lent_are_not_read() {
        let options = Options::read(&[52, 1, 1, 255], &[255], &[12, 200]).unwrap();
        assert_eq!(options.host_name, None);
    }

    #[test]
    fn an_option_that_runs_over_its_region_is_refused_wherever_it_is() {
        assert_eq!(
            Options::read(&[12, 3, 0, 0], &[], &[]).unwrap_err(),
            Malformed::Option(12)
        );
        assert_eq!(Options::read(&[12], &[], &[]).unwrap_err(), Malformed::Option(12));
        assert_eq!(
            Options::read(&[52, 1, 2], &[], &[66, 9]).unwrap_err(),
            Malformed::Option(66)
        );
    }

    #[test]
    fn an_overload_that_contradicts_itself_is_refused() {
        for bad in [&[52, 1, 4][..], &[52, 0], &[52, 2, 1, 1], &[52, 1, 1, 52, 1, 1]] {
            assert_eq!(
                Options::read(bad, &[], &[]).unwrap_err(),
                Malformed::Option(52),
                "{bad:?}"
            );
        }
    }
}
