//! One look at everything, and what follows from it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use oooi_api::EgressIpam;
use oooi_api::egress_ipam::FailingNamespace;
use oooi_egress::{Claim, Node, Used, overlaps};
use serde_json::json;

use super::Options;
use super::backend::{Backend, Carried, Scene, SeenNode, Waiting};
use super::decide::{Decision, FINALIZER, is_guarded};
use super::edits::edit;
use super::faults::Faults;
use super::follow::{NamespaceMeta, Stores};
use super::status::{self, Told};
use crate::apply::{Error, Writer};
use crate::condition::{self, Finding};
use crate::identity;
use crate::metrics::{EgressLoad, Metrics};

/// What an earlier operator kept it by. It is not there any more to take them away.
const OLD_FINALIZERS: [&str; 2] = ["egressipam-controller", "EgressIPAM_controller"];

/// How many objects are written at a time.
pub(super) const AT_ONCE: usize = 8;

type Namespaces = BTreeMap<String, Arc<NamespaceMeta>>;

/// Looks after all EgressIPAMs.
pub(super) struct Controller<B> {
    client: Client,
    metrics: Metrics,
    writer: Writer,
    stores: Stores,
    backend: B,
    told: Told,
    chance: RandomState,
    drawn: u64,
}

impl<B: Backend> Controller<B> {
    pub(super) fn new(options: &Options, writer: Writer, stores: Stores, backend: B) -> Self {
        Controller {
            client: options.client.clone(),
            metrics: options.metrics.clone(),
            writer,
            stores,
            backend,
            told: Told::default(),
            chance: RandomState::new(),
            drawn: 0,
        }
    }

    /// One pass: observe → decide → write down → carry out → report. False if something is to be tried again.
    pub(super) async fn pass(&mut self) -> bool {
        let ipams = self.stores.ipams.state();
        let mut nodes = self.nodes();
        let mut faults = Faults::default();
        self.guard(&ipams, &mut faults).await;
        // With no EgressIPAM, and none whose deletion was missed, there is nothing to ask anybody for.
        if !ipams.is_empty() || nodes.iter().any(|node| !node.facts.placed.is_empty()) {
            self.backend.look(&mut nodes, false).await;
        }

        let mut namespaces: Namespaces = self
            .stores
            .namespaces
            .state()
            .into_iter()
            .map(|one| (one.name_any(), one))
            .collect();
        let mut decision = self.decide(&ipams, &namespaces, &nodes);
        if decision.has_fresh() {
            // The watch may be behind. Whoever gets a new address gets it by what the API server has now.
            match self.list().await {
                Ok(current) => namespaces = current,
                Err(error) => {
                    tracing::warn!(%error, "cannot list namespaces, so nobody gets a new address now");
                    return false;
                }
            }
            self.backend.look(&mut nodes, true).await;
            decision = self.decide(&ipams, &namespaces, &nodes);
        }
        let held_back = match self.backend.is_blind() {
            Some(_) => decision.hold_back(),
            None => Vec::new(),
        };
        self.write_down(&namespaces, &mut decision, &mut faults).await;

        let scene = Scene {
            ipams: &ipams,
            nodes: &nodes,
            decision: &decision,
        };
        let mut carried = self.backend.carry_out(&self.writer, &scene, &mut faults).await;
        if let Some(why) = self.backend.is_blind() {
            let message = format!("no new address is given while it is not known which are in use: {why}");
            carried.waiting.extend(held_back.into_iter().map(|name| {
                let waiting = Waiting {
                    reason: "CloudUnknown",
                    message: message.clone(),
                    is_usual: false,
                };
                (name, waiting)
            }));
        }

        self.metrics
            .egress(carried.loads.iter().map(|((ipam, node), load)| EgressLoad {
                ipam,
                node,
                allocated: load.allocated,
                capacity: load.capacity,
            }));
        for ipam in &ipams {
            if ipam.metadata.deletion_timestamp.is_some() {
                self.let_go(ipam, &decision, &mut faults).await;
            } else if let Err(error) = self.report(ipam, &decision, &carried, &faults).await {
                faults.note(&ipam.name_any(), None, &error);
            }
        }
        self.warn(&ipams, &namespaces, &decision, &carried, &faults).await;
        self.warn_of_nodes(&nodes, &carried).await;
        faults.is_empty()
    }

    fn nodes(&self) -> Vec<SeenNode> {
        let mut nodes: Vec<SeenNode> = self
            .stores
            .nodes
            .state()
            .into_iter()
            .map(|object| SeenNode {
                facts: Node::read(&object),
                object,
            })
            .collect();
        nodes.sort_by(|a, b| a.facts.name.cmp(&b.facts.name));
        nodes
    }

