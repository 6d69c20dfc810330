//! Whatever an upstream sends: no panic, and what is kept can be read again and changes no more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oooi_dns::wire::name;
use oooi_dns::wire::reply::{Asked, Reply};

/// The most seconds for which anything is kept.
const CAP: u32 = 600;

fuzz_target!(|input: (u16, bool, &[u8])| {
    let (kind, dnssec_ok, message) = input;
    // The question is taken from the message, so that the records are reached.
    let Some(octets) = message.get(12..) else { return };
    let Some(length) = name::skip(octets) else { return };
    let asked = Asked {
        id: u16::from_be_bytes([message[0], message[1]]),
        name: octets[..length].into(),
        kind,
        dnssec_ok,
        spelling: true,
    };
    let Ok(kept) = Reply::read(message, &asked, CAP) else { return };
    let again = Asked { id: 0, ..asked };
    let mut same = Reply::read(&kept.message, &again, CAP).expect("what is kept can be read");
    same.edns = kept.edns; // OPT is never kept
    assert_eq!(same.message, kept.message, "what is kept is clean");
    for &at in &kept.ttls {
        let at = usize::from(at);
        let ttl = u32::from_be_bytes(kept.message[at..at + 4].try_into().expect("four octets"));
        assert!(ttl <= CAP && kept.lifetime <= ttl);
    }
});
