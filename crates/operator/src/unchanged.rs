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
            let is_there = match key.as_str() {
                "limits" | "requests" => same_quantities,
                _ => contains,
            };
            actual.get(key).is_some_and(|found| is_there(found, value)) || is_empty(value)
        }),
        (Value::Array(actual), Value::Array(wanted)) => {
            actual.len() == wanted.len() && actual.iter().zip(wanted).all(|(a, w)| contains(a, w))
        }
        _ => actual == wanted,
    }
}

/// Whether all wanted quantities are the same, however each is written: the API server stores `0.5` as `500m`.
fn same_quantities(actual: &Value, wanted: &Value) -> bool {
    let (Value::Object(actual), Value::Object(wanted)) = (actual, wanted) else {
        return contains(actual, wanted);
    };
    let is_same =
        |found: &Value, value: &Value| match (found.as_str().and_then(nano), value.as_str().and_then(nano)) {
            (Some(found), Some(value)) => found == value,
            _ => contains(found, value),
        };
    wanted
        .iter()
        .all(|(name, value)| actual.get(name).is_some_and(|found| is_same(found, value)))
}

/// A quantity in billionths, if it is written without an exponent and has no more than nine decimal places.
fn nano(text: &str) -> Option<i128> {
    const ONE: i128 = 1_000_000_000;
    let end = text
        .find(|character: char| character.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let unit = match suffix {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        "" => ONE,
        "k" => ONE * 1_000,
        "M" => ONE * 1_000_000,
        "G" => ONE * 1_000_000_000,
        "T" => ONE * 1_000_000_000_000,
        "P" => ONE * 1_000_000_000_000_000,
        "E" => ONE * 1_000_000_000_000_000_000,
        "Ki" => ONE << 10,
        "Mi" => ONE << 20,
        "Gi" => ONE << 30,
        "Ti" => ONE << 40,
        "Pi" => ONE << 50,
        "Ei" => ONE << 60,
        _ => return None,
    };
    let (whole, places) = number.split_once('.').unwrap_or((number, ""));
    if places.len() > 9 {
        return None;
    }
    let digits: i128 = format!("{whole}{places}").parse().ok()?;
    let scale = 10_i128.checked_pow(u32::try_from(places.len()).ok()?)?;
    Some(digits.checked_mul(unit)? / scale)
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
    fn a_quantity_is_the_same_however_it_is_written() {
        let of = |cpu: &str, memory: &str| json!({"limits": {"cpu": cpu, "memory": memory}});
        let wanted = of("0.5", "1Gi");
        assert!(contains(&of("500m", "1Gi"), &wanted));
        assert!(contains(&of("0.50", "1024Mi"), &wanted));
        assert!(!contains(&of("0.6", "1Gi"), &wanted));
        assert!(!contains(&of("0.5", "1G"), &wanted));
        assert!(!contains(&json!({"limits": {"cpu": "500m"}}), &wanted));
        assert!(
            !contains(&json!({"version": "1.0"}), &json!({"version": "1"})),
            "not every text is a quantity"
        );
        for odd in [
            "",
            ".",
            "1e3",
            "1x",
            "-",
            "1.0000000001",
            "9999999999999999999999999999E",
        ] {
            assert!(contains(&of(odd, "1"), &of(odd, "1")), "{odd}");
        }
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