    fn decide(&mut self, ipams: &[Arc<EgressIpam>], namespaces: &Namespaces, nodes: &[SeenNode]) -> Decision {
        let mut used = Used::default();
        for node in nodes {
            let addresses = node.facts.addresses.iter();
            used.hosts
                .extend(addresses.map(|address| (*address, node.facts.name.clone())));
        }
        let asking = namespaces
            .values()
            .filter_map(|one| Claim::of(&one.metadata))
            .map(|claim| claim.namespace)
            .collect();
        self.backend.used(&asking, nodes, &mut used);
        let (chance, drawn) = (&self.chance, &mut self.drawn);
        let mut draw = |count: u64| {
            *drawn += 1;
            chance.hash_one(*drawn) % count.max(1)
        };
        Decision::of(
            ipams,
            namespaces.values().map(|one| &one.metadata),
            &used,
            &mut draw,
        )
    }

    async fn list(&self) -> Result<Namespaces, kube::Error> {
        let list = Api::<Namespace>::all(self.client.clone())
            .list_metadata(&ListParams::default())
            .await?;
        Ok(list
            .items
            .into_iter()
            .map(|one| (one.name_any(), Arc::new(one)))
            .collect())
    }

    /// Puts our finalizer on EgressIPAMs that have none, before anything is done for them.
    async fn guard(&self, ipams: &[Arc<EgressIpam>], faults: &mut Faults) {
        for ipam in ipams.iter().filter(|ipam| {
            ipam.metadata.deletion_timestamp.is_none()
                && !is_guarded(ipam)
                && !identity::is_paused(ipam.meta())
        }) {
            let mut finalizers = ipam.finalizers().to_vec();
            finalizers.push(FINALIZER.to_owned());
            let fields = json!({"metadata": {"finalizers": finalizers}});
            if let Err(error) = self.writer.change_as_seen::<EgressIpam>(&**ipam, fields).await {
                faults.note(&ipam.name_any(), None, &error);
            }
        }
    }

    /// Writes new addresses to their namespaces, each only if the namespace is as it was when they were chosen.
    async fn write_down(&self, namespaces: &Namespaces, decision: &mut Decision, faults: &mut Faults) {
        let edits = namespaces
            .values()
            .filter_map(|one| Some((one, edit(decision, &one.metadata)?)));
        let writes = edits.map(|(namespace, edit)| async move {
            let result = self
                .writer
                .change_as_seen::<Namespace>(&**namespace, edit.fields)
                .await;
            (namespace.name_any(), edit.ipam, edit.gives, result)
        });
        let results: Vec<_> = stream::iter(writes.collect::<Vec<_>>())
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (namespace, ipam, gives, result) in results {
            let Err(error) = result else { continue };
            faults.note(&ipam, Some(&namespace), &error);
            if gives {
                decision.unwritten.insert(namespace);
            }
        }
    }

    async fn report(
        &self,
        ipam: &EgressIpam,
        decision: &Decision,
        carried: &Carried,
        faults: &Faults,
    ) -> Result<(), Error> {
        let name = ipam.name_any();
        let (findings, failing) = if let Some(mistakes) = decision.invalid.get(&name) {
            (status::rejected(mistakes), Vec::new())
        } else if decision.paused.contains(&name) {
            (status::paused(), Vec::new())
        } else if decision.layout(&name).is_some() {
            let failing = status::failing(&name, decision, carried, faults);
            (
                status::carried_out(&name, &failing, decision, carried, faults),
                failing,
            )
        } else {
            return Ok(()); // its finalizer is on the way
        };
        self.write_status(ipam, &findings, decision, &failing).await
    }

    async fn write_status(
        &self,
        ipam: &EgressIpam,
        findings: &[Finding],
        decision: &Decision,
        failing: &[FailingNamespace],
    ) -> Result<(), Error> {
        let before = ipam.status.clone().unwrap_or_default();
        let status = status::status(ipam, findings, decision, failing, Timestamp::now());
        let read = serde_json::to_value(&before).unwrap_or_default();
        // A namespace that is well again leaves the list: an empty list must be seen to differ from a full one.
        let changed = before.failing_namespaces.len() != failing.len().min(status::LISTED);
        let read = if changed { serde_json::Value::Null } else { read };
        self.writer.status_global(ipam, &read, &status).await?;
        if let Some(news) = condition::news(&before.conditions, findings) {
            self.writer
                .tell(ipam, news.is_true(), &news.reason, &news.message)
                .await;
        }
        Ok(())
    }

