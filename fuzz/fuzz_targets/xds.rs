//! Whatever an Envoy asks for, in whatever order: no panic, and never more than one response of a kind on its way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use oooi_xds::resources::Resources;
use oooi_xds::stream::{Stream, Variant};
use oooi_xds::wire;

fuzz_target!(|bytes: &[u8]| {
    for variant in [Variant::StateOfTheWorld, Variant::Delta] {
        let resources = Resources::default();
        let mut stream = Stream::new(variant);
        // Each request has a byte for its length before it.
        let mut rest = bytes;
        while let Some((length, after)) = rest.split_first() {
            let (request, after) = after.split_at(usize::from(*length).min(after.len()));
            rest = after;
            if let Ok(incoming) = wire::decode(variant, request) {
                stream.request(incoming.request, &resources);
            }
            for _ in 0..3 {
                let _ = stream.next(&resources);
            }
            assert!(stream.next(&resources).is_none());
            let _ = (stream.is_gated(&resources), stream.is_settled(&resources));
        }
    }
});
