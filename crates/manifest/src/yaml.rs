//! YAML text → a tree whose every value knows where it stands.
//!
//! The text is untrusted: nesting is limited to [`DEPTH`] and the number of values, those behind aliases counted
//! each time, to [`VALUES`], so that neither the stack nor the memory can be exhausted. A key that stands twice in
//! one mapping is a mistake, since one of the two would be lost in silence.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::Value;

use crate::mistake::{Mistake, Place, Source};

/// How deep values may be nested; Kubernetes' own objects stay below 20.
const DEPTH: usize = 64;
/// How many values a text may have.
const VALUES: usize = 200_000;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) data: Data,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: Place,
    pub(crate) value: Node,
}

impl Node {
    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        match &self.data {
            Data::Map(entries) => entries.iter().find(|entry| entry.key == key),
            Data::List(_) | Data::Scalar(_) => None,
        }
    }

    /// The value without its places. A field that is null is left out, as the API server does.
    pub(crate) fn to_value(&self) -> Value {
        match &self.data {
            Data::Scalar(value) => value.clone(),
            Data::List(items) => items.iter().map(Node::to_value).collect(),
            Data::Map(entries) => {
                let given = entries.iter().filter(|entry| !entry.value.is_null());
                Value::Object(
                    given
                        .map(|entry| (entry.key.clone(), entry.value.to_value()))
                        .collect(),
                )
            }
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.data, Data::Scalar(Value::Null))
    }

    fn count(&self) -> usize {
        1 + match &self.data {
            Data::Scalar(_) => 0,
            Data::List(items) => items.iter().map(Node::count).sum(),
            Data::Map(entries) => entries.iter().map(|e| e.value.count()).sum(),
        }
    }
}

/// The documents of a text, empty ones left out.
pub(crate) fn parse(source: &Arc<Source>) -> Result<Vec<Node>, Mistake> {
    Builder {
        source,
        open: Vec::new(),
        anchors: HashMap::new(),
        values: 0,
        documents: Vec::new(),
    }
    .run()
}

struct Builder<'a> {
    source: &'a Arc<Source>,
    /// Lists and mappings that have begun and not ended, outermost first.
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    values: usize,
    documents: Vec<Node>,
}

struct Open {
    node: Node,
    anchor: usize,
    /// The key that waits for its value, in a mapping.
    key: Option<(String, Place)>,
}

