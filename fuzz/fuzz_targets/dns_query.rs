//! Whatever a client sends: no panic, and what is accepted can be answered within its limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oooi_dns::answer;
use oooi_dns::wire::Rcode;
use oooi_dns::wire::query::{Query, Rejection};
use oooi_dns::wire::writer::Writer;

fuzz_target!(|message: &[u8]| {
    let mut out = [0; 1232];
    match Query::parse(message) {
        Ok(query) => {
            let limit = query.udp_limit();
            let length = answer::any(&mut out, limit, &query, u32::MAX);
            assert!(length > 0 && length <= limit.max(512));
            assert!(answer::fail(&mut out, limit, &query, Rcode::SERVFAIL, true, None) > 0);
        }
        Err(Rejection::Code { rcode, question, edns }) => {
            let length = Writer::reject(&mut out, message, question, rcode, edns);
            assert!(length >= 12, "a rejection has a header");
        }
        Err(Rejection::Silence(_)) => {}
    }
});
