//! How a server in a pod says how it is: its own entry of `status.servers[]`, and Events on its resource.
//!
//! The entry is written by server-side apply under a field manager of the pod's own, so that no pod touches
//! another's. It is written when it changed, at most once a second; what happens in between is one write. A write that
//! fails is tried again with backoff, and the log says it once. Nothing here keeps a server waiting.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::DefaultBackoff;
use oooi_api::report::{Event, Report, ServerReport};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::cluster::Own;
use crate::events::Recorder;
use crate::live::Verdict;

/// No entry is written more often.
const PACE: Duration = Duration::from_secs(1);
/// A write that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Events that may wait for the API server; more are dropped, with a word in the log.
const EVENTS: usize = 64;

/// Reports to the API server.
pub struct ClusterReport {
    told: watch::Sender<Told>,
    events: mpsc::Sender<Event>,
}

/// What the server and the follower of its configuration have to say.
#[derive(Clone, Debug, Default, PartialEq)]
struct Told {
    server: Option<ServerReport>,
    verdict: Verdict,
}

impl ClusterReport {
    /// Reports on a resource as this pod, until it is dropped.
    pub fn start(own: Own, pod: impl Into<String>) -> Arc<Self> {
        let pod = pod.into();
        let (told, changes) = watch::channel(Told::default());
        let (events, queue) = mpsc::channel(EVENTS);
        tokio::spawn(publish(Recorder::new(&own, &pod), queue, changes.clone()));
        tokio::spawn(write(own, pod, changes));
        Arc::new(ClusterReport { told, events })
    }

    /// The uid of the resource, if a version of it that names one was seen.
    pub fn uid(&self) -> Option<String> {
        self.told.borrow().verdict.uid.clone()
    }

    /// A version of the resource was accepted or refused.
    pub fn verdict(&self, verdict: Verdict) {
        if let Some(why) = &verdict.refused {
            let message = format!("the last good configuration stays: {why}");
            self.event(Event::warning("ConfigurationRefused", message));
        }
        self.told.send_if_modified(|told| {
            let news = told.verdict != verdict;
            told.verdict = verdict;
            news
        });
    }
}

impl Report for ClusterReport {
    fn state(&self, report: ServerReport) {
        self.told.send_if_modified(|told| {
            let news = told.server.as_ref() != Some(&report);
            told.server = Some(report);
            news
        });
    }

    fn event(&self, event: Event) {
        debug!(reason = event.reason, message = event.message, "event");
        if let Err(error) = self.events.try_send(event) {
            warn!(%error, "too many events wait for the API server: one is only in this log");
        }
    }
}

/// The entry: what the server says, and whether the newest version of its resource is what it serves.
fn entry(pod: &str, told: &Told) -> ServerReport {
    let Told { server, verdict } = told.clone();
    let server = server.unwrap_or_else(|| ServerReport {
        accepted: true,
        ..ServerReport::default()
    });
    ServerReport {
        pod: pod.to_owned(),
        uid: verdict.uid,
        generation: verdict.generation,
        accepted: server.accepted && verdict.refused.is_none(),
        message: verdict.refused.or(server.message),
        addresses: server.addresses,
        counts: server.counts,
    }
}

async fn write(own: Own, pod: String, mut changes: watch::Receiver<Told>) {
    let api = own.api();
    // The end of a pod's name is what tells it from others; a manager's name may have 128 characters.
    let tail: String = pod
        .chars()
        .rev()
        .take(100)
        .collect::<Vec<_>>()
        .into_iter()
        .rev()
        .collect();
    let manager = PatchParams::apply(&format!("oooi-server-{tail}")).force();
    let mut written = None;
    let mut trouble: Option<DefaultBackoff> = None;
    while changes.changed().await.is_ok() {
        loop {
            let entry = entry(&pod, &changes.borrow_and_update());
            if written.as_ref() == Some(&entry) {
                break;
            }
            let body = json!({
                "apiVersion": own.api_version(),
                "kind": own.kind(),
                "metadata": {"name": own.name},
                "status": {"servers": [entry]},
            });
            let patch = Patch::Apply(&body);
            let patching = tokio::time::timeout(PATIENCE, api.patch_status(&own.name, &manager, &patch));
            let failed = match patching.await {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            let Some(error) = failed else {
                if trouble.take().is_some() {
                    info!(resource = %own, "the status is written again");
                }
                written = Some(entry);
                tokio::time::sleep(PACE).await;
                break;
            };
            if trouble.is_none() {
                warn!(resource = %own, error, "the status cannot be written; it is tried again");
            }
            let pause = trouble
                .get_or_insert_default()
                .next()
                .unwrap_or(Duration::from_secs(30));
            tokio::time::sleep(pause).await;
            if changes.has_changed().is_err() {
                return;
            }
        }
    }
}

async fn publish(mut recorder: Recorder, mut queue: mpsc::Receiver<Event>, told: watch::Receiver<Told>) {
    while let Some(event) = queue.recv().await {
        let uid = told.borrow().verdict.uid.clone();
        match tokio::time::timeout(PATIENCE, recorder.publish(&event, uid, jiff::Timestamp::now())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(%error, reason = event.reason, message = event.message, "an event is only in this log");
            }
            Err(_) => warn!(
                reason = event.reason,
                message = event.message,
                "an event is only in this log"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(refused: Option<&str>, server: ServerReport) -> Told {
        Told {
            server: Some(server),
            verdict: Verdict {
                uid: Some("u".into()),
                generation: Some(3),
                refused: refused.map(str::to_owned),
            },
        }
    }

    #[test]
    fn an_entry_joins_what_the_server_and_the_follower_say() {
        let server = ServerReport {
            accepted: true,
            addresses: vec!["192.168.100.2".into()],
            ..ServerReport::default()
        };
        let entry = entry("pod-1", &told(None, server));
        assert_eq!(
            (entry.pod.as_str(), entry.generation, entry.accepted),
            ("pod-1", Some(3), true)
        );
        assert_eq!(entry.addresses, ["192.168.100.2"]);
    }

    #[test]
    fn a_refused_generation_is_not_accepted_whatever_the_server_says() {
        let server = ServerReport {
            accepted: true,
            ..ServerReport::default()
        };
        let entry = entry("pod-1", &told(Some("spec.x: is wrong"), server));
        assert!(!entry.accepted);
        assert_eq!(entry.message.as_deref(), Some("spec.x: is wrong"));
    }

    #[test]
    fn what_the_server_itself_refuses_is_not_accepted() {
        let server = ServerReport {
            message: Some("a listener was refused".into()),
            ..ServerReport::default()
        };
        let entry = entry("pod-1", &told(None, server));
        assert!(!entry.accepted && entry.message.is_some());
    }
}
