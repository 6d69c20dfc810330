//! Whether an object is already as it is wanted, so that nothing need be written.
//!
//! Two things are asked. Does the object bear the digest of the very content that is wanted now: if not, something
//! was added, changed or dropped since. And does it still contain that content: if not, somebody else changed it.
//! What the API server filled in besides is no difference.

use serde_json::Value;

/// The annotation that carries the digest of what was applied.
pub(crate) const DIGEST: &str = "hostedcluster.densityops.com/applied";

/// The digest of a wanted object: FNV-1a over its JSON. Not secret, only spread well, and the same for ever.
pub(crate) fn digest(wanted: &Value) -> String {
    let hash = wanted
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}

/// Whether `actual` has all that `wanted` has. Objects may have more fields; lists are compared item by item.
pub(crate) fn contains(actual: &Value, wanted: &Value) -> bool {
    match (actual, wanted) {
        (Value::Object(actual), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            actual.get(key).is_some_and(|found| contains(found, value)) || is_empty(value)
        }),
        (Value::Array(actual), Value::Array(wanted)) => {
            actual.len() == wanted.len() && actual.iter().zip(wanted).all(|(a, w)| contains(a, w))
        }
        _ => actual == wanted,
    }
}

/// Whether a status has all that our part of it has. Conditions are found by their type: others have theirs too.
pub(crate) fn status_contains(actual: &Value, wanted: &Value) -> bool {
    let list = |status: &Value| status["conditions"].as_array().cloned().unwrap_or_default();
    let (found, asked) = (list(actual), list(wanted));
    let conditions = asked.iter().all(|condition| {
        found
            .iter()
            .any(|other| other["type"] == condition["type"] && other == condition)
    });
    let rest = |status: &Value| {
        let mut status = status.clone();
        status["conditions"] = Value::Null;
        status
    };
    conditions && contains(&rest(actual), &rest(wanted))
}

/// The API server drops what is empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_filled_in_is_no_difference() {
        let wanted = json!({"spec": {"containers": [{"name": "a", "env": []}]}});
        let actual = json!({"spec": {"containers": [{"name": "a", "pullPolicy": "Always"}], "dns": 1}});
        assert!(contains(&actual, &wanted));
    }

    #[test]
    fn a_changed_value_a_missing_field_and_a_further_item_are_differences() {
        let wanted = json!({"a": [1], "b": {"c": "d"}});
        assert!(!contains(&json!({"a": [1], "b": {"c": "e"}}), &wanted));
        assert!(!contains(&json!({"a": [1]}), &wanted));
        assert!(!contains(&json!({"a": [1, 2], "b": {"c": "d"}}), &wanted));
    }

    #[test]
    fn conditions_of_others_are_no_difference_in_a_status() {
        let ours = json!({"type": "Ready", "status": "True"});
        let actual = json!({"conditions": [{"type": "Derived"}, ours], "servers": []});
        assert!(status_contains(&actual, &json!({"conditions": [ours]})));
        let changed = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        assert!(!status_contains(&actual, &changed));
        assert!(!status_contains(&json!({}), &json!({"conditions": [ours]})));
    }

    #[test]
    fn the_digest_tells_contents_apart() {
        assert_ne!(digest(&json!({"a": 1})), digest(&json!({"a": 2})));
        assert_eq!(digest(&json!({"a": 1})), digest(&json!({"a": 1})));
    }
}
