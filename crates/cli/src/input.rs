//! Manifests from the command line: `-f FILE`, `-f -`, `-f DIRECTORY`, as often as wanted.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use oooi_manifest::Source;

/// Where manifests come from.
#[derive(clap::Args)]
pub(crate) struct Files {
    /// A manifest, a directory (every *.yaml in it), or - for standard input; may repeat
    #[arg(
        short = 'f',
        long = "filename",
        alias = "config-file",
        value_name = "FILE",
        required = true
    )]
    files: Vec<PathBuf>,
}

impl Files {
    /// Reads them all.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Arc<Source>>> {
        let mut sources = Vec::new();
        for file in &self.files {
            if file.as_os_str() == "-" {
                let mut text = String::new();
                std::io::stdin()
                    .read_to_string(&mut text)
                    .context("standard input cannot be read")?;
                sources.push(Source::new("-", text));
            } else if file.is_dir() {
                let members = yaml_files(file)?;
                if members.is_empty() {
                    bail!("{} holds no *.yaml", file.display());
                }
                for member in &members {
                    sources.push(read_file(member)?);
                }
            } else {
                sources.push(read_file(file)?);
            }
        }
        Ok(sources)
    }
}

fn read_file(path: &Path) -> anyhow::Result<Arc<Source>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(Source::new(path.display().to_string(), text))
}

/// The manifests of a directory, in the order of their names.
fn yaml_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("{} cannot be listed", directory.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
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
