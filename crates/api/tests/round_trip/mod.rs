//! Foreign kinds through an API server and back.
//!
//! ```text
//! fixture ──create, strictly──► API server ──read──► our type ──write──► the same values at the same places
//! ```
//! Every field that a type has must be set in its fixture (`tests/conformance/<kind>.yaml`): the type's own schema
//! tells which there are, so a field that nobody tries cannot be added, and a misspelt one is refused or lost.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{any::TypeId, collections::BTreeSet, fmt::Debug};

use http::Method;
use kube::core::{
    NamespaceResourceScope,
    object::{HasSpec, HasStatus},
};
use oooi_api::foreign::{
    CloudPrivateIPConfig, DNS, EgressIP, HostSubnet, HostedCluster, Infrastructure, Ingress, MachineSet,
    NetNamespace, Network, NetworkAttachmentDefinition, NodePool, Route, SecurityContextConstraints,
    VirtualMachineInstance,
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, Resource, documents};

/// What a foreign type must be able to do.
trait Kind: kube::Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Serialize + Debug {}
impl<T: kube::Resource<DynamicType = (), Scope: 'static> + DeserializeOwned + Serialize + Debug> Kind for T {}

/// What becomes of one kind.
pub(crate) struct Trip {
    pub(crate) resource: Resource,
    /// The paths of the type's fields, such as `spec.services[].service`.
    fields: BTreeSet<String>,
    read_and_write: fn(Value) -> Result<Value, String>,
}

/// Every foreign kind.
pub(crate) fn every_kind() -> Vec<Trip> {
    vec![
        with_status::<HostedCluster>(),
        with_spec::<NodePool>(),
        with_status::<VirtualMachineInstance>(),
        with_spec::<NetworkAttachmentDefinition>(),
        with_status::<Route>(),
        with_spec::<DNS>(),
        with_status::<Infrastructure>(),
        with_status::<Network>(),
        with_spec::<Ingress>(),
        flat::<HostSubnet>(),
        flat::<NetNamespace>(),
        with_status::<EgressIP>(),
        with_status::<CloudPrivateIPConfig>(),
        with_spec::<MachineSet>(),
        flat::<SecurityContextConstraints>(),
    ]
}

fn with_status<T: Kind + HasSpec<Spec: JsonSchema> + HasStatus<Status: JsonSchema>>() -> Trip {
    let properties = json!({"spec": schema::<T::Spec>(), "status": schema::<T::Status>()});
    trip::<T>(&json!({ "properties": properties }))
}

fn with_spec<T: Kind + HasSpec<Spec: JsonSchema>>() -> Trip {
    trip::<T>(&json!({"properties": {"spec": schema::<T::Spec>()}}))
}

/// A kind whose fields stand beside `metadata`.
fn flat<T: Kind + HasSpec<Spec: JsonSchema>>() -> Trip {
    trip::<T>(&schema::<T::Spec>())
}

fn schema<T: JsonSchema>() -> Value {
    let inline = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    inline.into_generator().into_root_schema_for::<T>().to_value()
}

fn trip<T: Kind>(schema: &Value) -> Trip {
    let mut fields = BTreeSet::new();
    leaves(schema, "", &mut fields);
    Trip {
        resource: Resource {
            group_version: T::api_version(&()).into_owned(),
            kind: T::kind(&()).into_owned(),
            plural: T::plural(&()).into_owned(),
            namespaced: TypeId::of::<T::Scope>() == TypeId::of::<NamespaceResourceScope>(),
        },
        fields,
        read_and_write: |stored| {
            let typed: T = serde_json::from_value(stored).map_err(|error| error.to_string())?;
            serde_json::to_value(&typed).map_err(|error| error.to_string())
        },
    }
}

/// The paths of the values in a schema that have no further fields.
fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let mut inner = false;
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        leaves(property, &format!("{path}{dot}{name}"), found);
        inner = true;
    }
    if has_fields(&schema["items"]) {
        leaves(&schema["items"], &format!("{path}[]"), found);
        inner = true;
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        for option in schema[choice].as_array().into_iter().flatten() {
            if has_fields(option) {
                leaves(option, path, found);
                inner = true;
            }
        }
    }
    if !inner && !path.is_empty() {
        found.insert(path.to_owned());
    }
}

