//! Whatever an Envoy asks for, in whatever order, while the world changes: no panic, and never more than one response of
//! a kind on its way.
#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use oooi_proxy::config::Transport;
use oooi_proxy::route::Routes;
use oooi_proxy::snapshot::{Cluster, ListenerKey, Snapshot};
use oooi_xds::resources::Resources;
use oooi_xds::stream::{Stream, Variant};
use oooi_xds::wire;

/// Two worlds that have a backend in common: each has one that the other lacks.
static WORLDS: LazyLock<[Resources; 2]> = LazyLock::new(|| {
    let first = world(&Resources::default(), &[("a", 1), ("b", 1)]);
    let second = world(&first, &[("b", 2), ("c", 0)]);
    [first, second]
});

/// Backends with this many endpoints, each on a port of its own.
fn world(before: &Resources, backends: &[(&str, u8)]) -> Resources {
    let mut snapshot = Snapshot::default();
    let mut listeners = BTreeMap::new();
    for (name, endpoints) in backends {
        let cluster = Cluster {
            name: (*name).into(),
            transport: Transport::Tcp,
            endpoints: (0..*endpoints)
                .map(|last| ([10, 0, 0, last], 443).into())
                .collect(),
            known: *endpoints > 0,
            connect_budget: Duration::from_secs(5),
            proxy_protocol: false,
        };
        let key = ListenerKey {
            port: u16::from(name.as_bytes()[0]),
            transport: Transport::Tcp,
        };
        listeners.insert(key, Arc::new(Routes::Whole((*name).into())));
        snapshot.clusters.insert((*name).into(), Arc::new(cluster));
    }
    snapshot.listeners = Arc::new(listeners);
    Resources::next(before, &Arc::new(snapshot), &[[192, 0, 2, 4].into()])
}

fuzz_target!(|bytes: &[u8]| {
    for variant in [Variant::StateOfTheWorld, Variant::Delta] {
        let mut stream = Stream::new(variant);
        // Each request has a byte for its length before it.
        let mut rest = bytes;
        let mut worlds = WORLDS.iter().cycle();
        while let (Some((length, after)), Some(resources)) = (rest.split_first(), worlds.next()) {
            let (request, after) = after.split_at(usize::from(*length).min(after.len()));
            rest = after;
            if let Ok(incoming) = wire::decode(variant, request) {
                stream.request(incoming.request, resources);
            }
            match length % 4 {
                0 => stream.lift_gate(),
                1 => stream.restore_gate(),
                2 => stream.retry(),
                _ => {}
            }
            for _ in 0..3 {
                let _ = stream.next(resources);
            }
            assert!(stream.next(resources).is_none());
            let _ = (stream.is_gated(resources), stream.is_settled(resources));
        }
    }
});
