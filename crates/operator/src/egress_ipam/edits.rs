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
    let annotations = if *fresh && decision.unwritten.contains(name) {
        return None;
    } else if *fresh {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use oooi_api::EgressIpam;
    use oooi_egress::{ASKS, Used};

    use super::*;

    fn ipam(name: &str, cidr: &str, more: Value) -> Arc<EgressIpam> {
        let mut manifest = json!({
            "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "EgressIPAM",
            "metadata": {"name": name, "finalizers": [super::super::decide::FINALIZER]},
            "spec": {"topologyLabel": "zone", "cidrAssignments": [{"CIDR": cidr, "labelValue": "a"}]},
        });
        for (key, value) in more.as_object().unwrap() {
            manifest["metadata"][key] = value.clone();
        }
        Arc::new(serde_json::from_value(manifest).unwrap())
    }

    fn edit_of(ipams: &[Arc<EgressIpam>], annotations: &[(&str, &str)]) -> Option<Value> {
        let metadata = ObjectMeta {
            name: Some("n".into()),
            annotations: Some(
                annotations
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect(),
            ),
            ..ObjectMeta::default()
        };
        let decision = Decision::of(ipams, [&metadata].into_iter(), &Used::default(), &mut |_| 0);
        edit(&decision, &metadata).map(|edit| edit.fields["metadata"]["annotations"].clone())
    }

    fn both() -> [Arc<EgressIpam>; 2] {
        [
            ipam("x", "10.0.0.0/24", json!({})),
            ipam("y", "10.1.0.0/24", json!({})),
        ]
    }

    #[test]
    fn new_addresses_are_marked_as_chosen_by_us_and_given_ones_are_not() {
        let chosen = edit_of(&both(), &[(ASKS, "x")]).unwrap();
        assert_eq!(chosen, json!({GIVEN: "10.0.0.1", ALLOCATED_BY: "x"}));
        assert_eq!(edit_of(&both(), &[(ASKS, "x"), (GIVEN, "10.0.0.9")]), None);
    }

    #[test]
    fn who_asks_no_more_loses_what_we_chose_and_keeps_what_a_person_wrote() {
        let cleared = Some(json!({GIVEN: null, ALLOCATED_BY: null}));
        assert_eq!(
            edit_of(&both(), &[(GIVEN, "10.0.0.9"), (ALLOCATED_BY, "x")]),
            cleared
        );
        assert_eq!(edit_of(&both(), &[(GIVEN, "10.0.0.9")]), None);
    }

    #[test]
    fn who_moves_gets_addresses_of_the_new_egressipam() {
        let moved = edit_of(&both(), &[(ASKS, "y"), (GIVEN, "10.0.0.9"), (ALLOCATED_BY, "x")]);
        assert_eq!(moved, Some(json!({GIVEN: "10.1.0.1", ALLOCATED_BY: "y"})));
    }

    #[test]
    fn an_egressipam_that_goes_takes_what_it_chose_and_one_that_is_not_there_takes_nothing() {
        let leaving = [ipam(
            "x",
            "10.0.0.0/24",
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        )];
        let chosen = [(ASKS, "x"), (GIVEN, "10.0.0.9"), (ALLOCATED_BY, "x")];
        assert_eq!(
            edit_of(&leaving, &chosen),
            Some(json!({GIVEN: null, ALLOCATED_BY: null}))
        );
        assert_eq!(edit_of(&leaving, &chosen[..2]), None, "a person wrote it");
        assert_eq!(
            edit_of(&[], &chosen),
            None,
            "a backup may bring the namespaces back first"
        );
    }

    #[test]
    fn a_paused_and_a_not_yet_guarded_egressipam_change_nothing() {
        let paused = json!({"annotations": BTreeMap::from([(crate::identity::PAUSED, "true")])});
        for more in [paused, json!({"finalizers": []})] {
            let ipams = [ipam("x", "10.0.0.0/24", more)];
            assert_eq!(edit_of(&ipams, &[(ASKS, "x")]), None);
            assert_eq!(edit_of(&ipams, &[(GIVEN, "10.0.0.9"), (ALLOCATED_BY, "x")]), None);
        }
    }
}
