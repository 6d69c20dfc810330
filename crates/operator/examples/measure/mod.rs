//! What measurements of the operator share: a cluster that is ready for it, a client that counts, memory and CPU time.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a measurement fails by panicking, and each uses some of these"
)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use oooi_testkit::Cluster;
use serde_json::json;

/// The cluster of this run, with every definition and the roles of the manager.
pub(crate) async fn cluster() -> &'static Cluster {
    let cluster = Cluster::shared().await.unwrap();
    cluster.define(&json!(oooi_api::definitions())).await.unwrap();
    cluster.define_neighbours().await.unwrap();
    cluster.install_manager().await.unwrap();
    cluster
}

/// How often a client called: in all, and by method and kind.
#[derive(Clone, Default)]
pub(crate) struct Count {
    writes: Arc<AtomicUsize>,
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Count {
    /// A client that is counted here.
    pub(crate) fn of(&self, inner: Client) -> Client {
        let count = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, count) = (inner.clone(), count.clone());
            async move {
                count.note(request.method(), request.uri().path());
                inner.send(request).await
            }
        });
        Client::new(service, "default")
    }

    fn note(&self, method: &Method, path: &str) {
        if method != Method::GET {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        let mut calls = self.calls.lock().unwrap();
        *calls.entry(format!("{method} {}", kind(path))).or_default() += 1;
    }

    /// The writes so far.
    pub(crate) fn writes(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// The calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().values().sum()
    }

    /// Each method and kind with how often it was called, the most frequent first.
    pub(crate) fn by_kind(&self) -> Vec<(String, usize)> {
        let calls = self.calls.lock().unwrap();
        let mut calls: Vec<_> = calls.iter().map(|(what, count)| (what.clone(), *count)).collect();
        calls.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        calls
    }
}

/// The kind that a path is of, in the plural, with its subresource.
fn kind(path: &str) -> String {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let rest = match &*segments {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return path.to_owned(),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    match rest {
        [kind, _, below] => format!("{kind}/{below}"),
        [kind, ..] => (*kind).to_owned(),
        [] => path.to_owned(),
    }
}

/// The resident memory of this process in MiB: now (`VmRSS`), or at its most (`VmHWM`).
pub(crate) fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// The CPU time in seconds that this process and those of its control plane took so far, by their names.
pub(crate) fn processor_times() -> BTreeMap<String, f64> {
    /// Of a second: what the kernel counts in, on every Linux.
    const TICKS: f64 = 100.0;
    let stat = |process: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (name, fields) = text.split_once('(')?.1.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
        // Its parent is the second field after the name, its time is in two.
        Some((name.to_owned(), number(1)?, (number(11)? + number(12)?) / TICKS))
    };
    let own = stat("self").unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| stat(&entry.file_name().to_string_lossy()))
        .filter(|(_, parent, _)| *parent == own.1)
        .map(|(name, _, time)| (name, time))
        .collect()
}
