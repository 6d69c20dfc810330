//! How the server is, and when it says so.
//!
//! States are announced at most once a second; events when something begins or ends, not for every packet.

use std::collections::BTreeMap;
use std::time::Duration;

use oooi_api::report::{Event, Report, ServerReport};
use tracing::{error, info, warn};

use crate::config::Config;
use crate::leases::Leases;
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::time::Timestamp;

/// The least time between two announcements.
const EVERY: Duration = Duration::from_secs(1);
/// Leases expire without a packet, so that counts change even when nothing else does.
const ANYWAY: Duration = Duration::from_secs(60);
/// A full pool is said again after this time.
const FULL_AGAIN: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Standing {
    announced: Option<Timestamp>,
    /// Something changed that was not announced yet.
    changed: bool,
    /// When a lease was last given, renewed or freed.
    lease_changed: Option<Timestamp>,
    store_failing: bool,
    /// The shared store is away: only renewals go on.
    store_away: bool,
    /// When a client last found the pool full.
    full: Option<Timestamp>,
}

impl Standing {
    /// Nothing was announced yet; `lease_changed` is when a lease last changed before the start.
    pub(super) fn new(lease_changed: Option<Timestamp>) -> Self {
        Standing {
            lease_changed,
            ..Standing::default()
        }
    }

    /// Something that the announcement speaks of may have changed.
    pub(super) fn changed(&mut self) {
        self.changed = true;
    }

    /// A lease was given, renewed or freed.
    pub(super) fn leases_changed(&mut self, now: Timestamp) {
        self.lease_changed = Some(now);
        self.changed();
    }

    /// When the next announcement is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let announced = self.announced?;
        Some(announced.after(if self.changed { EVERY } else { ANYWAY }))
    }

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.announced.is_none() || self.next().is_some_and(|next| next <= now)
    }

    pub(super) fn pool_is_full(&mut self, config: &Config, report: &dyn Report, now: Timestamp) {
        if self.full.is_none_or(|full| full.after(FULL_AGAIN) <= now) {
            let range = config.pool.range();
            warn!(
                pool = config.pool_size(),
                "a client got no address: the pool is full"
            );
            report.event(Event::warning(
                "PoolExhausted",
                format!(
                    "all {} addresses from {} to {} are leased and a client got none: widen the range or shorten leaseTime",
                    config.pool_size(), range.first(), range.last()
                ),
            ));
            self.full = Some(now);
            self.changed();
        }
    }

    /// The shared store went away or came back.
    pub(super) fn store_is_away(&mut self, away: bool) {
        self.store_away = away;
    }

    /// Whether only clients that have a lease are served.
    pub(super) fn is_away(&self) -> bool {
        self.store_away
    }

    /// A batch was stored. True if that is news.
    pub(super) fn store_works(&mut self, report: &dyn Report) -> bool {
        let news = std::mem::replace(&mut self.store_failing, false);
        if news {
            info!("leases can be stored again");
            report.event(Event::normal("LeaseStoreRecovered", "leases can be stored again"));
            self.changed();
        }
        news
    }

    /// A batch was not stored.
    pub(super) fn store_fails(&mut self, cause: &StoreError, leases: usize, report: &dyn Report) {
        if !std::mem::replace(&mut self.store_failing, true) {
            error!(error = %cause, leases, "leases cannot be stored: clients get no ACK until they can");
            report.event(Event::warning(
                "LeaseStoreFailed",
                format!("clients get no addresses: {cause}"),
            ));
            self.changed();
        }
    }

    /// Says how the server is.
    pub(super) fn announce(
        &mut self,
        config: &Config,
        leases: &Leases,
        rogues: usize,
        metrics: &Metrics,
        report: &dyn Report,
        now: Timestamp,
    ) {
        let (active, quarantined) = leases.iter().fold((0, 0), |(active, quarantined), lease| {
            let (is_active, is_quarantined) = (lease.is_active(now), lease.is_quarantined(now));
            (
                active + usize::from(is_active),
                quarantined + usize::from(is_quarantined),
            )
        });
        if leases.free(config, now).is_some() {
            self.full = None;
        }
        let count = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let pool = i64::try_from(config.pool_size()).unwrap_or(i64::MAX);
        metrics.active.set(count(active));
        metrics.quarantined.set(count(quarantined));
        metrics.offers.set(count(leases.offers()));
        metrics.pool_size.set(pool);
        metrics.pool_exhausted.set(i64::from(self.full.is_some()));
        metrics.rogue_servers.set(count(rogues));
        let mut counts = BTreeMap::from([
            ("activeLeases".to_owned(), count(active)),
            ("totalLeases".to_owned(), pool),
            ("quarantined".to_owned(), count(quarantined)),
            ("rogueServers".to_owned(), count(rogues)),
            ("poolExhausted".to_owned(), i64::from(self.full.is_some())),
            (
                "storeFailing".to_owned(),
                i64::from(self.store_failing || self.store_away),
            ),
        ]);
        if let Some(changed) = self.lease_changed {
            counts.insert(
                "lastLeaseChange".to_owned(),
                i64::try_from(changed.0 / 1000).unwrap_or(0),
            );
        }
        report.state(ServerReport {
            accepted: true,
            addresses: vec![config.server.to_string()],
            counts,
            ..ServerReport::default()
        });
        self.announced = Some(now);
        self.changed = false;
    }
}

#[cfg(test)]
mod tests {
    use oooi_api::report::Recorded;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::testing::fixture;

    #[test]
    fn the_last_change_of_a_lease_is_said_until_a_lease_changes_again() {
        let (config, told) = (fixture::config(|_| {}), Recorded::default());
        let metrics = Metrics::register(&mut Registry::default());
        let leases = Leases::new(&config, vec![], Timestamp(0));
        let announced = |standing: &mut Standing, second: u64| {
            let now = Timestamp(second * 1000);
            standing.announce(&config, &leases, 0, &metrics, &told, now);
            let counts = told.latest().unwrap().counts;
            counts.get("lastLeaseChange").copied()
        };
        assert_eq!(announced(&mut Standing::default(), 1), None);
        let mut standing = Standing::new(Some(Timestamp(5_000)));
        assert_eq!(announced(&mut standing, 6), Some(5), "of before the start");
        standing.leases_changed(Timestamp(7_000));
        assert_eq!(announced(&mut standing, 8), Some(7));
        standing.changed();
        assert_eq!(announced(&mut standing, 9), Some(7), "something else changed");
    }

    #[test]
    fn what_changed_is_announced_within_a_second_and_anything_else_within_a_minute() {
        let mut standing = Standing {
            announced: Some(Timestamp(0)),
            ..Standing::default()
        };
        assert_eq!(standing.next(), Some(Timestamp(60_000)));
        standing.changed();
        assert_eq!(standing.next(), Some(Timestamp(1_000)));
    }
}
