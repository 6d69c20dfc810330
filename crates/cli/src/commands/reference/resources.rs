//! A kind, as its schema says: every field with its type, its default, its rules and what it is for.

use std::fmt::Write;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::{Page, cell};

/// The page of a kind.
pub(super) fn page(definition: &CustomResourceDefinition) -> Page {
    let names = &definition.spec.names;
    let mut text = format!("# {}\n\n<!-- Written by `make reference`. -->\n", names.kind);
    for version in &definition.spec.versions {
        let Some(schema) = version
            .schema
            .as_ref()
            .and_then(|schema| schema.open_api_v3_schema.as_ref())
        else {
            continue;
        };
        let short = names.short_names.iter().flatten().cloned().collect::<Vec<_>>();
        let or_short = match short.as_slice() {
            [] => String::new(),
            short => format!(" or `{}`", short.join("`, `")),
        };
        let _ = write!(
            text,
            "\n{}\n\n`apiVersion: {}/{}`, {}; `kubectl get {}`{or_short}.\n",
            schema.description.as_deref().unwrap_or_default(),
            definition.spec.group,
            version.name,
            if definition.spec.scope == "Cluster" {
                "of the whole cluster"
            } else {
                "in a namespace"
            },
            names.plural,
        );
        for (part, schema) in schema.properties.iter().flatten() {
            // The rest is what every object has.
            if part == "spec" || part == "status" {
                let _ = write!(text, "\n## {part}\n\n");
                section(part, schema, &mut text);
            }
        }
    }
    (format!("{}.md", names.kind.to_lowercase()), text)
}

fn section(part: &str, schema: &JSONSchemaProps, text: &mut String) {
    if let Some(description) = &schema.description {
        let _ = write!(text, "{description}\n\n");
    }
    for rule in rules(schema) {
        let _ = writeln!(text, "- {rule}");
    }
    if !rules(schema).is_empty() {
        text.push('\n');
    }
    text.push_str("| field | type | what |\n|---|---|---|\n");
    fields(part, schema, text);
}

/// A row for every field below, in the order of their paths.
fn fields(path: &str, schema: &JSONSchemaProps, text: &mut String) {
    let required = schema.required.as_deref().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        row(&format!("{path}.{name}"), field, required.contains(name), text);
    }
}

fn row(path: &str, field: &JSONSchemaProps, required: bool, text: &mut String) {
    let mut what = Vec::new();
    if required {
        what.push("**Required.**".to_owned());
    }
    what.extend(field.description.as_deref().map(cell));
    if let Some(JSON(value)) = &field.default {
        what.push(format!("Default: `{}`.", cell(&value.to_string())));
    }
    what.extend(rules(field));
    let item = item(field);
    if let Some(item) = item {
        what.extend(rules(item).iter().map(|rule| format!("Each: {rule}")));
    }
    let _ = writeln!(text, "| `{path}` | {} | {} |", type_of(field), what.join(" "));
    match item {
        Some(item) => fields(&format!("{path}[]"), item, text),
        None => fields(path, field, text),
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &field.additional_properties {
        fields(&format!("{path}.*"), values, text);
    }
}

fn item(field: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match &field.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => Some(item),
        Some(JSONSchemaPropsOrArray::Schemas(_)) | None => None,
    }
}

fn type_of(field: &JSONSchemaProps) -> String {
    if let Some(item) = item(field) {
        return format!("list of {}", type_of(item));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &field.additional_properties {
        return format!("map of {}", type_of(values));
    }
    if field.x_kubernetes_int_or_string == Some(true) {
        return "integer or string".to_owned();
    }
    if let Some(values) = &field.enum_ {
        let values: Vec<String> = values
            .iter()
            .filter_map(|JSON(value)| value.as_str())
            .map(|value| format!("`{value}`"))
            .collect();
        return values.join(", ");
    }
    field.type_.clone().unwrap_or_else(|| "any".to_owned())
}

/// What the API server refuses, as it says it, and the limits.
fn rules(field: &JSONSchemaProps) -> Vec<String> {
    let mut rules: Vec<String> = Vec::new();
    let mut limit = |name: &str, value: Option<String>| {
        rules.extend(value.map(|value| format!("{name} {value}.")));
    };
    limit("At least", field.minimum.map(|number| number.to_string()));
    limit("At most", field.maximum.map(|number| number.to_string()));
    limit(
        "At least",
        field.min_items.map(|number| format!("{number} of them")),
    );
    limit(
        "At most",
        field.max_items.map(|number| format!("{number} of them")),
    );
    let messages = field.x_kubernetes_validations.as_deref().unwrap_or_default();
    // Where a rule says in words what is right, how long it may be and what it looks like says nothing more.
    if messages.is_empty() {
        limit(
            "At most",
            field.max_length.map(|number| format!("{number} characters")),
        );
        let pattern = field.pattern.as_ref();
        limit("Matches", pattern.map(|pattern| format!("`{}`", cell(pattern))));
    }
    rules.extend(
        messages
            .iter()
            .filter_map(|rule| rule.message.as_deref())
            .map(|message| format!("Rule: {}.", cell(message.trim_end_matches('.')))),
    );
    rules
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn egress() -> String {
        let definitions = oooi_api::definitions();
        let found = definitions
            .iter()
            .find(|definition| definition.spec.names.kind == "EgressIPAM");
        page(found.unwrap()).1
    }

    #[test]
    fn a_field_has_its_path_type_need_and_rules() {
        let page = egress();
        for row in [
            "| `spec.topologyLabel` | string | **Required.** ",
            "| `spec.allocationPolicy` | `Lowest`, `Random` | ",
            "| `spec.cidrAssignments` | list of object | ",
            "| `spec.cidrAssignments[].CIDR` | string | **Required.** ",
            "Rule: must be an IPv4 network such as 10.0.128.0/20. |",
            "| `spec.nodeSelector.matchLabels` | map of string | ",
        ] {
            assert!(page.contains(row), "{row}\n{page}");
        }
    }

    #[test]
    fn every_field_of_a_schema_is_on_its_page() {
        fn count(schema: &JSONSchemaProps) -> usize {
            let below = schema.properties.iter().flatten();
            let values = match &schema.additional_properties {
                Some(JSONSchemaPropsOrBool::Schema(values)) => count(values),
                _ => 0,
            };
            below.map(|(_, field)| 1 + count(field)).sum::<usize>() + item(schema).map_or(0, count) + values
        }
        for definition in oooi_api::definitions() {
            let schema = definition.spec.versions[0].schema.clone().unwrap();
            let properties = schema.open_api_v3_schema.unwrap().properties.unwrap();
            let wanted: usize = ["spec", "status"]
                .iter()
                .filter_map(|part| properties.get(*part))
                .map(count)
                .sum();
            let (name, text) = page(&definition);
            let rows = text.lines().filter(|line| line.starts_with("| `")).count();
            assert_eq!(rows, wanted, "{name}");
        }
    }
}
