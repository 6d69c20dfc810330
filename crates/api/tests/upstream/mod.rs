//! Whether our definition takes every manifest that the one it replaces took.
//!
//! Both schemas are walked together, along the paths of the older one. Ours must know every field with the same type,
//! require no more, allow at least the same values and the same lengths, and default to the same. Image fields are
//! the exception: they have no default any more, so that an old image is never deployed.
//!
//! Rules and patterns are not compared: they refuse what never worked, and `tests/admission.rs` shows what they accept.

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
        if !list(theirs, "required").contains(&required) {
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

/// A limit of ours where they had none, or a narrower one. Where they had none, one is a loss only if it could
/// ever matter: limits that let the API server bound the cost of a rule are far above any use.
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
