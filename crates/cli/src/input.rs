//! Manifests from the command line: `-f FILE`, `-f -`, `-f DIRECTORY`, as often as wanted.

use std::path::PathBuf;

use oooi_feed::Inputs;

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
    /// The manifests that were named.
    pub(crate) fn inputs(&self) -> Inputs {
        Inputs::new(self.files.clone())
    }
}
