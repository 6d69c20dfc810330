//! Which annotations of namespaces change. Pure.
//!
//! An address that a person gave is never changed, nor taken away. What we chose goes when the namespace asks for
//! nothing any more, when its EgressIPAM is deleted, or when it moved to one that the addresses are not of.

use kube::api::ObjectMeta;
use oooi_egress::{ALLOCATED_BY, Claim, GIVEN, Outcome};
use serde_json::{Value, json};

use super::decide::Decision;

/// A change of a namespace's annotations.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// The fields to change.
    pub(super) fields: Value,
    /// Whether it gives new addresses, which are in force only once it is written.
    pub(super) gives: bool,
    /// The EgressIPAM that it is for.
    pub(super) ipam: String,
}

/// The change that one namespace needs.
pub(super) fn edit(decision: &Decision, metadata: &ObjectMeta) -> Option<Edit> {
    let name = metadata.name.as_deref()?;
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    let annotation = |key| metadata.annotations.as_ref()?.get(key);
    let chosen_by = annotation(ALLOCATED_BY);
    let clear = |ipam: &str| {
        Some(Edit {
            fields: json!({"metadata": {"annotations": {GIVEN: null, ALLOCATED_BY: null}}}),
            gives: false,
            ipam: ipam.to_owned(),
        })
    };
    let Some(Claim { ipam, .. }) = decision.claims.get(name) else {
        // It asks for nothing any more.
        return chosen_by
            .filter(|by| !decision.is_hands_off(by))
            .and_then(|by| clear(by));
    };
    if decision.leaving.contains(ipam) {
        return chosen_by.filter(|by| *by == ipam).and_then(|by| clear(by));
    }
    let Outcome::Complete { addresses, fresh } = decision.allocation.outcomes.get(name)? else {
        return None;
    };
    let annotations = if *fresh {
        let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        json!({GIVEN: list.join(","), ALLOCATED_BY: ipam})
    } else if chosen_by.is_some_and(|by| by != ipam) {
        json!({ALLOCATED_BY: ipam}) // it moved, and its addresses are good there too
    } else {
        return None;
    };
    Some(Edit {
        fields: json!({"metadata": {"annotations": annotations}}),
        gives: *fresh,
        ipam: ipam.clone(),
    })
}
