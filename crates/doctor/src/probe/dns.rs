//! Asks every resolver for every name, in both ways.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use futures_util::future::join_all;

use crate::client::dns::{Transport, resolve};
use crate::diagnose::dns::{Answer, outside, resolver};
use crate::expected::Expected;
use crate::report::Check;

/// Which name has which addresses.
pub(super) type Resolved = BTreeMap<String, Vec<Ipv4Addr>>;

/// Asks, and says what the names resolve to.
pub(super) async fn look(expected: &Expected) -> (Check, Resolved) {
    let mut resolved = Resolved::new();
    if expected.resolvers.is_empty() {
        return (Check::skipped("DNS", "there is no resolver to ask"), resolved);
    }
    let mut checks = Vec::new();
    for server in &expected.resolvers {
        let questions = expected.names.iter().flat_map(|(name, wanted)| {
            [Transport::Udp, Transport::Tcp].map(|transport| (name.clone(), wanted.clone(), transport))
        });
        let answers = join_all(questions.map(async |(name, wanted, transport)| Answer {
            server: *server,
            transport,
            got: resolve(*server, &name, transport).await,
            name,
            wanted,
        }))
        .await;
        for answer in &answers {
            if let Ok(addresses) = &answer.got {
                resolved
                    .entry(answer.name.clone())
                    .or_insert_with(|| addresses.clone());
            }
        }
        checks.push(resolver(*server, &answers));
        // A server that says nothing at all says nothing about others' names either.
        if let Some(asked) = expected
            .outside
            .as_ref()
            .filter(|_| answers.iter().any(|answer| answer.got.is_ok()))
        {
            let got = resolve(*server, &asked.name, Transport::Udp).await;
            checks.push(outside(asked, *server, &got));
        }
    }
    (Check::of("DNS", "", checks), resolved)
}