fn has_fields(schema: &Value) -> bool {
    schema["properties"].is_object()
        || has_fields_within(&schema["items"])
        || ["anyOf", "oneOf", "allOf"].iter().any(|choice| {
            schema[choice]
                .as_array()
                .is_some_and(|options| options.iter().any(has_fields))
        })
}

fn has_fields_within(items: &Value) -> bool {
    items.is_object() && has_fields(items)
}

/// The values at a path, one of each list entry that has it.
fn values<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut at = vec![value];
    for step in path.split('.') {
        let (name, list) = match step.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (step, false),
        };
        at = at
            .into_iter()
            .filter_map(|value| value.get(name))
            .flat_map(|value| match (list, value) {
                (true, Value::Array(items)) => items.iter().collect(),
                _ => vec![value],
            })
            .collect();
    }
    at
}

impl Trip {
    /// Sends the fixture there and back. Gives everything that went wrong.
    pub(crate) async fn run(&self, server: &ApiServer<'_>, namespace: &str) -> Vec<String> {
        let kind = &self.resource.kind;
        let fixture = self.fixture();
        let stored = match self.store(server, namespace, &fixture).await {
            Ok(stored) => stored,
            Err(said) => return vec![format!("{kind}: {said}")],
        };
        let written = match (self.read_and_write)(stored.clone()) {
            Ok(written) => written,
            Err(error) => return vec![format!("{kind} cannot be read: {error}: {stored}")],
        };
        let mut wrong = Vec::new();
        for path in &self.fields {
            let given = values(&fixture, path);
            if given.is_empty() {
                wrong.push(format!("{kind}: the fixture does not set {path}"));
            }
            if given != values(&stored, path) {
                wrong.push(format!("{kind}: the API server did not keep {path}: {stored}"));
            }
            if given != values(&written, path) {
                wrong.push(format!("{kind}: our type does not pass on {path}: {written}"));
            }
        }
        if let Some(path) = first_difference(&written, &stored, "") {
            wrong.push(format!("{kind}: {path} is not what is stored: {written}"));
        }
        wrong
    }

    fn fixture(&self) -> Value {
        let name = format!("{}.yaml", self.resource.kind.to_lowercase());
        let path = format!("{}/tests/conformance/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut documents = documents(&name, &text).unwrap();
        assert_eq!(documents.len(), 1, "{path} must hold one object");
        let fixture = documents.remove(0);
        assert!(
            self.resource.is_of(&fixture),
            "{path} must hold a {:?}",
            self.resource
        );
        fixture
    }

    /// Creates the object, with its status where that is a subresource too, reads it, and removes it.
    async fn store(&self, server: &ApiServer<'_>, namespace: &str, fixture: &Value) -> Result<Value, String> {
        const STRICT: &str = "?fieldValidation=Strict";
        let all = self.resource.path(namespace);
        let one = format!("{all}/{}", fixture["metadata"]["name"].as_str().unwrap());
        // An earlier run that failed may have left it; that it is not there is the usual answer.
        let _ = server.send(Method::DELETE, &one, &Value::Null).await;
        let mut created = server
            .send(Method::POST, &format!("{all}{STRICT}"), fixture)
            .await
            .map_err(|said| format!("not created: {said}"))?;
        if fixture.get("status").is_some() && created.get("status") != fixture.get("status") {
            created["status"] = fixture["status"].clone();
            server
                .send(Method::PUT, &format!("{one}/status{STRICT}"), &created)
                .await
                .map_err(|said| format!("the status was not taken: {said}"))?;
        }
        let stored = server
            .send(Method::GET, &one, &Value::Null)
            .await
            .map_err(|said| format!("not read: {said}"))?;
        server
            .send(Method::DELETE, &one, &Value::Null)
            .await
            .map_err(|said| format!("not deleted: {said}"))?;
        Ok(stored)
    }
}

/// Where `part` has something that `whole` lacks or has otherwise. Of `metadata` only the name counts: reading and
/// writing it is not ours.
fn first_difference(part: &Value, whole: &Value, path: &str) -> Option<String> {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match whole.get(name) {
                Some(other) => first_difference(value, other, &path),
                None => Some(path),
            }
        }),
        (Value::Array(part), Value::Array(whole)) if part.len() == whole.len() => part
            .iter()
            .zip(whole)
            .enumerate()
            .find_map(|(i, (value, other))| first_difference(value, other, &format!("{path}[{i}]"))),
        _ => (part != whole).then(|| path.to_owned()),
    }
}
