//! Watches that had to begin anew.
//!
//! A watch that was cut off for too long lists everything again. What was deleted in between is in no event and in no
//! list, so nothing would wake whoever depended on it. After such a gap everything is looked at once: a look that
//! finds nothing to do costs a few reads, and gaps are rare. So it is after a first list that came so late that nobody
//! waits for it any more.

use std::time::Instant;

use futures_util::stream::{self, Stream, StreamExt};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use tokio::sync::watch;

use crate::first_look::LIMIT;

/// The gaps in the watches of one controller. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Gaps(watch::Sender<()>);

impl Gaps {
    /// The objects of a watch that came, changed or went. It is noted when the watch begins anew; a store that it fills
    /// is to be filled before.
    pub(crate) fn touched<K>(
        &self,
        events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    ) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
    where
        K: Send + 'static,
    {
        let (gaps, began, mut is_listed) = (self.0.clone(), Instant::now(), false);
        events
            .inspect(move |event| {
                if matches!(event, Ok(Event::InitDone)) {
                    let is_late = began.elapsed() >= LIMIT;
                    if std::mem::replace(&mut is_listed, true) || is_late {
                        gaps.send_replace(());
                    }
                }
            })
            .touched_objects()
    }

    /// An item after every gap, or after several.
    pub(crate) fn items(&self) -> impl Stream<Item = ()> + Send + 'static {
        stream::unfold(self.0.subscribe(), |mut gaps| async move {
            gaps.changed().await.ok()?;
            Some(((), gaps))
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn list() -> [Event<ConfigMap>; 3] {
        [
            Event::Init,
            Event::InitApply(ConfigMap::default()),
            Event::InitDone,
        ]
    }

    async fn gaps_of(events: Vec<Event<ConfigMap>>) -> (usize, bool) {
        let gaps = Gaps::default();
        let mut items = Box::pin(gaps.items());
        let touched = gaps
            .touched(stream::iter(events.into_iter().map(Ok)))
            .count()
            .await;
        (touched, items.next().now_or_never().is_some())
    }

    #[tokio::test]
    async fn the_first_list_of_a_watch_is_no_gap_and_every_later_one_is() {
        let mut events = list().to_vec();
        events.push(Event::Delete(ConfigMap::default()));
        assert_eq!(gaps_of(events.clone()).await, (2, false));
        // Nothing is left: no object tells of it.
        events.extend([Event::Init, Event::InitDone]);
        assert_eq!(gaps_of(events).await, (2, true));
    }
}
