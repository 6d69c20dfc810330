//! Keeps a configuration in step with a server's own resource: from its mounted file and from a watch.
//!
//! ```text
//! file ──┐
//!        ├── the newer one of the resource (see `identity`) ── build ──► watch::Receiver<Arc<T>>
//! watch ─┘                                                       └────► Verdict
//! ```
//! A server starts from the file though the API server is away, and from the watch though the file is missing or
//! wrong. A resource that is deleted is served on: whoever deletes it also ends the server.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::watcher;
use oooi_manifest::{Document, Mistake, Source};
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

use crate::change::Changes;
use crate::cluster::Own;
use crate::identity::{Identity, Origin, supersedes};
use crate::inputs::{Inputs, Unreadable, documents};
use crate::watching::{Seen, Watching};

/// What became of a version of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The resource's uid, if the manifest names it.
    pub uid: Option<String>,
    /// Its generation, if the manifest names it.
    pub generation: Option<i64>,
    /// Why it was refused; nothing if it is served.
    pub refused: Option<String>,
}

/// Builds a configuration from manifests and from the resource itself, and goes on doing so whenever they change.
///
/// Returns when there is a first good configuration. `told` hears of every version of the resource that was tried.
/// The task ends when nobody holds the receiver any more.
pub async fn follow<T, B, R>(
    inputs: Option<Inputs>,
    own: Own,
    build: B,
    told: R,
) -> Result<watch::Receiver<Arc<T>>, Unreadable>
where
    T: Send + Sync + 'static,
    B: Fn(&[Document]) -> Result<T, Vec<Mistake>> + Send + 'static,
    R: FnMut(Verdict) + Send + 'static,
{
    let (first, ready) = oneshot::channel();
    let mut follower = Follower {
        own,
        build,
        told,
        resource: None,
        beside: Vec::new(),
        output: Output::Waiting(first),
    };
    let mut files = inputs.map(Files::open).transpose()?;
    if let Some(files) = &mut files {
        match files.read() {
            Ok(documents) => follower.take_file(documents.unwrap_or_default()),
            Err(error) => follower.refuse(Identity::default(), error.to_string()),
        }
    }
    if matches!(follower.output, Output::Waiting(_)) {
        info!(resource = %follower.own, "waiting for the resource");
    }
    tokio::spawn(follower.run(files));
    ready.await.map_err(|_| Unreadable::Nothing)
}

/// Manifests in files, and the word that they changed.
struct Files {
    inputs: Inputs,
    changes: Changes,
    texts: Vec<Arc<Source>>,
}

impl Files {
    fn open(inputs: Inputs) -> Result<Self, Unreadable> {
        let directories = inputs.directories();
        let changes = Changes::in_directories(&directories).map_err(|source| Unreadable::File {
            path: format!("{directories:?}"),
            source,
        })?;
        Ok(Files {
            inputs,
            changes,
            texts: Vec::new(),
        })
    }

    /// The documents, if they are others than before.
    fn read(&mut self) -> Result<Option<Vec<Document>>, Unreadable> {
        // After what cannot be read everything is news, also what was there before.
        let texts = self.inputs.texts().inspect_err(|_| self.texts.clear())?;
        if texts == self.texts {
            return Ok(None);
        }
        self.texts = texts;
        documents(&self.texts).map(Some)
    }
}

/// Where configurations go.
enum Output<T> {
    /// There is none yet.
    Waiting(oneshot::Sender<watch::Receiver<Arc<T>>>),
    Serving(watch::Sender<Arc<T>>),
    /// Nobody waits any more.
    Closed,
}

struct Follower<T, B, R> {
    own: Own,
    build: B,
    told: R,
    resource: Option<(Document, Identity, Origin)>,
    beside: Vec<Document>,
    output: Output<T>,
}

