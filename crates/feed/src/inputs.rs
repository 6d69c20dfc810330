//! Manifests by the names that people give: files, directories, standard input.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oooi_manifest::{Document, Mistake, Source};

/// Files, directories (every `*.yaml` in them) and `-` for standard input.
#[derive(Clone, Debug)]
pub struct Inputs {
    paths: Vec<PathBuf>,
}

/// Manifests that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A file cannot be opened or is not text.
    #[error("{path} cannot be read: {source}")]
    File {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A directory holds no manifest.
    #[error("{path} holds no *.yaml: name a file, or a directory with manifests")]
    Empty {
        /// The directory.
        path: String,
    },
    /// There is nothing in them.
    #[error("there is no document in the manifests: write one")]
    Nothing,
    /// What they say is wrong.
    #[error("{}", list(.0))]
    Wrong(Vec<Mistake>),
}

fn list(mistakes: &[Mistake]) -> String {
    mistakes
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

impl Inputs {
    /// Manifests under these names.
    pub fn new(paths: Vec<PathBuf>) -> Self {
        Inputs { paths }
    }

    /// Their texts.
    pub fn texts(&self) -> Result<Vec<Arc<Source>>, Unreadable> {
        let mut sources = Vec::new();
        for path in &self.paths {
            if is_standard_input(path) {
                let mut text = String::new();
                io::stdin()
                    .read_to_string(&mut text)
                    .map_err(|source| unreadable(path, source))?;
                sources.push(Source::new("-", text));
            } else if path.is_dir() {
                let members = manifests_in(path).map_err(|source| unreadable(path, source))?;
                if members.is_empty() {
                    return Err(Unreadable::Empty {
                        path: path.display().to_string(),
                    });
                }
                for member in &members {
                    sources.push(read(member)?);
                }
            } else {
                sources.push(read(path)?);
            }
        }
        Ok(sources)
    }

    /// Their documents, each of our kinds held against its definition; all mistakes at once.
    pub fn documents(&self) -> Result<Vec<Document>, Unreadable> {
        documents(&self.texts()?)
    }

    /// The directories in which a change to these manifests shows. Standard input does not change.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let directory = |path: &PathBuf| match path.parent() {
            _ if path.is_dir() => path.clone(),
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        self.paths
            .iter()
            .filter(|path| !is_standard_input(path))
            .map(directory)
            .collect()
    }
}

/// The documents of texts, each of our kinds held against its definition.
pub(crate) fn documents(texts: &[Arc<Source>]) -> Result<Vec<Document>, Unreadable> {
    let mut all = Vec::new();
    let mut mistakes = Vec::new();
    for source in texts {
        match oooi_manifest::read(source) {
            Err(found) => mistakes.extend(found),
            Ok(documents) => {
                mistakes.extend(documents.iter().flat_map(Document::check));
                all.extend(documents);
            }
        }
    }
    match (mistakes.is_empty(), all.is_empty()) {
        (true, false) => Ok(all),
        (true, true) => Err(Unreadable::Nothing),
        (false, _) => Err(Unreadable::Wrong(mistakes)),
    }
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn unreadable(path: &Path, source: io::Error) -> Unreadable {
    Unreadable::File {
        path: path.display().to_string(),
        source,
    }
}

fn read(path: &Path) -> Result<Arc<Source>, Unreadable> {
    let text = std::fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
    Ok(Source::new(path.display().to_string(), text))
}

/// The manifests of a directory, in the order of their names.
fn manifests_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
