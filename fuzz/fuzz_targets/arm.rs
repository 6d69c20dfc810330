//! Whatever Azure's resource manager answers: no panic, and an address that is put on an interface and taken away again
//! leaves the interface as it was.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use oooi_cloud::azure::testing::{read, there_and_back};

fuzz_target!(|input: (u32, &str)| {
    let (address, text) = input;
    read(text);
    if let Some((before, after)) = there_and_back(text, Ipv4Addr::from_bits(address)) {
        assert_eq!(before, after);
    }
});
