//! `oooi crds`: the custom resource definitions.

use std::path::PathBuf;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::Outcome;

/// Print the custom resource definitions, for `kubectl apply --server-side -f -`
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write one file a kind into this directory instead
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

/// Prints or writes them.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    for definition in oooi_api::definitions() {
        let text = yaml(&definition)?;
        match &args.output_dir {
            None => print!("---\n{text}"),
            Some(directory) => {
                let path = directory.join(format!("{}.yaml", definition.spec.names.plural));
                std::fs::create_dir_all(directory)
                    .and_then(|()| std::fs::write(&path, &text))
                    .with_context(|| format!("{} cannot be written", path.display()))?;
            }
        }
    }
    Ok(Outcome::Done)
}

fn yaml(definition: &CustomResourceDefinition) -> anyhow::Result<String> {
    serde_saphyr::to_string(definition).context("a definition cannot be written as YAML")
}
