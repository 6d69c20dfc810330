//! Other projects' own files against ours: `make conformance VENDOR_CRDS=dir SEEDS=dir`.
//!
//! - `VENDOR_CRDS`: definitions, one a file. Those named `upstream-*` are the definitions that ours replace: ours must
//!   take all that they took. Through the others every foreign type goes and comes back.
//! - `SEEDS`: Markdown documents for users of what ours replaces. Their complete manifests must be accepted.
//!
//! Each test prints what it did and what it passed over; see it with `--nocapture`. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api_server;
mod manuals;
mod round_trip;
mod upstream;

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use api_server::{ApiServer, our_kinds};
use http::Method;
use manuals::{Content, content, pieces};
use oooi_testkit::{Cluster, until};
use serde_json::{Value, json};

/// The files of the folder that an environment variable names, sorted.
fn files(variable: &str, extension: &str) -> Vec<PathBuf> {
    let folder = env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `make conformance VENDOR_CRDS=dir SEEDS=dir` with absolute paths")
    });
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{variable}={folder}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == extension))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{variable}={folder} has no *.{extension}");
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Whether a file is the definition of a kind that ours replaces.
fn is_upstream(path: &Path) -> bool {
    name(path).starts_with("upstream-")
}

#[tokio::test]
async fn foreign_types_survive_the_vendors_own_definitions() {
    let files = files("VENDOR_CRDS", "yaml");
    // Not the shared cluster: stand-ins of other tests must not answer for the vendors.
    let cluster = Cluster::start().await.unwrap();
    let namespace = cluster.namespace("conformance").await.unwrap();
    let server = ApiServer::of(&cluster).await;
    let mut installed = Vec::new();
    for file in files.iter().filter(|file| !is_upstream(file)) {
        installed.extend(server.install(file).await);
    }

    let mut wrong = Vec::new();
    let mut tried = 0;
    for trip in round_trip::every_kind() {
        let kind = &trip.resource.kind;
        if installed.contains(&trip.resource) {
            wrong.extend(trip.run(&server, namespace.name()).await);
            println!("tried        {kind}");
            tried += 1;
        } else if installed.iter().any(|other| &other.kind == kind) {
            wrong.push(format!("{:?} is defined otherwise: {installed:?}", trip.resource));
        } else {
            println!("passed over  {kind}: VENDOR_CRDS does not define it");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 0, "VENDOR_CRDS defines no kind that we know");
}

#[tokio::test]
async fn complete_manifests_of_the_manuals_are_accepted() {
    let files = files("SEEDS", "md");
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("manuals").await.unwrap();
    let server = ApiServer::of(cluster).await;
    server.install_ours().await;
    let ours = our_kinds();

    let mut wrong = Vec::new();
    let mut accepted = 0;
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        for piece in pieces(&text) {
            let place = format!("{}:{}", name(file), piece.line);
            match content(&piece, &ours) {
                Content::PassedOver(why) => println!("passed over  {place}: {why}"),
                Content::Ours(objects) => {
                    for (kind, object) in objects {
                        match server.offer(&kind, namespace.name(), &object).await {
                            Ok(_) => {
                                println!(
                                    "accepted     {place}: {} {}",
                                    kind.kind, object["metadata"]["name"]
                                );
                                accepted += 1;
                            }
                            Err(said) => wrong.push(format!("{place}: {} is refused: {said}", kind.kind)),
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(accepted > 0, "SEEDS has no complete manifest of ours");
}

/// A field of each kind that only our definition knows: while it is refused, the older definition is still served.
fn with_a_new_field(mut object: Value) -> Value {
    let (part, field, value) = match object["kind"].as_str() {
        Some("Infra") => ("/spec/networkConfig", "mtu", json!(1400)),
        Some("EgressIPAM") => ("/spec", "allocationPolicy", json!("Lowest")),
        _ => ("/spec", "replicas", json!(1)),
    };
    object.pointer_mut(part).unwrap()[field] = value;
    object
}

fn is_readable(object: Value) -> Result<(), serde_json::Error> {
    match object["kind"].as_str() {
        Some("Infra") => serde_json::from_value::<oooi_api::Infra>(object).map(drop),
        Some("DHCPServer") => serde_json::from_value::<oooi_api::DhcpServer>(object).map(drop),
        Some("DNSServer") => serde_json::from_value::<oooi_api::DnsServer>(object).map(drop),
        Some("ProxyServer") => serde_json::from_value::<oooi_api::ProxyServer>(object).map(drop),
        Some("EgressIPAM") => serde_json::from_value::<oooi_api::EgressIpam>(object).map(drop),
        kind => panic!("the older definitions have no {kind:?}"),
    }
}

/// What users have in their clusters: stored under the older definitions, with their defaults, images included.
#[tokio::test]
async fn stored_objects_outlive_the_change_of_their_definitions() {
    let definitions = files("VENDOR_CRDS", "yaml");
    let manuals = files("SEEDS", "md");
    let cluster = Cluster::start().await.unwrap();
    let namespace = cluster.namespace("upgrade").await.unwrap();
    let server = ApiServer::of(&cluster).await;
    let mut older = Vec::new();
    for file in definitions.iter().filter(|file| is_upstream(file)) {
        older.extend(server.install(file).await);
    }

    let mut paths = Vec::new();
    for file in &manuals {
        for piece in pieces(&std::fs::read_to_string(file).unwrap()) {
            let Content::Ours(objects) = content(&piece, &older) else {
                continue; // listed by the test above
            };
            for (kind, mut object) in objects {
                // The manuals use a name more than once.
                let name = format!("object-{}", paths.len());
                object["metadata"] = json!({"name": name});
                let all = kind.path(namespace.name());
                match server.send(Method::POST, &all, &object).await {
                    Ok(_) => paths.push(format!("{all}/{name}")),
                    // Here the manuals disagree with the definitions that they are about.
                    Err(said) => println!("passed over  {}: {said}", kind.kind),
                }
            }
        }
    }
    assert!(
        !paths.is_empty(),
        "no manifest of SEEDS fits the older definitions"
    );

    server.install_ours().await;
    for path in &paths {
        let stored = server.send(Method::GET, path, &Value::Null).await.unwrap();
        let changed = with_a_new_field(stored.clone());
        until("our definition", Duration::from_secs(30), async || {
            server
                .send(Method::PUT, &format!("{path}?fieldValidation=Strict"), &changed)
                .await
        })
        .await
        .unwrap();
        is_readable(stored).unwrap();
        println!("kept         {path}");
    }
}

#[test]
fn what_ours_replace_is_taken_over_whole() {
    let files = files("VENDOR_CRDS", "yaml");
    let ours: Vec<Value> = oooi_api::definitions()
        .iter()
        .map(|definition| serde_json::to_value(definition).unwrap())
        .collect();

    let mut wrong = Vec::new();
    let mut compared = 0;
    for file in files.iter().filter(|file| is_upstream(file)) {
        let text = std::fs::read_to_string(file).unwrap();
        for theirs in api_server::documents(name(file), &text).unwrap() {
            let own_name = &theirs["metadata"]["name"];
            let Some(same) = ours
                .iter()
                .find(|definition| &definition["metadata"]["name"] == own_name)
            else {
                wrong.push(format!("{}: we have no {own_name}", name(file)));
                continue;
            };
            let losses = upstream::losses(&theirs, same);
            wrong.extend(losses.iter().map(|loss| format!("{}: {loss}", name(file))));
            println!("compared     {own_name}");
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 0, "VENDOR_CRDS has no upstream-*.yaml");
}
