//! What measurements of the operator share: a cluster that is ready for it, a client that counts, memory and CPU time.

#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a measurement fails by panicking, and each uses some of these"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use oooi_testkit::Cluster;
use serde_json::{Value, json};

/// The cluster of this run, with every definition and the roles of the manager.
pub(crate) async fn cluster() -> &'static Cluster {
    let cluster = Cluster::shared().await.unwrap();
    cluster.define(&json!(oooi_api::definitions())).await.unwrap();
    cluster.define_neighbours().await.unwrap();
    cluster.install_manager().await.unwrap();
    cluster
}

/// How often a client called, by method and kind, and what it wrote of one object's.
#[derive(Clone, Default)]
pub(crate) struct Count {
    calls: Arc<Mutex<BTreeMap<String, usize>>>,
    writes: Arc<AtomicUsize>,
    /// Of what is kept for [`Write::elsewhere`]: everything would be more than the manager has in memory itself.
    name: &'static str,
    kept: Arc<Mutex<Vec<Write>>>,
    /// What was asked for, where that is told apart: it takes memory, too.
    paths: Option<Arc<Mutex<BTreeSet<String>>>>,
}

/// A request that changes something.
pub(crate) struct Write {
    head: http::request::Parts,
    body: Vec<u8>,
}

impl Write {
    /// The same of others, without what the API server gave the first ones: each of these words is the one beside it.
    pub(crate) fn elsewhere(&self, words: &[(&str, &str)]) -> Request<Body> {
        let renamed = |text: &str| {
            let others = words.iter();
            others.fold(text.to_owned(), |text, (own, other)| text.replace(own, other))
        };
        let mut head = self.head.clone();
        head.uri = renamed(&head.uri.to_string()).parse().unwrap();
        let mut object: Value = serde_json::from_slice(&self.body).unwrap();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            let given = ["ownerReferences", "uid", "resourceVersion"];
            metadata.retain(|field, _| !given.contains(&field.as_str()));
        }
        Request::from_parts(head, Body::from(renamed(&object.to_string()).into_bytes()))
    }
}

impl Count {
    /// Keeps what is written of one object and of what is called after it.
    pub(crate) fn keeping(name: &'static str) -> Self {
        Count {
            name,
            ..Count::default()
        }
    }

    /// Tells apart what is asked for.
    pub(crate) fn telling_apart() -> Self {
        Count {
            paths: Some(Arc::default()),
            ..Count::default()
        }
    }

    /// A client that is counted here.
    pub(crate) fn of(&self, inner: Client) -> Client {
        let count = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, count) = (inner.clone(), count.clone());
            async move {
                count.note(request.method(), request.uri().path());
                if request.method() == Method::GET {
                    return inner.send(request).await;
                }
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await?.to_vec();
                count.keep(&head, &body);
                inner.send(Request::from_parts(head, Body::from(body))).await
            }
        });
        Client::new(service, "default")
    }

    fn keep(&self, head: &http::request::Parts, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        let is_its = |text: &str| {
            let after = text.split(self.name).skip(1);
            !self.name.is_empty()
                && after
                    .into_iter()
                    .any(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if is_its(head.uri.path()) || is_its(&text) {
            self.kept.lock().unwrap().push(Write {
                head: head.clone(),
                body: body.to_vec(),
            });
        }
    }

    /// What was written of the one object so far.
    pub(crate) fn kept(&self) -> Vec<Write> {
        std::mem::take(&mut *self.kept.lock().unwrap())
    }

    fn note(&self, method: &Method, path: &str) {
        if method != Method::GET {
            self.writes.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(paths) = &self.paths {
            paths.lock().unwrap().insert(path.to_owned());
        }
        let mut calls = self.calls.lock().unwrap();
        *calls.entry(format!("{method} {}", kind(path))).or_default() += 1;
    }

    /// How many different paths were asked for so far.
    pub(crate) fn paths(&self) -> usize {
        let paths = self.paths.as_ref();
        paths.map_or(0, |paths| paths.lock().unwrap().len())
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
