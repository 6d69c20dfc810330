//! Whatever a client sends first: no panic, and the verdict does not depend on how it arrives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oooi_proxy::client_hello::{HelloError, MAX_RECEIVED, parse_client_hello};

fuzz_target!(|bytes: &[u8]| {
    let whole = parse_client_hello(bytes);
    assert!(whole != Err(HelloError::Incomplete) || bytes.len() < MAX_RECEIVED, "it waits for ever");
    if bytes.len() >= MAX_RECEIVED {
        return;
    }
    // Byte by byte until there is a verdict: it is the same as for all bytes at once.
    for end in 0..bytes.len() {
        match parse_client_hello(&bytes[..end]) {
            Err(HelloError::Incomplete) => {}
            early => {
                assert_eq!(early, whole, "after {end} bytes");
                break;
            }
        }
    }
});
