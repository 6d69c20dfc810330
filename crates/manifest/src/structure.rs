//! Holds a tree against an OpenAPI schema, as the API server does at admission.
//!
//! Only the keywords that our own definitions use are known: type, properties, required, enum, pattern, bounds and
//! the Kubernetes extensions. All mistakes are found, not just the first.

use regex::Regex;
use serde_json::Value;

use crate::mistake::Place;
use crate::nearest::nearest;
use crate::yaml::{Data, Node};

/// A value that does not fit the schema.
pub(crate) struct Misfit {
    pub(crate) place: Place,
    pub(crate) path: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// Every value of `node` that does not fit `schema`.
pub(crate) fn misfits(schema: &Value, node: &Node, path: &str) -> Vec<Misfit> {
    let mut found = Vec::new();
    walk(schema, node, path, &mut found);
    found
}

fn walk(schema: &Value, node: &Node, path: &str, found: &mut Vec<Misfit>) {
    let mut misfit = |message: String, help: Option<String>| {
        found.push(Misfit {
            place: node.place,
            path: path.to_owned(),
            message,
            help,
        });
    };
    if node.is_null() {
        // The API server drops a null, whatever the field; a required one is then missing.
        return;
    }
    if let Some(expected) = type_mismatch(schema, &node.data) {
        misfit(
            format!("must be {expected}, not {}", describe(&node.data)),
            quoting_help(schema, &node.data),
        );
        return;
    }
    match &node.data {
        Data::Scalar(value) => {
            if let Some(message) = scalar_misfit(schema, value) {
                let help = enum_help(schema, value);
                misfit(message, help);
            }
        }
        Data::List(items) => {
            if let Some(message) = length_misfit(schema, items.len(), "minItems", "maxItems", "entries") {
                misfit(message, None);
            }
            for (i, item) in items.iter().enumerate() {
                if let Some(schema) = schema.get("items") {
                    walk(schema, item, &format!("{path}[{i}]"), found);
                }
            }
        }
        Data::Map(entries) => {
            let required = schema
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            for name in required.filter_map(Value::as_str) {
                let given = node.get(name).is_some_and(|entry| !entry.value.is_null());
                if !given {
                    misfit(format!("`{name}` is missing"), description(schema, name));
                }
            }
            for entry in entries {
                let path = join(path, &entry.key);
                match field_schema(schema, &entry.key) {
                    Field::Known(schema) => walk(schema, &entry.value, &path, found),
                    Field::Free => {}
                    Field::Unknown(names) => {
                        let help = match nearest(&entry.key, names.iter().copied()) {
                            Some(name) => format!("did you mean `{name}`?"),
                            None => format!("known here: {}", names.join(", ")),
                        };
                        found.push(Misfit {
                            place: entry.place,
                            path,
                            message: "unknown field".into(),
                            help: Some(help),
                        });
                    }
                }
            }
        }
    }
}

/// A field path with one more field.
fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

enum Field<'a> {
    Known(&'a Value),
    /// Any field may stand here.
    Free,
    Unknown(Vec<&'a str>),
}

fn field_schema<'a>(schema: &'a Value, key: &str) -> Field<'a> {
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(known) = properties.and_then(|p| p.get(key)) {
        return Field::Known(known);
    }
    match schema.get("additionalProperties") {
        Some(additional @ Value::Object(_)) => return Field::Known(additional),
        Some(Value::Bool(true)) => return Field::Free,
        _ => {}
    }
    let open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    match properties {
        Some(properties) if !open => Field::Unknown(properties.keys().map(String::as_str).collect()),
        // An object without properties, such as `metadata`, is checked by whoever decodes it.
        _ => Field::Free,
    }
}

