//! One document of a manifest.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use kube_cel::{CompiledSchema, ErrorKind, Validator, compile_schema};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::mistake::{Mistake, Place, Source};
use crate::nearest::nearest;
use crate::structure::misfits;
use crate::yaml::{self, Data, Node};

/// A Kubernetes object from a file, which knows where each of its fields stands.
#[derive(Clone, Debug)]
pub struct Document {
    source: Arc<Source>,
    node: Node,
    api_version: String,
    kind: String,
}

/// Reads all documents of a manifest. What is not a Kubernetes object is a mistake; a `List`, which is what
/// `kubectl get -o yaml` writes, stands for its items.
pub fn read(source: &Arc<Source>) -> Result<Vec<Document>, Vec<Mistake>> {
    let nodes = yaml::parse(source).map_err(|mistake| vec![mistake])?;
    let mut documents = Vec::new();
    let mut mistakes = Vec::new();
    for node in nodes.into_iter().flat_map(items) {
        match Document::new(source, node) {
            Ok(document) => documents.push(document),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() {
        Ok(documents)
    } else {
        Err(mistakes)
    }
}

/// The items of a `List`, else the object itself. A list inside a list has not been seen, and is an object.
fn items(node: Node) -> Vec<Node> {
    let says = |key: &str, wanted: &str| match node.get(key).map(|entry| &entry.value.data) {
        Some(Data::Scalar(Value::String(text))) => text == wanted,
        _ => false,
    };
    let is_list = says("apiVersion", "v1") && says("kind", "List");
    match node.get("items").map(|entry| &entry.value.data) {
        Some(Data::List(items)) if is_list => items.clone(),
        _ => vec![node],
    }
}

/// The only document of a kind. There must be at least one document.
pub fn only<'a>(documents: &'a [Document], kind: &str) -> Result<&'a Document, Vec<Mistake>> {
    let mut of_kind = documents.iter().filter(|document| document.kind == kind);
    match (of_kind.next(), of_kind.next()) {
        (Some(document), None) => Ok(document),
        (Some(_), Some(second)) => Err(vec![second.mistake(
            "kind",
            &format!("a second {kind}: one process runs one, start another for this"),
        )]),
        (None, _) => {
            let message = format!("there is no {kind} among the documents: add one");
            Err(documents
                .first()
                .map(|first| first.mistake("kind", &message))
                .into_iter()
                .collect())
        }
    }
}

