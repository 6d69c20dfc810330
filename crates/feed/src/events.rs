//! Kubernetes Events on a server's resource. The same event again within ten minutes counts up the first.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as ClusterEvent, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use oooi_api::report::{Event, Severity};
use serde_json::json;

use crate::cluster::Own;

/// Within this an event that says the same is the same event.
const SERIES: SignedDuration = SignedDuration::from_mins(10);
/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// Publishes events of one pod on one resource.
pub(crate) struct Recorder {
    api: Api<ClusterEvent>,
    regarding: ObjectReference,
    pod: String,
    series: HashMap<(&'static str, String), Series>,
}

struct Series {
    name: String,
    count: i32,
    last: Timestamp,
}

impl Recorder {
    pub(crate) fn new(own: &Own, pod: &str) -> Self {
        Recorder {
            api: Api::namespaced(own.client.clone(), &own.namespace),
            regarding: ObjectReference {
                api_version: Some(own.api_version().to_owned()),
                kind: Some(own.kind().to_owned()),
                namespace: Some(own.namespace.clone()),
                name: Some(own.name.clone()),
                ..ObjectReference::default()
            },
            pod: pod.to_owned(),
            series: HashMap::new(),
        }
    }

    /// Publishes an event, or counts up the one that said the same before.
    pub(crate) async fn publish(
        &mut self,
        event: &Event,
        uid: Option<String>,
        now: Timestamp,
    ) -> Result<(), kube::Error> {
        self.series
            .retain(|_, series| now.duration_since(series.last) < SERIES);
        let key = (event.reason, event.message.clone());
        if let Some(series) = self.series.get_mut(&key) {
            let again = EventSeries {
                count: series.count + 1,
                last_observed_time: MicroTime(now),
            };
            let patch = json!({"series": again});
            let patched = self
                .api
                .patch(&series.name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            match patched {
                Ok(_) => {
                    series.count += 1;
                    series.last = now;
                    return Ok(());
                }
                // It has expired, or somebody removed it: it is told anew.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let name = format!(
            "{}.{:x}",
            self.regarding.name.as_deref().unwrap_or_default(),
            now.as_nanosecond()
        );
        let created = ClusterEvent {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: self.regarding.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            action: Some("Serve".into()),
            reason: Some(event.reason.into()),
            note: Some(shortened(&event.message)),
            type_: Some(
                match event.severity {
                    Severity::Normal => "Normal",
                    Severity::Warning => "Warning",
                }
                .into(),
            ),
            regarding: Some(ObjectReference {
                uid,
                ..self.regarding.clone()
            }),
            reporting_controller: Some("oooi".into()),
            reporting_instance: Some(self.pod.chars().take(128).collect()),
            ..ClusterEvent::default()
        };
        self.api.create(&PostParams::default(), &created).await?;
        let series = Series {
            name,
            count: 1,
            last: now,
        };
        self.series.insert(key, series);
        Ok(())
    }
}

/// As much of a text as a note may hold.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST_NOTE {
        return text.to_owned();
    }
    let mut end = LONGEST_NOTE - '…'.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_where_a_character_ends() {
        assert_eq!(shortened("short"), "short");
        for length in 1000..1100 {
            let text = format!("{}{}", "x".repeat(length % 3), "é".repeat(length));
            let note = shortened(&text);
            assert!(note.len() <= LONGEST_NOTE, "{}", note.len());
            assert!(text.starts_with(note.trim_end_matches('…')));
        }
    }
}