/// What the schema wants, if the value is something else.
fn type_mismatch(schema: &Value, data: &Data) -> Option<&'static str> {
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return match data {
            Data::Scalar(value) if value.is_i64() || value.is_string() => None,
            _ => Some("a number or a text"),
        };
    }
    let fits = |kind: &str| match (kind, data) {
        ("object", Data::Map(_)) | ("array", Data::List(_)) => true,
        ("string", Data::Scalar(value)) => value.is_string(),
        ("boolean", Data::Scalar(value)) => value.is_boolean(),
        ("integer", Data::Scalar(value)) => value.is_i64(),
        ("number", Data::Scalar(value)) => value.is_number(),
        _ => false,
    };
    match schema.get("type").and_then(Value::as_str) {
        Some(kind) if !fits(kind) => Some(match kind {
            "object" => "a mapping of fields",
            "array" => "a list",
            "string" => "a text",
            "boolean" => "true or false",
            "integer" => "a whole number",
            _ => "a number",
        }),
        _ => None,
    }
}

fn describe(data: &Data) -> String {
    match data {
        Data::Map(_) => "a mapping of fields".into(),
        Data::List(_) => "a list".into(),
        Data::Scalar(value @ Value::String(_)) => format!("the text {value}"),
        Data::Scalar(value @ Value::Number(_)) => format!("the number {value}"),
        Data::Scalar(value) => value.to_string(),
    }
}

/// A number or a boolean where a text belongs is most often a missing pair of quotes.
fn quoting_help(schema: &Value, data: &Data) -> Option<String> {
    let text = schema.get("type").and_then(Value::as_str) == Some("string");
    match data {
        Data::Scalar(value) if text => Some(format!("put it in quotes: \"{value}\"")),
        _ => None,
    }
}

fn scalar_misfit(schema: &Value, value: &Value) -> Option<String> {
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let names: Vec<String> = allowed
            .iter()
            .map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .collect();
        return Some(format!("must be one of {}, not {value}", names.join(", ")));
    }
    if let Some(text) = value.as_str() {
        if let Some(message) = length_misfit(
            schema,
            text.chars().count(),
            "minLength",
            "maxLength",
            "characters",
        ) {
            return Some(message);
        }
        // The pattern is our own; one that does not compile is found by the test that loads every definition.
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && Regex::new(pattern).is_ok_and(|pattern| !pattern.is_match(text))
        {
            let wanted = rule_message(schema).unwrap_or_else(|| format!("must match {pattern}"));
            return Some(format!("{wanted}, not {value}"));
        }
    }
    if let Some(number) = value.as_f64() {
        let bound = |keyword| schema.get(keyword).and_then(Value::as_f64);
        if bound("minimum").is_some_and(|minimum| number < minimum)
            || bound("maximum").is_some_and(|maximum| number > maximum)
        {
            return Some(match (bound("minimum"), bound("maximum")) {
                (Some(low), Some(high)) => format!("must be from {low} to {high}, not {value}"),
                (Some(low), None) => format!("must be at least {low}, not {value}"),
                (_, high) => format!("must be at most {}, not {value}", high.unwrap_or_default()),
            });
        }
    }
    None
}

/// The message of the field's own rule says in words what its pattern means.
fn rule_message(schema: &Value) -> Option<String> {
    schema
        .get("x-kubernetes-validations")?
        .get(0)?
        .get("message")?
        .as_str()
        .map(str::to_owned)
}

fn length_misfit(schema: &Value, length: usize, min: &str, max: &str, unit: &str) -> Option<String> {
    let bound = |keyword| schema.get(keyword).and_then(Value::as_u64);
    let length = length as u64;
    match (bound(min), bound(max)) {
        (Some(low), _) if length < low => Some(format!("needs at least {low} {unit}")),
        (_, Some(high)) if length > high => Some(format!("may have at most {high} {unit}")),
        _ => None,
    }
}

fn enum_help(schema: &Value, value: &Value) -> Option<String> {
    let allowed = schema.get("enum")?.as_array()?.iter().filter_map(Value::as_str);
    nearest(value.as_str()?, allowed).map(|name| format!("did you mean `{name}`?"))
}

fn description(schema: &Value, field: &str) -> Option<String> {
    let text = schema
        .get("properties")?
        .get(field)?
        .get("description")?
        .as_str()?;
    Some(format!("{field}: {}", text.lines().next()?))
}
