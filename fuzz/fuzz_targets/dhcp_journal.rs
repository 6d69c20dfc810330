//! Any bytes as a journal of leases: refused or read, never a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|journal: &[u8]| {
    let _ = oooi_dhcp::store::journal::check(journal);
});
