//! Keeps the manager's certificate in a Secret, from which every replica takes it, and trusted by the API server.
//!
//! The leader makes a new one in time. It is trusted before it is served: first the webhook's configuration gets both
//! the new and the old one, then the Secret changes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use super::certificate::Certificate;
use super::tls::Serves;
use crate::apply::{self, Writer};
use crate::identity;
use crate::lease::Term;
use crate::metrics::Metrics;

/// The name under which this writes.
const MANAGER: &str = "oooi-certificate";
/// The Secret.
pub(crate) const SECRET: &str = "oooi-manager-certificate";
/// The configuration of the webhook.
const CONFIGURATION: &str = "oooi";
/// The Services that lead to the manager.
const SERVICES: [&str; 2] = ["oooi-webhook", "oooi-metrics"];
/// Annotations of the Secret: what its certificate does not say in words.
const NAMES: &str = "hostedcluster.densityops.com/names";
const RENEW_AT: &str = "hostedcluster.densityops.com/renew-at";
/// The longest pause between two looks at the clock.
const LOOK: Duration = Duration::from_secs(3600);
/// How long is waited after the first failure, and after many: twice as long each time.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("no certificate can be made: {0}")]
    Make(#[from] rcgen::Error),
    #[error(transparent)]
    Apply(#[from] apply::Error),
}

/// The names of the Services that lead to managers in this namespace.
pub fn names(namespace: &str) -> Vec<String> {
    let services = SERVICES.iter();
    services
        .map(|service| format!("{service}.{namespace}.svc"))
        .collect()
}

/// Keeps one certificate for all managers of a namespace.
pub struct Keeper {
    client: Client,
    namespace: String,
    names: Vec<String>,
    writer: Writer,
    leading: watch::Receiver<Term>,
    serves: Serves,
    metrics: Metrics,
}

impl Keeper {
    /// For managers in this namespace, which are reached by these names.
    pub fn new(
        client: Client,
        namespace: String,
        names: Vec<String>,
        leading: watch::Receiver<Term>,
        serves: Serves,
        metrics: Metrics,
    ) -> Self {
        let writer = Writer::new(client.clone(), MANAGER, leading.clone());
        Keeper {
            client,
            namespace,
            names,
            writer,
            leading,
            serves,
            metrics,
        }
    }

    /// Serves the certificate, and while it leads renews it. Ends only by being dropped.
    pub async fn keep(mut self) {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let mut secrets = Box::pin(watcher::watch_object(secrets, SECRET).default_backoff());
        let configurations =
            Api::<PartialObjectMeta<ValidatingWebhookConfiguration>>::all(self.client.clone());
        let mut configurations =
            Box::pin(watcher::watch_object(configurations, CONFIGURATION).default_backoff());
        // Nothing is made before it is known whether there is one.
        let mut looked = false;
        let mut current: Option<Certificate> = None;
        let mut failures = 0_u32;
        loop {
            tokio::select! {
                Some(event) = secrets.next() => match event {
                    Ok(secret) => {
                        looked = true;
                        current = secret.as_ref().and_then(read);
                        self.serve(current.as_ref());
                    }
                    Err(error) => tracing::debug!(%error, "the certificate cannot be watched, trying again"),
                },
                Some(_) = configurations.next() => {}
                Ok(()) = self.leading.changed() => {}
                () = tokio::time::sleep(pause(failures)) => {}
            }
            failures = match self.look(looked, &mut current).await {
                Ok(()) => 0,
                Err(error) => {
                    tracing::warn!(%error, "the certificate is not as it should be, trying again");
                    failures.saturating_add(1)
                }
            };
        }
    }

    /// Makes things as they should be, if this is the process that does so and it knows how they are.
    async fn look(&self, looked: bool, current: &mut Option<Certificate>) -> Result<(), Error> {
        if looked
            && self.leading.borrow().runs()
            && let Some(new) = self.ensure(current.as_ref(), Timestamp::now()).await?
        {
            // The watch may tell of it later than of something else, which must not bring about another one.
            *current = Some(new);
        }
        Ok(())
    }

    fn serve(&self, certificate: Option<&Certificate>) {
        let Some(certificate) = certificate else { return };
        match self.serves.take_up(certificate) {
            Ok(()) => self.metrics.certificate_ends(SECRET, certificate.ends_at()),
            Err(error) => {
                tracing::warn!(%error, secret = SECRET, "delete the Secret, and a new certificate is made");
            }
        }
    }

    /// Makes a certificate if there is no good one, and has it trusted. Gives the one that was made; the watch brings it
    /// to be served.
    async fn ensure(
        &self,
        current: Option<&Certificate>,
        now: Timestamp,
    ) -> Result<Option<Certificate>, Error> {
        if let Some(good) = current.filter(|current| current.is_good(&self.names, now)) {
            self.writer.trust(CONFIGURATION, &good.trusted).await?;
            return Ok(None);
        }
        let new = Certificate::new(&self.names, current, now)?;
        self.writer.trust(CONFIGURATION, &new.trusted).await?;
        self.writer.apply(&write(&self.namespace, &new)).await?;
        tracing::info!(renew_at = %new.renew_at, "made a certificate");
        Ok(Some(new))
    }
}

/// How long to wait for the next look at the clock, after so many failures in a row.
fn pause(failures: u32) -> Duration {
    let (first, longest) = PAUSES;
    match failures.checked_sub(1) {
        None => LOOK,
        Some(further) => first.saturating_mul(1 << further.min(10)).min(longest),
    }
}

/// The Secret of a certificate.
fn write(namespace: &str, certificate: &Certificate) -> Secret {
    let Certificate {
        certificate,
        key,
        trusted,
        names,
        renew_at,
    } = certificate;
    let bytes = |text: &String| ByteString(text.clone().into_bytes());
    Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(identity::labels("manager", None)),
            annotations: Some(BTreeMap::from([
                (NAMES.to_owned(), names.join(",")),
                (RENEW_AT.to_owned(), renew_at.to_string()),
            ])),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(BTreeMap::from([
            ("tls.crt".to_owned(), bytes(certificate)),
            ("tls.key".to_owned(), bytes(key)),
            ("ca.crt".to_owned(), bytes(trusted)),
        ])),
        ..Secret::default()
    }
}

/// The certificate of a Secret, if it can be read. One that cannot is as good as none.
fn read(secret: &Secret) -> Option<Certificate> {
    let annotations = secret.metadata.annotations.as_ref()?;
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    Some(Certificate {
        certificate: text("tls.crt")?,
        key: text("tls.key")?,
        trusted: text("ca.crt")?,
        names: annotations.get(NAMES)?.split(',').map(str::to_owned).collect(),
        renew_at: annotations.get(RENEW_AT)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_the_next_attempt_comes_soon() {
        assert_eq!(pause(0), LOOK);
        assert_eq!(pause(1), Duration::from_secs(5));
        assert_eq!(pause(2), Duration::from_secs(10));
        assert_eq!(pause(u32::MAX), Duration::from_secs(300));
    }

    #[test]
    fn what_is_written_is_read_again_and_what_is_damaged_is_not() {
        let names = ["a.b.svc".to_owned(), "c.b.svc".to_owned()];
        let certificate = Certificate::new(&names, None, Timestamp::now()).unwrap();
        let mut secret = write("b", &certificate);
        assert!(read(&secret).is_some_and(|again| again == certificate));
        secret.data.as_mut().unwrap().remove("tls.key");
        assert!(read(&secret).is_none());
    }
}
