//! A cluster whose network carries no egress addresses, as far as anybody can tell: it is said, and nothing is done.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use oooi_egress::Used;
use tokio::sync::Notify;

use super::Options;
use super::backend::{Backend, Carried, NODES, Scene, SeenNode};
use super::faults::Faults;
use crate::apply::Writer;
use crate::condition::Finding;

/// No network that is known.
pub(super) struct Nowhere;

impl Backend for Nowhere {
    async fn follow(_: &Options, _: &Arc<Notify>) -> (Self, BoxFuture<'static, ()>) {
        (Nowhere, future::ready(()).boxed())
    }

    async fn ready(&self) {}

    fn used(&self, _: &BTreeSet<String>, _: &[SeenNode], _: &mut Used) {}

    async fn carry_out(&self, _: &Writer, scene: &Scene<'_>, _: &mut Faults) -> Carried {
        let message = "neither OVN-Kubernetes nor OpenShift SDN is found in this cluster: addresses are written to \
                       the namespaces, but no node carries them";
        let finding = Finding::fails(NODES, "NoKnownNetwork", message);
        let layouts = scene.decision.layouts.iter();
        Carried {
            nodes: layouts
                .map(|layout| (layout.name.clone(), finding.clone()))
                .collect(),
            ..Carried::default()
        }
    }
}
