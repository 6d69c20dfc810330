//! Any bytes as a frame of another station.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|frame: &[u8]| {
    let _ = oooi_dhcp::frame::hear(frame);
});
