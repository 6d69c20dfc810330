//! `oooi check`: all mistakes of manifests at once.

use oooi_api::{DhcpServer, DnsServer, Infra, ProxyServer};
use oooi_manifest::{Document, Mistake};
use oooi_plan::Known;

use crate::Outcome;
use crate::input::Files;

/// Say everything that is wrong with manifests, each mistake with its place and its remedy
///
/// Documents of oooi's own kinds are held against the same schema and rules as the API server's, without one, and then
/// against what the servers need. Documents of other kinds are only read.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    files: Files,
}

/// Prints the mistakes, or a line a document if there are none. Something that works, but maybe not as meant, is a
/// warning.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut mistakes = Vec::new();
    let mut lines = Vec::new();
    let mut warned = false;
    for source in args.files.inputs().texts()? {
        let documents = match oooi_manifest::read(&source) {
            Ok(documents) => documents,
            Err(unreadable) => {
                mistakes.extend(unreadable);
                continue;
            }
        };
        for document in documents {
            let found = check(&document);
            if found.mistakes.is_empty() {
                let name = document.name().unwrap_or_default();
                lines.push(format!("{}: {} {name} is valid", source.name, document.kind()));
            }
            warned |= !found.warnings.is_empty();
            lines.extend(found.warnings.iter().map(|warning| format!("warning: {warning}")));
            mistakes.extend(found.mistakes);
        }
    }
    if mistakes.is_empty() {
        println!("{}", lines.join("\n"));
        return Ok(if warned { Outcome::Attention } else { Outcome::Done });
    }
    for mistake in &mistakes {
        println!("{}\n", mistake.with_snippet());
    }
    let count = mistakes.len();
    println!("{count} mistake{} found", if count == 1 { "" } else { "s" });
    Ok(Outcome::Invalid)
}

/// What is wrong with a document, and what is odd.
#[derive(Default)]
struct Findings {
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

/// First what the API server would say; only if that is nothing, what those who run it would say.
fn check(document: &Document) -> Findings {
    let mistakes = document.check();
    if !mistakes.is_empty() {
        return Findings {
            mistakes,
            ..Findings::default()
        };
    }
    let found = match document.kind() {
        "Infra" => document
            .decode()
            .map(|infra: Infra| infra_findings(document, &infra)),
        "DHCPServer" => document.decode().map(|server: DhcpServer| {
            let found = oooi_dhcp::config::Config::from_spec(&server.spec, &[]).err();
            let found = found.iter().flat_map(oooi_dhcp::config::Mistakes::iter);
            Findings {
                mistakes: found.map(|m| document.mistake(&m.path, &m.message)).collect(),
                ..Findings::default()
            }
        }),
        "DNSServer" => document.decode().map(|server: DnsServer| {
            let found = oooi_dns::config::Config::from_resource(&server).err();
            let found = found.iter().flat_map(|found| &found.0);
            Findings {
                mistakes: found.map(|m| document.mistake(&m.path, &m.message)).collect(),
                ..Findings::default()
            }
        }),
        // A gateway leaves a bad backend out and serves the rest.
        "ProxyServer" => document.decode().map(|server: ProxyServer| {
            let (_, found) = oooi_proxy::config::Config::read(&server.spec);
            let warnings = found
                .iter()
                .map(|m| document.mistake(&m.field, &m.message))
                .collect();
            Findings {
                warnings,
                ..Findings::default()
            }
        }),
        _ => return Findings::default(),
    };
    found.unwrap_or_else(|mistake| Findings {
        mistakes: vec![mistake],
        ..Findings::default()
    })
}

fn infra_findings(document: &Document, infra: &Infra) -> Findings {
    match oooi_plan::plan(infra, &Known::default()) {
        Ok(components) => Findings {
            warnings: components
                .warnings
                .iter()
                .map(|w| document.mistake(&w.path, &w.message))
                .collect(),
            ..Findings::default()
        },
        Err(found) => Findings {
            mistakes: found
                .iter()
                .map(|m| document.mistake(&m.path, &m.message))
                .collect(),
            ..Findings::default()
        },
    }
}
