//! Whether our definition takes every manifest that the one it replaces took.
//!
//! Both schemas are walked together, along the paths of the older one. Ours must know every field with the same type,
//! require no more, allow at least the same values and the same lengths, and default to the same. Image fields are
//! the exception: they have no default any more, so that an old image is never deployed.
//!
//! Of the whole object only `spec` may have become required: without it nothing was asked for, and nothing was done.
//! Rules and patterns are not compared: they refuse what never worked, and `tests/cluster_admission.rs` shows what they accept.

use serde_json::Value;

use crate::api_server::definition_resource;

/// What in `theirs` ours does not take. Both are definitions.
pub(crate) fn losses(theirs: &Value, ours: &Value) -> Vec<String> {
    let mut losses = Vec::new();
    let names = |definition: &Value, list: &str| -> Vec<Value> {
        definition["spec"]["names"][list]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    if definition_resource(theirs) != definition_resource(ours) {
        losses.push(format!(
            "{:?} has become {:?}",
            definition_resource(theirs),
            definition_resource(ours)
        ));
    }
    for list in ["shortNames", "categories"] {
        let known = names(ours, list);
        for name in names(theirs, list) {
            if !known.contains(&name) {
                losses.push(format!("{name} is gone from {list}"));
            }
        }
    }
    for their_version in theirs["spec"]["versions"].as_array().into_iter().flatten() {
        let name = &their_version["name"];
        let versions = ours["spec"]["versions"].as_array().into_iter().flatten();
        match versions.clone().find(|version| &version["name"] == name) {
            None => losses.push(format!("the version {name} is gone")),
            Some(our_version) => {
                if their_version["subresources"]["status"].is_object()
                    && !our_version["subresources"]["status"].is_object()
                {
                    losses.push("status is no subresource any more".into());
                }
                compare(
                    &their_version["schema"]["openAPIV3Schema"],
                    &our_version["schema"]["openAPIV3Schema"],
                    "",
                    &mut losses,
                );
            }
        }
    }
    losses
}

fn compare(theirs: &Value, ours: &Value, path: &str, losses: &mut Vec<String>) {
    if theirs["type"] != ours["type"] && !widened(theirs, ours) {
        losses.push(format!(
            "{path} has the type {} instead of {}",
            ours["type"], theirs["type"]
        ));
        return;
    }
    let list = |schema: &Value, name: &str| schema[name].as_array().cloned().unwrap_or_default();
    for required in list(ours, "required") {
        let asks_for_something = path.is_empty() && required == "spec";
        if !list(theirs, "required").contains(&required) && !asks_for_something {
            losses.push(format!(
                "{path}.{} is required now",
                required.as_str().unwrap_or_default()
            ));
        }
    }
    let allowed = list(ours, "enum");
    if !allowed.is_empty() {
        let gone: Vec<Value> = list(theirs, "enum")
            .into_iter()
            .filter(|value| !allowed.contains(value))
            .collect();
        if !gone.is_empty() {
            losses.push(format!("{path} does not take {gone:?} any more"));
        }
        if list(theirs, "enum").is_empty() {
            losses.push(format!("{path} took any value and takes {allowed:?} now"));
        }
    }
    limits(theirs, ours, path, losses);
    let image = path.to_lowercase().ends_with("image");
    let status = path.starts_with(".status");
    if theirs["default"] != ours["default"] && !image && !status {
        losses.push(format!(
            "{path} has the default {} instead of {}",
            ours["default"], theirs["default"]
        ));
    }
    if image && !ours["default"].is_null() {
        losses.push(format!("{path} must have no default"));
    }
    for (name, property) in theirs["properties"].as_object().into_iter().flatten() {
        // Part of every object, and of no definition of ours.
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let path = format!("{path}.{name}");
        match ours["properties"].get(name) {
            Some(our_property) => compare(property, our_property, &path, losses),
            None => losses.push(format!("{path} is gone")),
        }
    }
    for inner in ["items", "additionalProperties"] {
        if theirs[inner].is_object() {
            compare(&theirs[inner], &ours[inner], &format!("{path}[]"), losses);
        }
    }
}

/// A number may have become a number or a name.
fn widened(theirs: &Value, ours: &Value) -> bool {
    ["integer", "string"].iter().any(|name| theirs["type"] == *name)
        && ours["x-kubernetes-int-or-string"] == true
}

/// A limit that is narrower than theirs. Where they had none ours may have one: the API server asks for limits
/// wherever a rule looks, and they are far above any use.
fn limits(theirs: &Value, ours: &Value, path: &str, losses: &mut Vec<String>) {
    for (name, upper) in [
        ("minimum", false),
        ("maximum", true),
        ("minLength", false),
        ("maxLength", true),
        ("minItems", false),
        ("maxItems", true),
    ] {
        let (Some(their_limit), Some(our_limit)) = (theirs[name].as_f64(), ours[name].as_f64()) else {
            continue;
        };
        if (upper && our_limit < their_limit) || (!upper && our_limit > their_limit) {
            losses.push(format!("{path} has {name} {our_limit} instead of {their_limit}"));
        }
    }
}

#[test]
fn every_loss_is_found() {
    let definition = |schema: Value| {
        serde_json::json!({"spec": {
            "group": "g", "scope": "Namespaced", "names": {"kind": "K", "plural": "ks", "shortNames": ["k"]},
            "versions": [{"name": "v1", "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": schema},
            }}}],
        }})
    };
    let older = serde_json::json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "string", "enum": ["x", "y"], "default": "x"},
            "b": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "integer", "maximum": 9}}}},
            "image": {"type": "string", "default": "old"},
        },
    });
    let mut same = older.clone();
    same["properties"]["image"]["default"] = Value::Null;
    assert_eq!(
        losses(&definition(older.clone()), &definition(same.clone())),
        Vec::<String>::new()
    );

    for (pointer, value, loss) in [
        (
            "/required",
            serde_json::json!(["a", "b"]),
            ".spec.b is required now",
        ),
        (
            "/properties/a/enum",
            serde_json::json!(["x", "z"]),
            ".spec.a does not take",
        ),
        (
            "/properties/a/default",
            serde_json::json!("y"),
            ".spec.a has the default",
        ),
        (
            "/properties/a/type",
            serde_json::json!("integer"),
            ".spec.a has the type",
        ),
        (
            "/properties/b/items/properties",
            serde_json::json!({}),
            ".spec.b[].c is gone",
        ),
        (
            "/properties/b/items/properties/c/maximum",
            serde_json::json!(8),
            ".spec.b[].c has maximum 8",
        ),
        (
            "/properties/image/default",
            serde_json::json!("old"),
            ".spec.image must have no default",
        ),
    ] {
        let mut changed = same.clone();
        if let Some(place) = changed.pointer_mut(pointer) {
            *place = value;
        }
        let found = losses(&definition(older.clone()), &definition(changed));
        assert!(
            found.len() == 1 && found[0].starts_with(loss),
            "{loss}: {found:?}"
        );
    }
}