    /// Lets an EgressIPAM go once all is undone, or once what is left has been tried for long enough.
    async fn let_go(&self, ipam: &EgressIpam, decision: &Decision, faults: &mut Faults) {
        let name = ipam.name_any();
        let left = faults.of(&name).to_vec();
        if faults.is_outdated(&name) && !status::is_out_of_patience(ipam, Timestamp::now()) {
            return;
        }
        if !left.is_empty() {
            if !status::is_out_of_patience(ipam, Timestamp::now()) {
                if let Err(error) = self
                    .write_status(ipam, &status::leaving(&left), decision, &[])
                    .await
                {
                    faults.note(&name, None, &error);
                }
                return;
            }
            self.writer
                .tell(ipam, false, "CleanupIncomplete", &status::what_is_left(&left))
                .await;
        }
        let kept =
            |finalizer: &&String| *finalizer != FINALIZER && !OLD_FINALIZERS.contains(&finalizer.as_str());
        let finalizers: Vec<&String> = ipam.finalizers().iter().filter(kept).collect();
        if finalizers.len() == ipam.finalizers().len() {
            return; // somebody else keeps it
        }
        let fields = json!({"metadata": {"finalizers": finalizers}});
        if let Err(error) = self.writer.change_as_seen::<EgressIpam>(ipam, fields).await {
            faults.note(&name, None, &error);
        }
    }

    /// Tells what is wrong with each namespace, and what is odd about each EgressIPAM, once.
    async fn warn(
        &mut self,
        ipams: &[Arc<EgressIpam>],
        namespaces: &Namespaces,
        decision: &Decision,
        carried: &Carried,
        faults: &Faults,
    ) {
        for (name, namespace) in namespaces {
            if decision.is_about_to_begin(name) {
                continue; // the next pass knows
            }
            let problem = decision
                .allocation
                .outcomes
                .get(name)
                .and_then(|outcome| outcome.problem());
            let waiting = carried.waiting.get(name).filter(|waiting| !waiting.is_usual);
            let (reason, message) = match (problem, faults.of_namespace(name), waiting) {
                (Some(problem), ..) => (problem.reason(), Some(problem.to_string())),
                (None, Some(message), _) => ("ApplyFailed", Some(message.to_owned())),
                (None, None, Some(waiting)) => (waiting.reason, Some(waiting.message.clone())),
                (None, None, None) => ("", None),
            };
            for message in self
                .told
                .news(&format!("namespace/{name}"), message.into_iter().collect())
            {
                let about = Namespace {
                    metadata: namespace.metadata.clone(),
                    ..Namespace::default()
                };
                self.writer.tell(&about, false, reason, &message).await;
            }
        }
        for ipam in ipams {
            let name = ipam.name_any();
            let mut warnings = carried.warnings.get(&name).cloned().unwrap_or_default();
            if let Some(layout) = decision.layout(&name) {
                let own = layout.warnings.iter().map(ToString::to_string);
                let shared = overlaps(layout, &decision.layouts);
                warnings.extend(own.chain(shared.iter().map(ToString::to_string)));
            }
            for message in self.told.news(&format!("egressipam/{name}"), warnings) {
                self.writer
                    .tell(&**ipam, false, "CheckSpecification", &message)
                    .await;
            }
        }
        let ipams: Vec<String> = ipams
            .iter()
            .map(|ipam| format!("egressipam/{}", ipam.name_any()))
            .collect();
        self.told.retain(|object| match object.split_once('/') {
            Some(("namespace", name)) => namespaces.contains_key(name),
            Some(("egressipam", _)) => ipams.iter().any(|ipam| ipam == object),
            _ => true,
        });
    }

    /// Tells what is wrong with each node, once.
    async fn warn_of_nodes(&mut self, nodes: &[SeenNode], carried: &Carried) {
        for node in nodes {
            let name = &node.facts.name;
            let (reason, message) = carried.unwell.get(name).cloned().unzip();
            let news = self
                .told
                .news(&format!("node/{name}"), message.into_iter().collect());
            for message in news {
                let reason = reason.unwrap_or_default();
                self.writer.tell(&*node.object, false, reason, &message).await;
            }
        }
        let is_there = |name: &str| nodes.iter().any(|node| node.facts.name == name);
        self.told
            .retain(|object| object.strip_prefix("node/").is_none_or(is_there));
    }
}
