//! One watch of some objects that never ends: it lists, follows, and starts over when it breaks.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

/// Less than controllers take: nodes that boot, and connections to a pod that is gone, wait for this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a watch has to say.
#[derive(Debug)]
pub(crate) enum Seen<K> {
    /// All objects that there are now. What is not among them is gone.
    All(Vec<K>),
    /// An object is new or changed.
    Put(K),
    /// An object is gone.
    Gone(K),
    /// The API server does not answer, or does not serve the kind. Said once; `All` follows when it does again.
    Lost,
}

/// Follows all objects of an [`Api`] that a selector chooses.
///
/// After a break everything is listed anew, so that nothing is missed. A first break alone is not spoken of:
/// connections are cut by balancers every few minutes. From the second in a row on the watch is lost, and it is tried
/// again with backoff and jitter.
pub(crate) struct Watching<K: Resource> {
    api: Api<K>,
    config: watcher::Config,
    what: String,
    stream: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
    listed: Vec<K>,
    backoff: DefaultBackoff,
    retry: Option<Instant>,
    failures: u32,
}

impl<K> Watching<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// A watch; `what` names it in the log.
    pub(crate) fn new(api: Api<K>, config: watcher::Config, what: impl Into<String>) -> Self {
        Watching {
            api,
            config,
            what: what.into(),
            stream: None,
            listed: Vec::new(),
            backoff: DefaultBackoff::default(),
            retry: None,
            failures: 0,
        }
    }

    /// Starts over, since somebody else noticed that the API server is away.
    pub(crate) fn restart(&mut self) {
        self.stream = None;
        self.retry = None;
    }

    /// Waits for news. May be dropped unfinished and called again.
    pub(crate) async fn next(&mut self) -> Seen<K> {
        loop {
            if let Some(at) = self.retry {
                sleep_until(at).await;
                self.retry = None;
            }
            let stream = self
                .stream
                .get_or_insert_with(|| watcher(self.api.clone(), self.config.clone()).boxed());
            let error = match stream.next().await {
                Some(Ok(Event::Init)) => {
                    self.listed.clear();
                    continue;
                }
                Some(Ok(Event::InitApply(object))) => {
                    self.listed.push(object);
                    continue;
                }
                Some(Ok(Event::InitDone)) => {
                    if self.failures > 1 {
                        info!(what = self.what, "watched again");
                    }
                    self.failures = 0;
                    self.backoff.reset();
                    return Seen::All(std::mem::take(&mut self.listed));
                }
                Some(Ok(Event::Apply(object))) => return Seen::Put(object),
                Some(Ok(Event::Delete(object))) => return Seen::Gone(object),
                // The history that was asked for is compacted away; the stream lists anew by itself.
                Some(Err(watcher::Error::WatchError(status))) if status.code == 410 => continue,
                Some(Err(error)) => Some(error),
                None => None,
            };
            if self.broke(error.as_ref()) {
                return Seen::Lost;
            }
        }
    }

    /// Plans the next attempt; whether the watch is lost by this.
    fn broke(&mut self, error: Option<&watcher::Error>) -> bool {
        self.stream = None;
        self.failures = self.failures.saturating_add(1);
        if self.failures == 1 {
            return false;
        }
        let pause = self.backoff.next().map_or(LONGEST_PAUSE, |pause| pause / 3);
        let pause = pause.min(LONGEST_PAUSE);
        self.retry = Some(Instant::now() + pause);
        let absent = error.is_some_and(is_absent);
        let error = error.map(ToString::to_string).unwrap_or_default();
        if self.failures > 2 {
            debug!(what = self.what, error, "still not watched");
        } else if absent {
            info!(
                what = self.what,
                "there is no such kind here yet; it is watched when it comes"
            );
        } else {
            warn!(
                what = self.what,
                error, "cannot be watched: what is known stays, and it is tried again"
            );
        }
        self.failures == 2
    }
}

/// Whether the API server answers, but serves no such kind.
fn is_absent(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
