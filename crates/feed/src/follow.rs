//! Keeps a configuration in step with its manifests.

use std::sync::Arc;

use oooi_manifest::{Document, Mistake, Source};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::change::Changes;
use crate::inputs::{Inputs, Unreadable, documents};

/// Reads manifests, builds a configuration from them, and goes on doing so whenever they change.
///
/// The first reading must succeed. A later one that fails is handed to `refused`, and the receiver keeps the last
/// good configuration. The task ends when nobody holds the receiver any more.
pub fn follow<T, B, R>(
    inputs: Inputs,
    build: B,
    mut refused: R,
) -> Result<watch::Receiver<Arc<T>>, Unreadable>
where
    T: Send + Sync + 'static,
    B: Fn(&[Document]) -> Result<T, Vec<Mistake>> + Send + 'static,
    R: FnMut(&Unreadable) + Send + 'static,
{
    let directories = inputs.directories();
    let watching = |source| Unreadable::File {
        path: directories
            .iter()
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>()
            .join(", "),
        source,
    };
    // Watched before it is read, so that no change falls between.
    let mut changes = Changes::in_directories(&directories).map_err(watching)?;
    let mut texts = inputs.texts()?;
    let (sender, receiver) = watch::channel(Arc::new(construct(&texts, &build)?));
    if directories.is_empty() {
        return Ok(receiver);
    }
    tokio::spawn(async move {
        loop {
            tokio::select! {
                () = sender.closed() => return,
                change = changes.next() => if let Err(error) = change {
                    warn!(%error, "manifests are no longer followed: restart to apply changes");
                    return;
                },
            }
            let read = match inputs.texts() {
                Ok(read) if read == texts => continue,
                Ok(read) => read,
                Err(error) => {
                    warn!(%error, "the change is refused, the last good configuration stays");
                    refused(&error);
                    texts.clear(); // whatever comes next is news, also what was there before
                    continue;
                }
            };
            texts = read;
            match construct(&texts, &build) {
                Ok(configuration) => {
                    info!("the manifests changed and are applied");
                    sender.send_replace(Arc::new(configuration));
                }
                Err(error) => {
                    warn!(%error, "the change is refused, the last good configuration stays");
                    refused(&error);
                }
            }
        }
    });
    Ok(receiver)
}

fn construct<T>(
    texts: &[Arc<Source>],
    build: impl Fn(&[Document]) -> Result<T, Vec<Mistake>>,
) -> Result<T, Unreadable> {
    build(&documents(texts)?).map_err(Unreadable::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tokio::sync::mpsc;

    fn map(value: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {value}}}\n")
    }

    /// The names of the documents; one called `bad` is a mistake.
    fn names(documents: &[Document]) -> Result<Vec<String>, Vec<Mistake>> {
        let wrong = documents.iter().filter(|d| d.name().as_deref() == Some("bad"));
        let mistakes: Vec<Mistake> = wrong
            .map(|d| d.mistake("metadata.name", "must not be bad"))
            .collect();
        if mistakes.is_empty() {
            Ok(documents.iter().filter_map(Document::name).collect())
        } else {
            Err(mistakes)
        }
    }

    fn start(path: &Path) -> (watch::Receiver<Arc<Vec<String>>>, mpsc::UnboundedReceiver<String>) {
        let (sender, refusals) = mpsc::unbounded_channel();
        let refused = move |error: &Unreadable| {
            let _ = sender.send(error.to_string());
        };
        (
            follow(Inputs::new(vec![path.to_owned()]), names, refused).unwrap(),
            refusals,
        )
    }

    #[tokio::test]
    async fn a_written_file_is_applied() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.yaml");
        std::fs::write(&file, map("one")).unwrap();
        let (mut receiver, _refusals) = start(&file);
        assert_eq!(**receiver.borrow_and_update(), ["one"]);
        std::fs::write(&file, map("two")).unwrap();
        // A write may be seen empty first, between truncation and content: the last state is what counts.
        receiver.wait_for(|names| **names == ["two"]).await.unwrap();
    }

    #[tokio::test]
    async fn a_config_map_that_is_swapped_by_a_link_is_applied() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (version, name) in [("v1", "one"), ("v2", "two")] {
            std::fs::create_dir(at(version)).unwrap();
            std::fs::write(at(version).join("a.yaml"), map(name)).unwrap();
        }
        std::os::unix::fs::symlink("v1", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/a.yaml", at("a.yaml")).unwrap();
        let (mut receiver, _refusals) = start(&at("a.yaml"));
        std::os::unix::fs::symlink("v2", at("..data_tmp")).unwrap();
        std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
        receiver.wait_for(|names| **names == ["two"]).await.unwrap();
    }

    #[tokio::test]
    async fn a_bad_change_is_refused_and_the_last_good_one_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.yaml");
        let replace = |text: String| {
            let new = directory.path().join("new.tmp");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &file).unwrap();
        };
        replace(map("one"));
        let (mut receiver, mut refusals) = start(&file);
        replace(map("bad"));
        assert!(
            refusals
                .recv()
                .await
                .unwrap()
                .contains("a.yaml:3:18: metadata.name: must not be bad")
        );
        assert_eq!(**receiver.borrow(), ["one"]);
        replace(map("three"));
        receiver.wait_for(|names| **names == ["three"]).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_was_gone_and_is_back_as_it_was_is_applied() {
        let directory = tempfile::tempdir().unwrap();
        let (file, aside) = (directory.path().join("a.yaml"), directory.path().join("aside"));
        std::fs::write(&file, map("one")).unwrap();
        let (mut receiver, mut refusals) = start(&file);
        receiver.borrow_and_update();
        std::fs::rename(&file, &aside).unwrap();
        assert!(refusals.recv().await.unwrap().contains("a.yaml"));
        std::fs::rename(&aside, &file).unwrap();
        receiver.changed().await.unwrap();
        assert_eq!(**receiver.borrow(), ["one"]);
    }

    #[tokio::test]
    async fn a_new_file_in_a_directory_is_applied() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.yaml"), map("one")).unwrap();
        let (mut receiver, _refusals) = start(directory.path());
        std::fs::write(directory.path().join("b.yaml"), map("two")).unwrap();
        receiver
            .wait_for(|names| **names == ["one", "two"])
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_read_at_the_start_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let missing = Inputs::new(vec![directory.path().join("none.yaml")]);
        let error = follow(missing, names, |_| {}).unwrap_err().to_string();
        assert!(error.contains("none.yaml cannot be read"), "{error}");
        let empty = Inputs::new(vec![directory.path().to_owned()]);
        let error = follow(empty, names, |_| {}).unwrap_err().to_string();
        assert!(error.contains("holds no *.yaml"), "{error}");
    }
}
