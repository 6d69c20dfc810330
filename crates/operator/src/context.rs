//! What every controller has at hand, and how it waits after a failure.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;

use crate::apply::Writer;
use crate::first_look::FirstLook;
use crate::metrics::Metrics;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);

/// The images that are used where a resource names none.
#[derive(Clone, Debug)]
pub struct Images {
    /// The image of this binary.
    pub oooi: String,
    /// The image of Envoy, if one is known.
    pub envoy: Option<String>,
}

/// What the cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// Kubernetes with Pod Security.
    #[default]
    Kubernetes,
    /// OpenShift, where SecurityContextConstraints decide what pods may ask for.
    OpenShift,
}

/// What the pods of all servers get.
#[derive(Clone, Debug, Default)]
pub struct Pods {
    /// Their PriorityClass.
    pub priority_class: Option<String>,
    /// The Secrets that their images are pulled with, by their names in the server's namespace.
    pub pull_secrets: Vec<String>,
}

/// Default images that an earlier operator stored in resources. They mean that nobody chose one.
const STORED_DEFAULTS: [&str; 2] = ["quay.io/cldmnky/oooi:latest", "ghcr.io/cldmnky/hyperdhcp:latest"];

impl Images {
    /// The image of a server: the one that a person chose, else our own.
    pub fn choose(&self, chosen: Option<&str>) -> String {
        chosen
            .filter(|image| !image.is_empty() && !Self::is_stored_default(image))
            .unwrap_or(&self.oooi)
            .to_owned()
    }

    /// Whether an earlier operator stored this image, which nobody chose.
    pub fn is_stored_default(image: &str) -> bool {
        STORED_DEFAULTS.contains(&image)
    }

    /// The image of Envoy: the one that a person chose, else the one that the manager knows.
    pub fn choose_envoy(&self, chosen: Option<&str>) -> Option<String> {
        chosen
            .filter(|image| !image.is_empty())
            .or(self.envoy.as_deref())
            .map(str::to_owned)
    }
}

/// What a controller has at hand.
pub struct Context {
    /// To read.
    pub client: Client,
    /// To write.
    pub writer: Writer,
    /// The images of servers.
    pub images: Images,
    /// What the cluster is.
    pub platform: Platform,
    /// What all pods get.
    pub pods: Pods,
    /// Which lists did not come in time.
    pub first_look: FirstLook,
    /// The pauses of objects that failed.
    pub pauses: Pauses,
    /// The controller, by the name under which it writes.
    pub controller: &'static str,
    /// Where it is counted.
    pub metrics: Metrics,
}

impl Context {
    /// Looks at one object, and counts it.
    pub async fn counted<T, E>(
        &self,
        object: &str,
        look: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = look.await;
        self.metrics
            .reconciled(self.controller, began.elapsed(), result.is_ok());
        if result.is_ok() {
            self.pauses.succeeded(object);
        }
        result
    }

    /// The time, for conditions.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// How long each object that failed waits: twice as long each time, and not all at the same moment.
#[derive(Default)]
pub struct Pauses {
    failures: Mutex<HashMap<String, u32>>,
    random: RandomState,
}

impl Pauses {
    /// The object failed once more: how long to wait.
    pub fn failed(&self, object: &str) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(object.to_owned()).or_insert(0);
        *count += 1;
        let pause = Duration::from_millis(250)
            .saturating_mul(1 << (*count).min(10))
            .min(LONGEST_PAUSE);
        // Up to a quarter more, different for each object and attempt.
        let spread = self.random.hash_one((object, *count)) % 250;
        pause + pause.mul_f64(spread as f64 / 1000.0)
    }

    /// Whether the last look at the object failed.
    pub fn has_failed(&self, object: &str) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.contains_key(object)
    }

    /// The object is well.
    pub fn succeeded(&self, object: &str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.remove(object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_start_anew_after_a_success() {
        let pauses = Pauses::default();
        let first = pauses.failed("a");
        assert!(pauses.failed("a") > first);
        for _ in 0..100 {
            assert!(pauses.failed("a") <= LONGEST_PAUSE.mul_f64(1.25));
        }
        assert!(
            pauses.failed("b") < Duration::from_secs(1),
            "another object has its own"
        );
        pauses.succeeded("a");
        assert!(pauses.failed("a") < Duration::from_secs(1));
    }

    #[test]
    fn a_stored_default_counts_as_unset() {
        let images = Images {
            oooi: "own".into(),
            envoy: None,
        };
        assert_eq!(images.choose(Some("quay.io/cldmnky/oooi:latest")), "own");
        assert_eq!(images.choose(None), "own");
        assert_eq!(images.choose(Some("mine")), "mine");
    }
}