impl<T, B, R> Follower<T, B, R>
where
    T: Send + Sync + 'static,
    B: Fn(&[Document]) -> Result<T, Vec<Mistake>> + Send + 'static,
    R: FnMut(Verdict) + Send + 'static,
{
    async fn run(mut self, mut files: Option<Files>) {
        let only = watcher::Config::default().fields(&format!("metadata.name={}", self.own.name));
        let mut watching = Watching::new(self.own.api(), only, self.own.to_string());
        loop {
            tokio::select! {
                () = closed(&mut self.output) => return,
                change = changed(&mut files) => match change {
                    Ok(None) => {}
                    Ok(Some(documents)) => self.take_file(documents),
                    Err(error) => self.refuse(Identity::default(), error.to_string()),
                },
                seen = watching.next() => match seen {
                    Seen::All(objects) => objects.into_iter().for_each(|object| self.take_object(object)),
                    Seen::Put(object) => self.take_object(object),
                    Seen::Gone(_) => warn!(resource = %self.own, "the resource is deleted; what it said last is served on"),
                    Seen::Lost => {}
                },
            }
        }
    }

    fn take_file(&mut self, documents: Vec<Document>) {
        let (mut own, beside): (Vec<_>, Vec<_>) =
            documents.into_iter().partition(|d| d.kind() == self.own.kind());
        self.beside = beside;
        // None is for the watch to bring; of two it is told that they are too many.
        if own.len() > 1 {
            self.beside.append(&mut own);
        }
        let news = own.pop().is_some_and(|document| {
            let identity = Identity::of(&document.to_value());
            self.adopt(document, identity, Origin::File)
        });
        if news || !self.beside.is_empty() {
            self.apply();
        }
    }

    fn take_object(&mut self, mut object: DynamicObject) {
        object.metadata.managed_fields = None;
        let mut value = serde_json::to_value(&object).unwrap_or_default();
        // Members of a list may come without their kind.
        value["apiVersion"] = self.own.api_version().into();
        value["kind"] = self.own.kind().into();
        let identity = Identity::of(&value);
        // JSON is YAML: the object passes through the same reader as a file.
        let source = Source::new(self.own.to_string(), format!("{value:#}"));
        match oooi_manifest::read(&source) {
            Ok(documents) => {
                for document in documents {
                    if self.adopt(document, identity.clone(), Origin::Watch) {
                        self.apply();
                    }
                }
            }
            Err(mistakes) => self.refuse(identity, words(&mistakes)),
        }
    }

    /// Takes a version of the resource if it is the newer one.
    fn adopt(&mut self, document: Document, identity: Identity, origin: Origin) -> bool {
        let current = self
            .resource
            .as_ref()
            .map(|(_, identity, origin)| (identity, *origin));
        let newer = supersedes((&identity, origin), current);
        if newer {
            self.resource = Some((document, identity, origin));
        }
        newer
    }

    fn apply(&mut self) {
        let resource = self.resource.as_ref();
        let identity = resource
            .map(|(_, identity, _)| identity.clone())
            .unwrap_or_default();
        let documents: Vec<Document> = resource
            .map(|(document, ..)| document.clone())
            .into_iter()
            .chain(self.beside.iter().cloned())
            .collect();
        let configuration = match (self.build)(&documents) {
            Ok(configuration) => Arc::new(configuration),
            Err(mistakes) => return self.refuse(identity, words(&mistakes)),
        };
        info!(resource = %self.own, generation = identity.generation, "applied");
        (self.told)(Verdict {
            uid: identity.uid,
            generation: identity.generation,
            refused: None,
        });
        self.output = match std::mem::replace(&mut self.output, Output::Closed) {
            Output::Waiting(first) => {
                let (sender, receiver) = watch::channel(configuration);
                match first.send(receiver) {
                    Ok(()) => Output::Serving(sender),
                    Err(_) => Output::Closed,
                }
            }
            Output::Serving(sender) => {
                sender.send_replace(configuration);
                Output::Serving(sender)
            }
            Output::Closed => Output::Closed,
        };
    }

    fn refuse(&mut self, identity: Identity, why: String) {
        warn!(resource = %self.own, generation = identity.generation, error = why, "refused, the last good configuration stays");
        (self.told)(Verdict {
            uid: identity.uid,
            generation: identity.generation,
            refused: Some(why),
        });
    }
}

/// Mistakes for a status: the field says where, since nobody sees the text that lines and columns are of.
fn words(mistakes: &[Mistake]) -> String {
    let one = |mistake: &Mistake| match (mistake.path.as_str(), &mistake.help) {
        ("", _) => mistake.message.clone(),
        (path, None) => format!("{path}: {}", mistake.message),
        (path, Some(help)) => format!("{path}: {} ({help})", mistake.message),
    };
    mistakes.iter().map(one).collect::<Vec<_>>().join("; ")
}

async fn closed<T>(output: &mut Output<T>) {
    match output {
        Output::Waiting(first) => first.closed().await,
        Output::Serving(sender) => sender.closed().await,
        Output::Closed => {}
    }
}

async fn changed(files: &mut Option<Files>) -> Result<Option<Vec<Document>>, Unreadable> {
    let Some(open) = files else {
        return std::future::pending().await;
    };
    if let Err(error) = open.changes.next().await {
        warn!(%error, "manifests are no longer followed; the watch goes on");
        *files = None;
        return Ok(None);
    }
    open.read()
}
