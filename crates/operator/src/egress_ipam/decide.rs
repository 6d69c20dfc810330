//! What is decided before anything is written. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt};
use oooi_api::EgressIpam;
use oooi_egress::{Allocation, Claim, Layout, Mistake, Outcome, Used, allocate, read};

use crate::identity;

/// Keeps an EgressIPAM until all that it did is undone.
pub(super) const FINALIZER: &str = "egressip-ipam-operator.redhat-cop.io/oooi";

/// Whether an EgressIPAM has our finalizer.
pub(super) fn is_guarded(ipam: &EgressIpam) -> bool {
    ipam.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// What is decided.
#[derive(Default)]
pub(super) struct Decision {
    /// EgressIPAMs that are carried out.
    pub(super) layouts: Vec<Layout>,
    /// EgressIPAMs with mistakes.
    pub(super) invalid: BTreeMap<String, Vec<Mistake>>,
    /// EgressIPAMs that a person paused.
    pub(super) paused: BTreeSet<String>,
    /// EgressIPAMs that have no finalizer of ours yet: a deletion would leave things behind that nobody knows of.
    pub(super) unguarded: BTreeSet<String>,
    /// EgressIPAMs that are being deleted.
    pub(super) leaving: BTreeSet<String>,
    /// What namespaces ask for.
    pub(super) claims: BTreeMap<String, Claim>,
    /// What they get.
    pub(super) allocation: Allocation,
    /// Namespaces whose new addresses could not be written down: they are not in force.
    pub(super) unwritten: BTreeSet<String>,
}

/// What the network should do for a namespace.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Carry<'a> {
    /// These addresses, of this EgressIPAM.
    Want(&'a str, &'a [Ipv4Addr]),
    /// Whatever it does now.
    Keep,
    /// Nothing.
    Drop,
}

impl Decision {
    /// Decides for all EgressIPAMs and namespaces.
    pub(super) fn of<'a>(
        ipams: &[Arc<EgressIpam>],
        namespaces: impl Iterator<Item = &'a ObjectMeta>,
        used: &Used,
        draw: &mut dyn FnMut(u64) -> u64,
    ) -> Self {
        let mut decision = Decision::default();
        for ipam in ipams {
            let name = ipam.name_any();
            if ipam.metadata.deletion_timestamp.is_some() {
                decision.leaving.insert(name);
            } else if identity::is_paused(ipam.meta()) {
                decision.paused.insert(name);
            } else if !is_guarded(ipam) {
                decision.unguarded.insert(name);
            } else {
                match read(ipam) {
                    Ok(layout) => decision.layouts.push(layout),
                    Err(mistakes) => {
                        decision.invalid.insert(name, mistakes);
                    }
                }
            }
        }
        let claims: Vec<Claim> = namespaces.filter_map(Claim::of).collect();
        let hands_off = decision.paused.union(&decision.unguarded);
        let frozen = decision.invalid.keys().chain(hands_off).cloned().collect();
        decision.allocation = allocate(&decision.layouts, &frozen, &claims, used, draw);
        decision.claims = claims
            .into_iter()
            .map(|claim| (claim.namespace.clone(), claim))
            .collect();
        decision
    }

    /// Whether somebody gets an address that is not written down yet.
    pub(super) fn has_fresh(&self) -> bool {
        let mut outcomes = self.allocation.outcomes.values();
        outcomes.any(|outcome| matches!(outcome, Outcome::Complete { fresh: true, .. }))
    }

    /// Takes back addresses that are not written down yet, and says who would have got them.
    pub(super) fn hold_back(&mut self) -> Vec<String> {
        let outcomes = self.allocation.outcomes.iter();
        let fresh = outcomes.filter(|(_, outcome)| matches!(outcome, Outcome::Complete { fresh: true, .. }));
        let names: Vec<String> = fresh.map(|(name, _)| name.clone()).collect();
        self.unwritten.extend(names.iter().cloned());
        names
    }

    /// Whether an EgressIPAM exists and nothing is done for it.
    pub(super) fn is_frozen(&self, ipam: &str) -> bool {
        self.is_hands_off(ipam) || self.invalid.contains_key(ipam)
    }

    /// Whether nothing at all may be written for an EgressIPAM.
    pub(super) fn is_hands_off(&self, ipam: &str) -> bool {
        self.paused.contains(ipam) || self.unguarded.contains(ipam)
    }

    /// Whether what a namespace asks for is carried out as soon as the finalizer of its EgressIPAM is written.
    pub(super) fn is_about_to_begin(&self, namespace: &str) -> bool {
        let claim = self.claims.get(namespace);
        claim.is_some_and(|claim| self.unguarded.contains(&claim.ipam))
    }

    /// An EgressIPAM that is carried out.
    pub(super) fn layout(&self, ipam: &str) -> Option<&Layout> {
        self.layouts.iter().find(|layout| layout.name == ipam)
    }

    /// What the network should do for a namespace.
    pub(super) fn carry(&self, namespace: &str) -> Carry<'_> {
        let (Some(claim), Some(outcome)) = (
            self.claims.get(namespace),
            self.allocation.outcomes.get(namespace),
        ) else {
            return Carry::Drop;
        };
        if self.is_frozen(&claim.ipam) {
            return Carry::Keep;
        }
        if self.layout(&claim.ipam).is_none() {
            return Carry::Drop;
        }
        if self.unwritten.contains(namespace) {
            return Carry::Keep;
        }
        match outcome.addresses() {
            None => Carry::Keep,
            Some([]) => Carry::Drop,
            Some(addresses) => Carry::Want(&claim.ipam, addresses),
        }
    }
}
