//! The pods behind a gateway: Services and EndpointSlices, watched, become [`Snapshot`]s.
//!
//! Exactly the Services that the `ProxyServer` names are watched, each by its name, and the slices by the label that
//! ties them to it: a role needs no more than that. One task owns the [`Assembler`]; a change costs work for the
//! backends that it touches, and changes that come together make one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use oooi_api::ProxyServer;
use oooi_proxy::assemble::Assembler;
use oooi_proxy::config::ServiceKey;
use oooi_proxy::snapshot::Snapshot;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::watching::{Seen, Watching};

/// So long a first snapshot waits for the endpoints of its backends.
const FIRST: Duration = Duration::from_secs(3);

/// What a watch of one Service has to say.
enum Fact {
    Service(Box<Service>),
    NoService,
    Slice(Box<EndpointSlice>),
    NoSlice(String),
    /// Everything was listed once.
    Whole,
}

/// Follows the endpoints of a gateway's backends as its resource names them.
///
/// The first snapshot has the endpoints already, unless the API server takes its time: then it comes without them.
/// The tasks end when the receiver or the sender of `resources` is dropped.
pub async fn follow<P>(
    client: Client,
    mut resources: watch::Receiver<Arc<P>>,
    resource_of: impl Fn(&P) -> &ProxyServer + Send + 'static,
) -> watch::Receiver<Arc<Snapshot>>
where
    P: Send + Sync + 'static,
{
    let (facts, mut incoming) = mpsc::channel(1024);
    let mut watches = Watches {
        client,
        facts,
        running: BTreeMap::new(),
        unlisted: BTreeSet::new(),
    };
    let mut assembler = Assembler::default();
    assembler.set_spec(&resource_of(&resources.borrow_and_update()).spec);
    watches.keep(&mut assembler);
    let deadline = Instant::now() + FIRST;
    while !watches.unlisted.is_empty() {
        match tokio::time::timeout_at(deadline, incoming.recv()).await {
            Ok(Some((key, fact))) => watches.take(&mut assembler, &key, fact),
            Ok(None) | Err(_) => break,
        }
    }
    let (sender, receiver) = watch::channel(assembler.snapshot());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                changed = resources.changed() => {
                    if changed.is_err() {
                        // Nobody changes the configuration any more; endpoints still do.
                        sender.closed().await;
                        return;
                    }
                    assembler.set_spec(&resource_of(&resources.borrow_and_update()).spec);
                    watches.keep(&mut assembler);
                }
                Some((key, fact)) = incoming.recv() => watches.take(&mut assembler, &key, fact),
            }
            while let Ok((key, fact)) = incoming.try_recv() {
                watches.take(&mut assembler, &key, fact);
            }
            sender.send_replace(assembler.snapshot());
        }
    });
    receiver
}

/// The running watches, one a Service.
struct Watches {
    client: Client,
    facts: mpsc::Sender<(ServiceKey, Fact)>,
    running: BTreeMap<ServiceKey, Running>,
    unlisted: BTreeSet<ServiceKey>,
}

/// The watch of one Service, and the slices that it told of.
struct Running {
    task: JoinHandle<()>,
    slices: BTreeSet<String>,
}

impl Watches {
    /// Watches what is wanted, and nothing else. What nobody watches any more is forgotten: it would grow old.
    fn keep(&mut self, assembler: &mut Assembler) {
        let wanted: BTreeSet<ServiceKey> = assembler.wanted_services().cloned().collect();
        self.unlisted.retain(|key| wanted.contains(key));
        for (key, ended) in self.running.extract_if(.., |key, _| !wanted.contains(key)) {
            ended.task.abort();
            assembler.remove_service(&key.namespace, &key.name);
            for slice in &ended.slices {
                assembler.remove_slice(&key.namespace, slice);
            }
        }
        for key in wanted {
            if !self.running.contains_key(&key) {
                let running = Running {
                    task: tokio::spawn(one(self.client.clone(), key.clone(), self.facts.clone())),
                    slices: BTreeSet::new(),
                };
                self.unlisted.insert(key.clone());
                self.running.insert(key, running);
            }
        }
    }

    fn take(&mut self, assembler: &mut Assembler, key: &ServiceKey, fact: Fact) {
        // What a watch said just before it was ended is of no interest, and nobody would take it back.
        let Some(running) = self.running.get_mut(key) else {
            return;
        };
        match fact {
            Fact::Service(service) => assembler.set_service(&service),
            Fact::NoService => assembler.remove_service(&key.namespace, &key.name),
            Fact::Slice(slice) => {
                running.slices.insert(slice.name_any());
                assembler.set_slice(&slice);
            }
            Fact::NoSlice(name) => {
                running.slices.remove(&name);
                assembler.remove_slice(&key.namespace, &name);
            }
            Fact::Whole => {
                self.unlisted.remove(key);
            }
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.task.abort());
    }
}

/// Watches one Service and its slices.
async fn one(client: Client, key: ServiceKey, facts: mpsc::Sender<(ServiceKey, Fact)>) {
    let by_name = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let by_label = watcher::Config::default().labels(&format!("kubernetes.io/service-name={}", key.name));
    let services: Api<Service> = Api::namespaced(client.clone(), &key.namespace);
    let slices: Api<EndpointSlice> = Api::namespaced(client, &key.namespace);
    let mut services = Watching::new(services, by_name, format!("Service {key}"));
    let mut slices = Watching::new(slices, by_label, format!("EndpointSlices of Service {key}"));
    let mut known = BTreeSet::new();
    let (mut service_listed, mut slices_listed) = (false, false);
    loop {
        let news: Vec<Fact> = tokio::select! {
            seen = services.next() => match seen {
                Seen::All(mut all) => {
                    service_listed = true;
                    vec![all.pop().map_or(Fact::NoService, |service| Fact::Service(Box::new(service)))]
                }
                Seen::Put(service) => vec![Fact::Service(Box::new(service))],
                Seen::Gone(_) => vec![Fact::NoService],
                Seen::Lost => Vec::new(),
            },
            seen = slices.next() => match seen {
                Seen::All(all) => {
                    slices_listed = true;
                    let now: BTreeSet<String> = all.iter().map(ResourceExt::name_any).collect();
                    let gone = std::mem::replace(&mut known, now.clone()).into_iter().filter(|name| !now.contains(name));
                    // What is there comes before what is gone, so that a backend is never without endpoints between.
                    all.into_iter().map(|slice| Fact::Slice(Box::new(slice))).chain(gone.map(Fact::NoSlice)).collect()
                }
                Seen::Put(slice) => {
                    known.insert(slice.name_any());
                    vec![Fact::Slice(Box::new(slice))]
                }
                Seen::Gone(slice) => {
                    known.remove(&slice.name_any());
                    vec![Fact::NoSlice(slice.name_any())]
                }
                Seen::Lost => Vec::new(),
            },
        };
        let whole = (service_listed && slices_listed).then_some(Fact::Whole);
        for fact in news.into_iter().chain(whole) {
            if facts.send((key.clone(), fact)).await.is_err() {
                return;
            }
        }
    }
}
