//! `oooi check`: all mistakes of manifests at once.

use crate::Outcome;
use crate::input::Files;

/// Say everything that is wrong with manifests, each mistake with its place and its remedy
///
/// Documents of oooi's own kinds are held against the same schema and rules as the API server's, without one.
/// Documents of other kinds are only read.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: Files,
}

/// Prints the mistakes, or a line a document if there are none.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut mistakes = Vec::new();
    let mut fine = Vec::new();
    for source in args.files.inputs().texts()? {
        match oooi_manifest::read(&source) {
            Err(unreadable) => mistakes.extend(unreadable),
            Ok(documents) => {
                for document in documents {
                    let found = document.check();
                    if found.is_empty() {
                        let name = document.name().unwrap_or_default();
                        fine.push(format!("{}: {} {name} is valid", source.name, document.kind()));
                    }
                    mistakes.extend(found);
                }
            }
        }
    }
    if mistakes.is_empty() {
        println!("{}", fine.join("\n"));
        return Ok(Outcome::Done);
    }
    for mistake in &mistakes {
        println!("{}\n", mistake.with_snippet());
    }
    let count = mistakes.len();
    println!("{count} mistake{} found", if count == 1 { "" } else { "s" });
    Ok(Outcome::Invalid)
}
