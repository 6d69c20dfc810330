//! Several Infras from files, where no cluster says which VLAN each of them is on.

use oooi_api::Infra;

use super::{Components, Known, Neighbour, plan};
use crate::mistake::Mistake;

/// Plans Infras that come together, one after the other.
///
/// Those that name the same NetworkAttachmentDefinition are neighbours on its VLAN. An earlier one was there first:
/// a later one that overlaps with it is refused with its name, and what is chosen for it keeps clear of what was
/// chosen before. Addresses that are written in a later one are not chosen for an earlier one either.
pub fn plan_all(infras: &[Infra]) -> Vec<Result<Components, Vec<Mistake>>> {
    let mut plans: Vec<Result<Components, Vec<Mistake>>> = Vec::with_capacity(infras.len());
    for (at, infra) in infras.iter().enumerate() {
        let others = infras.iter().enumerate().filter(|(other, _)| *other != at);
        let neighbours = others
            .filter(|(_, other)| attachment(other) == attachment(infra))
            .map(|(other, neighbour)| {
                let planned = plans.get(other).and_then(|plan| plan.as_ref().ok());
                let components = planned.map(Known::after).unwrap_or_default();
                Neighbour::new(neighbour, &components, other < at)
            })
            .collect();
        let known = Known {
            neighbours,
            ..Known::default()
        };
        plans.push(plan(infra, &known));
    }
    plans
}

/// The namespace and the name of the definition that an Infra names.
fn attachment(infra: &Infra) -> (&str, &str) {
    let config = &infra.spec.network_config;
    let own = infra.metadata.namespace.as_deref().unwrap_or("default");
    let namespace = config.network_attachment_namespace.as_deref().unwrap_or(own);
    (namespace, &config.network_attachment_definition)
}