impl Builder<'_> {
    fn run(mut self) -> Result<Vec<Node>, Mistake> {
        let text = &self.source.text;
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| {
                let place = Place {
                    line: error.marker().line(),
                    column: error.marker().col() + 1,
                    length: 1,
                };
                self.mistake(place, format!("this is not YAML: {}", error.info()))
            })?;
            self.take(event, span)?;
        }
        Ok(self.documents)
    }

    fn mistake(&self, place: Place, message: impl Into<String>) -> Mistake {
        Mistake {
            source: self.source.clone(),
            place,
            path: String::new(),
            message: message.into(),
            help: None,
        }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Mistake> {
        let place = Place {
            line: span.start.line(),
            column: span.start.col() + 1,
            length: span.len().max(1),
        };
        match event {
            Event::Scalar(text, style, anchor, _tag) => {
                let value = match style {
                    ScalarStyle::Plain => plain(&text),
                    _ => Value::String(text.into_owned()),
                };
                self.finish(
                    Node {
                        place,
                        data: Data::Scalar(value),
                    },
                    anchor,
                )
            }
            Event::SequenceStart(anchor, _) => self.begin(place, Data::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => self.begin(place, Data::Map(Vec::new()), anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.finish(open.node, open.anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(node) => {
                    self.values += node.count();
                    self.finish(node, 0)
                }
                None => Err(self.mistake(place, "this alias names no anchor that ended before it")),
            },
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn begin(&mut self, place: Place, data: Data, anchor: usize) -> Result<(), Mistake> {
        if self.open.len() >= DEPTH {
            return Err(self.mistake(place, format!("values are nested deeper than {DEPTH} levels")));
        }
        self.open.push(Open {
            node: Node { place, data },
            anchor,
            key: None,
        });
        Ok(())
    }

    /// Puts a whole value where it belongs.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Mistake> {
        let place = node.place;
        self.values += 1;
        if self.values > VALUES {
            return Err(self.mistake(place, format!("the manifest has more than {VALUES} values")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            if !node.is_null() {
                self.documents.push(node);
            }
            return Ok(());
        };
        match &mut parent.node.data {
            Data::List(items) => items.push(node),
            Data::Map(entries) => match parent.key.take() {
                Some((key, key_place)) => entries.push(Entry {
                    key,
                    place: key_place,
                    value: node,
                }),
                None => {
                    let key = match node.data {
                        Data::Scalar(Value::String(key)) => key,
                        Data::Scalar(value) => value.to_string(),
                        Data::List(_) | Data::Map(_) => {
                            return Err(self.mistake(place, "a key must be a plain word"));
                        }
                    };
                    if entries.iter().any(|entry| entry.key == key) {
                        return Err(
                            self.mistake(place, format!("`{key}` stands twice here: remove one of the two"))
                        );
                    }
                    parent.key = Some((key, place));
                }
            },
            Data::Scalar(_) => {}
        }
        Ok(())
    }
}

/// The value of an unquoted word, by the core schema of YAML 1.2.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let integer = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(hex), _) => i64::from_str_radix(hex, 16).ok(),
        (_, Some(octal)) => i64::from_str_radix(octal, 8).ok(),
        _ => text.parse::<i64>().ok(),
    };
    if let Some(integer) = integer {
        return Value::from(integer);
    }
    // `inf` and `nan` parse as numbers in Rust but are words here.
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && text.contains(|c: char| c.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(float) if numeric && float.is_finite() => Value::from(float),
        _ => Value::String(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(text: &str) -> Result<Vec<Value>, Mistake> {
        Ok(parse(&Source::new("t.yaml", text))?
            .iter()
            .map(Node::to_value)
            .collect())
    }

    #[test]
    fn words_get_the_types_that_yaml_gives_them() {
        let text =
            "a: 1\nb: 0x10\nc: 1.5\nd: true\ne: ~\nf: '1'\ng: 10.0.0.1\nh: yes\ni: inf\nj: 1h\nk:\nl: -3\n";
        let expected = serde_json::json!({"a": 1, "b": 16, "c": 1.5, "d": true, "f": "1", "g": "10.0.0.1",
            "h": "yes", "i": "inf", "j": "1h", "l": -3});
        assert_eq!(values(text).unwrap(), [expected]);
    }

    #[test]
    fn a_stream_has_several_documents_and_empty_ones_do_not_count() {
        assert_eq!(values("---\na: 1\n---\n---\nb: 2\n").unwrap().len(), 2);
        assert_eq!(values("").unwrap().len(), 0);
        assert_eq!(values("# only a comment\n").unwrap().len(), 0);
    }

    #[test]
    fn anchors_and_aliases_are_followed() {
        assert_eq!(
            values("a: &x {b: 1}\nc: *x\n").unwrap(),
            [serde_json::json!({"a": {"b": 1}, "c": {"b": 1}})]
        );
    }

    #[test]
    fn a_key_that_stands_twice_is_a_mistake_with_its_place() {
        let mistake = values("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!((mistake.place.line, mistake.place.column), (3, 1));
        assert!(mistake.message.contains("stands twice"));
    }

    #[test]
    fn text_that_is_not_yaml_names_line_and_column() {
        let mistake = values("a: [1, 2\nb: 3\n").unwrap_err();
        assert!(mistake.to_string().starts_with("t.yaml:2:"), "{mistake}");
    }

    #[test]
    fn nesting_is_bounded() {
        // The parser has a bound of its own for brackets, which is met first.
        assert!(
            values(&"[".repeat(100_000))
                .unwrap_err()
                .message
                .contains("recursion limit")
        );
        let indented: String = (0..100).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
        assert!(values(&indented).unwrap_err().message.contains("nested deeper"));
    }

    #[test]
    fn aliases_cannot_exhaust_memory() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let before = i - 1;
            text.push_str(&format!(
                "a{i}: &a{i} [{}]\n",
                vec![format!("*a{before}"); 10].join(", ")
            ));
        }
        assert!(values(&text).unwrap_err().message.contains("more than"));
    }

    #[test]
    fn every_prefix_of_a_manifest_is_read_or_refused() {
        let text = "a: &x {b: [1, \"two\", 'three']}\nc: *x\nd: |\n  text\n--- \ne: >-\n  folded\n";
        for end in 0..=text.len() {
            let _ = values(&text[..end]);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,80}|[-:{}\\[\\]&*!|>'\"a1 \\n#%,?]{0,80}") {
            let _ = values(&text);
        }
    }
}
