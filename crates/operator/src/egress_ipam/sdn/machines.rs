//! The machines of the cluster in their cloud: what they have, remembered until something changes.
//!
//! A cloud cannot be watched, and every call is counted there. So it is looked at when the nodes change, before a
//! namespace gets a new address, after anything that it did not do, and once an hour; what we changed ourselves is
//! kept in mind.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::runtime::reflector::Store;
use oooi_cloud::{Cloud, Error, Machine, View};
use oooi_egress::Used;

use super::super::backend::SeenNode;

/// So long what was seen is believed.
const BELIEVED: Duration = Duration::from_secs(3600);

/// So long the first look for credentials may take.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// Addresses after the first one of each network that both clouds keep for themselves.
const KEPT: u32 = 3;

/// The machines in their cloud.
pub(super) struct Machines {
    pub(super) cloud: Arc<dyn Cloud>,
    /// Where the credentials are seen, if they are anywhere in the cluster.
    credentials: Option<Store<Secret>>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    ids: BTreeSet<String>,
    /// What was seen, and when.
    seen: Option<(View, Instant)>,
    /// Why nothing was seen.
    failure: Option<Error>,
}

impl Machines {
    pub(super) fn new(cloud: Arc<dyn Cloud>, credentials: Option<Store<Secret>>) -> Self {
        Machines {
            cloud,
            credentials,
            memory: Mutex::default(),
        }
    }

    /// Waits until the credentials were looked for once, but not for ever: they may be none of our business.
    pub(super) async fn ready(&self) {
        if let Some(store) = &self.credentials {
            let _ = tokio::time::timeout(FIRST_LOOK, store.wait_until_ready()).await;
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, node: &SeenNode) -> Option<String> {
        let id = node.facts.provider_id.as_deref()?;
        self.cloud.machine_id(id)
    }

    /// Looks at the machines of all nodes, where what was seen before is not good enough, and tells nodes what they
    /// can carry.
    pub(super) async fn look(&self, nodes: &mut [SeenNode], anew: bool) {
        let ids: BTreeSet<String> = nodes.iter().filter_map(|node| self.id(node)).collect();
        let is_known = {
            let memory = self.memory();
            let seen = memory.seen.as_ref();
            memory.ids == ids && seen.is_some_and(|(_, at)| at.elapsed() < BELIEVED)
        };
        if anew || !is_known {
            let result = self.cloud.look(&ids).await;
            let mut memory = self.memory();
            *memory = match result {
                Ok(view) => Memory {
                    ids,
                    seen: Some((view, Instant::now())),
                    failure: None,
                },
                Err(error) => {
                    tracing::warn!(%error, cloud = self.cloud.name(), "the machines cannot be seen, trying again");
                    Memory {
                        ids,
                        seen: None,
                        failure: Some(error),
                    }
                }
            };
        }
        let memory = self.memory();
        for node in nodes {
            let machine = self.id(node);
            let machine = machine.and_then(|id| memory.seen.as_ref()?.0.machines.get(&id));
            node.facts.capacity = machine.and_then(|machine| machine.capacity);
        }
    }

    /// Why nothing is known of the machines.
    pub(super) fn failure(&self) -> Option<Error> {
        self.memory().failure.clone()
    }

    /// The machine of each node that has one.
    pub(super) fn by_node(&self, nodes: &[SeenNode]) -> BTreeMap<String, Machine> {
        let memory = self.memory();
        let Some((view, _)) = &memory.seen else {
            return BTreeMap::new();
        };
        let found = nodes.iter().filter_map(|node| {
            let machine = view.machines.get(&self.id(node)?)?;
            Some((node.facts.name.clone(), machine.clone()))
        });
        found.collect()
    }

    /// Adds what the cloud says is in use.
    pub(super) fn used(&self, used: &mut Used) {
        used.kept_by_cloud = KEPT;
        let memory = self.memory();
        let Some((view, _)) = &memory.seen else { return };
        for (address, user) in &view.used {
            if !used.held.contains_key(address) {
                used.foreign.insert(*address, user.clone());
            }
        }
        for machine in view.machines.values() {
            used.hosts
                .extend(machine.primary.map(|address| (address, machine.id.clone())));
            for address in &machine.secondary {
                // It is nobody's to get, but whoever names it may have it: an earlier operator kept no record.
                used.held.entry(*address).or_default();
            }
        }
    }

    /// A machine got and lost addresses.
    pub(super) fn changed(&self, id: &str, change: impl Fn(&mut BTreeSet<Ipv4Addr>)) {
        let mut memory = self.memory();
        let seen = memory.seen.as_mut();
        if let Some(machine) = seen.and_then(|(view, _)| view.machines.get_mut(id)) {
            change(&mut machine.secondary);
        }
    }

    /// Something was not done, or nobody knows whether it was: what was seen is not believed any more.
    pub(super) fn doubt(&self) {
        self.memory().seen = None;
    }
}
