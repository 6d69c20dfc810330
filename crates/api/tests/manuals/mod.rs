//! Manifests in documents: the YAML of a Markdown file, and why a piece of it is no manifest of ours.
//!
//! Taken are fenced blocks marked `yaml` or `yml`, and within blocks of shell commands the here-documents that are
//! given to `apply` or `create`. What is not complete is passed over with its reason, never silently.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::Value;

use crate::api_server::{Resource, documents};

/// A piece of YAML and where it stands.
pub(crate) struct Piece {
    /// The line of its first character, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// What a piece is.
pub(crate) enum Content {
    /// Objects of our kinds, each to be accepted.
    Ours(Vec<(Resource, Value)>),
    /// Something else, for this reason.
    PassedOver(String),
}

/// The pieces of YAML in a Markdown text.
pub(crate) fn pieces(markdown: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(language) = line.trim().strip_prefix("```") else {
            continue;
        };
        let block: Vec<(usize, &str)> = lines
            .by_ref()
            .take_while(|(_, line)| line.trim() != "```")
            .map(|(at, line)| (at + 1, line.get(indent..).unwrap_or_default()))
            .collect();
        match language.trim() {
            "yaml" | "yml" => pieces.extend(piece(&block)),
            "bash" | "sh" | "shell" | "console" => pieces.extend(here_documents(&block)),
            _ => {}
        }
    }
    pieces
}

fn piece(lines: &[(usize, &str)]) -> Option<Piece> {
    let (line, _) = *lines.first()?;
    let text = lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n");
    Some(Piece { line, text })
}

/// What stands between `apply -f - <<WORD` and `WORD`.
fn here_documents(block: &[(usize, &str)]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = block;
    while let Some(start) = rest.iter().position(|(_, line)| opens(line).is_some()) {
        let word = opens(rest[start].1).unwrap_or_default();
        let body = &rest[start + 1..];
        let end = body
            .iter()
            .position(|(_, line)| line.trim() == word)
            .unwrap_or(body.len());
        pieces.extend(piece(&body[..end]));
        rest = &body[end..];
    }
    pieces
}

/// The word that ends the here-document which this command line begins.
fn opens(line: &str) -> Option<&str> {
    let (command, word) = line.split_once("<<")?;
    let writes = command
        .split_whitespace()
        .any(|part| ["apply", "create", "replace"].contains(&part));
    let word = word.trim_start_matches('-').trim();
    let word = word.split_whitespace().next()?.trim_matches(['\'', '"']);
    writes.then_some(word)
}

/// What a piece is, to those who know `ours`.
pub(crate) fn content(piece: &Piece, ours: &[Resource]) -> Content {
    if let Some(elision) = piece
        .text
        .lines()
        // Alone on its line `...` ends a document.
        .find(|line| (line.contains("...") && line.trim() != "...") || line.contains('…'))
    {
        return Content::PassedOver(format!("it leaves something out: `{}`", elision.trim()));
    }
    let objects = match documents("piece", &piece.text) {
        Ok(objects) => objects,
        Err(mistakes) => return Content::PassedOver(mistakes),
    };
    let mut found = Vec::new();
    for object in objects {
        match ours.iter().find(|kind| kind.is_of(&object)) {
            Some(kind) => found.push((kind.clone(), object)),
            None => {
                return Content::PassedOver(format!(
                    "a foreign kind: {} {}",
                    object["apiVersion"].as_str().unwrap(),
                    object["kind"].as_str().unwrap()
                ));
            }
        }
    }
    if found.is_empty() {
        return Content::PassedOver("it is empty".into());
    }
    Content::Ours(found)
}

#[test]
fn blocks_and_here_documents_are_found_with_their_lines() {
    let markdown = "\
# Title
```yaml
kind: A
```
1. step
   ```bash
   kubectl apply -f - <<'EOF'
   kind: B
   list:
   - c
   EOF
   cat <<EOF
   kind: ignored
   EOF
   ```
```go
kind: ignored
```
```sh
oc create -f - <<-END
kind: C
";
    let found: Vec<(usize, String)> = pieces(markdown)
        .into_iter()
        .map(|piece| (piece.line, piece.text))
        .collect();
    assert_eq!(
        found,
        [
            (3, "kind: A".to_owned()),
            (8, "kind: B\nlist:\n- c".to_owned()),
            (21, "kind: C".to_owned()),
        ]
    );
}

#[test]
fn what_is_no_complete_manifest_of_ours_is_passed_over_with_the_reason() {
    let why = |text: &str| match content(
        &Piece {
            line: 1,
            text: text.to_owned(),
        },
        &crate::api_server::our_kinds(),
    ) {
        Content::PassedOver(why) => why,
        Content::Ours(objects) => panic!("{} objects of ours in {text}", objects.len()),
    };
    let head = "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\n";
    assert!(why(&format!("{head}spec: {{...}}\n")).contains("leaves something out"));
    assert!(why("apiVersion: v1\nkind: Pod\n").contains("a foreign kind: v1 Pod"));
    assert!(why("cidr: 10.0.0.0/8\n").contains("not a Kubernetes object"));
    assert!(why("# nothing\n").contains("empty"));
    let Content::Ours(objects) = content(
        &Piece {
            line: 1,
            text: format!("{head}spec: {{}}\n...\n"),
        },
        &crate::api_server::our_kinds(),
    ) else {
        panic!("the end of a document is no elision")
    };
    assert_eq!(objects.len(), 1);
}