/// All documents of a kind as their type.
pub fn all<T: DeserializeOwned>(
    documents: &[Document],
    api_version: &str,
    kind: &str,
) -> Result<Vec<T>, Vec<Mistake>> {
    let mut decoded = Vec::new();
    let mut mistakes = Vec::new();
    for document in documents
        .iter()
        .filter(|d| d.api_version == api_version && d.kind == kind)
    {
        match document.decode() {
            Ok(object) => decoded.push(object),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    if mistakes.is_empty() {
        Ok(decoded)
    } else {
        Err(mistakes)
    }
}

impl Document {
    fn new(source: &Arc<Source>, node: Node) -> Result<Self, Mistake> {
        let text = |key: &str| match node.get(key).map(|entry| &entry.value.data) {
            Some(Data::Scalar(Value::String(text))) => Some(text.clone()),
            _ => None,
        };
        let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind")) else {
            return Err(Mistake {
                source: source.clone(),
                place: node.place,
                path: String::new(),
                message: "this is not a Kubernetes object: it needs `apiVersion` and `kind`".into(),
                help: None,
            });
        };
        Ok(Document {
            source: source.clone(),
            node,
            api_version,
            kind,
        })
    }

    /// Its `apiVersion`.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Its `kind`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<String> {
        let metadata = self.node.get("metadata")?;
        match &metadata.value.get("name")?.value.data {
            Data::Scalar(Value::String(name)) => Some(name.clone()),
            _ => None,
        }
    }

    /// The object without its places.
    pub fn to_value(&self) -> Value {
        self.node.to_value()
    }

    /// All mistakes that the API server would refuse the document for. Kinds that are not ours have none.
    pub fn check(&self) -> Vec<Mistake> {
        let Some(schema) = schemas().get(&(self.api_version.clone(), self.kind.clone())) else {
            return self.unknown_kind().into_iter().collect();
        };
        let mut mistakes = Vec::new();
        if self.name().is_none_or(|name| name.is_empty()) {
            mistakes.push(self.mistake("metadata.name", "the object needs a name"));
        }
        mistakes.extend(
            misfits(&schema.structure, &self.node, "")
                .into_iter()
                .map(|misfit| Mistake {
                    source: self.source.clone(),
                    place: misfit.place,
                    path: misfit.path,
                    message: misfit.message,
                    help: misfit.help,
                }),
        );
        mistakes.extend(self.broken_rules(schema, &mistakes));
        mistakes.sort_by_key(|mistake| mistake.place);
        mistakes
    }

    /// What breaks a rule. Where something has the wrong form already, a rule that cannot be held against it, or is about
    /// that very field, would only repeat it.
    fn broken_rules(&self, schema: &Schema, wrong_form: &[Mistake]) -> Vec<Mistake> {
        let rules = schema.rules.get_or_init(|| compile_schema(&schema.structure));
        let Err(broken) = Validator::new().validate_compiled(rules, &self.to_value(), None) else {
            return Vec::new();
        };
        broken
            .iter()
            .filter(|error| wrong_form.is_empty() || error.kind == ErrorKind::ValidationFailure)
            .map(|error| self.mistake(&error.field_path, &error.message))
            .filter(|broken| wrong_form.iter().all(|wrong| wrong.path != broken.path))
            .collect()
    }

    /// A kind of one of our groups that does not exist.
    fn unknown_kind(&self) -> Option<Mistake> {
        let group = |version: &str| version.split('/').next().map(str::to_owned);
        let ours: Vec<&(String, String)> = schemas()
            .keys()
            .filter(|(version, _)| group(version) == group(&self.api_version))
            .collect();
        if ours.is_empty() {
            return None;
        }
        let mut mistake = self.mistake(
            "kind",
            &format!("there is no {} in {}", self.kind, self.api_version),
        );
        let names: Vec<&str> = ours.iter().map(|(_, kind)| kind.as_str()).collect();
        mistake.help = Some(match nearest(&self.kind, names.iter().copied()) {
            Some(kind) if kind != self.kind => format!("did you mean `{kind}`?"),
            _ => format!(
                "known: {}",
                ours.iter()
                    .map(|(v, k)| format!("{v} {k}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        });
        Some(mistake)
    }

    /// The object as its type. What does not fit is named with its place.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, Mistake> {
        serde_path_to_error::deserialize(self.to_value())
            .map_err(|error| self.mistake(&error.path().to_string(), &error.inner().to_string()))
    }

    /// A mistake at a field path such as `spec.backends[2].port`, placed as near to it as the text allows: at the
    /// nearest field around it that is written down.
    pub fn mistake(&self, path: &str, message: &str) -> Mistake {
        let path = path.trim_start_matches('.');
        Mistake {
            source: self.source.clone(),
            place: self.locate(path),
            path: path.to_owned(),
            message: message.to_owned(),
            help: None,
        }
    }

    fn locate(&self, path: &str) -> Place {
        let mut node = &self.node;
        let mut place = node.place;
        // `a.b[2].c` → a, b, 2, c
        for step in path
            .split(['.', '['])
            .map(|step| step.trim_end_matches(']'))
            .filter(|step| !step.is_empty())
        {
            let next = match &node.data {
                Data::List(items) => step
                    .parse()
                    .ok()
                    .and_then(|i: usize| items.get(i))
                    .map(|item| (item.place, item)),
                Data::Map(_) => node.get(step).map(|entry| (entry.place, &entry.value)),
                Data::Scalar(_) => None,
            };
            match next {
                Some((at, inner)) => (place, node) = (at, inner),
                None => return place,
            }
        }
        // A scalar is pointed at itself, not at its key.
        if matches!(node.data, Data::Scalar(_)) {
            node.place
        } else {
            place
        }
    }
}

/// What the API server holds a kind against.
struct Schema {
    structure: Value,
    /// Compiled when first needed: that takes a while, and most runs need one kind.
    rules: OnceLock<CompiledSchema>,
}

/// The schemas of our kinds by `apiVersion` and `kind`.
fn schemas() -> &'static BTreeMap<(String, String), Schema> {
    static SCHEMAS: OnceLock<BTreeMap<(String, String), Schema>> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let mut schemas = BTreeMap::new();
        for definition in oooi_api::definitions() {
            let spec = &definition.spec;
            for version in &spec.versions {
                let schema = version
                    .schema
                    .as_ref()
                    .and_then(|s| s.open_api_v3_schema.as_ref());
                if let Some(mut structure) = schema.and_then(|schema| serde_json::to_value(schema).ok()) {
                    add_type_meta(&mut structure);
                    let key = (
                        format!("{}/{}", spec.group, version.name),
                        spec.names.kind.clone(),
                    );
                    schemas.insert(
                        key,
                        Schema {
                            structure,
                            rules: OnceLock::new(),
                        },
                    );
                }
            }
        }
        schemas
    })
}

/// `apiVersion`, `kind` and `metadata` belong to every object and are not part of a definition.
fn add_type_meta(schema: &mut Value) {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("apiVersion".into(), serde_json::json!({"type": "string"}));
        properties.insert("kind".into(), serde_json::json!({"type": "string"}));
        properties.insert("metadata".into(), serde_json::json!({"type": "object"}));
    }
}
