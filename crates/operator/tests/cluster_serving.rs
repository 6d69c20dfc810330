//! What a manager serves over TLS, asked by a real API server. Needs the testbed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod world;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use oooi_api::Infra;
use oooi_operator::lease::Term;
use oooi_operator::metrics::Metrics;
use oooi_operator::serving::admission::{self, Webhook};
use oooi_operator::serving::certificate::Certificate;
use oooi_operator::serving::keeper::Keeper;
use oooi_operator::serving::{self, tls};
use oooi_testkit::{rights, until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use world::{LIMIT, World};

/// The first line of what a server answers to a `GET /metrics`.
async fn get(
    address: std::net::SocketAddr,
    trusted: &str,
    token: Option<&str>,
) -> Result<(StatusCode, String), String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    // The end of the connection may come without a farewell of TLS.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).map_err(|error| error.to_string())?;
    let code = answer.split(' ').nth(1).ok_or("no answer")?;
    Ok((code.parse().map_err(|_| answer.clone())?, answer))
}

#[tokio::test]
async fn metrics_are_for_those_whom_the_api_server_allows() {
    let world = World::start("metrics").await;
    let (client, calls) = rights::client_of(world.cluster, "oooi-system", "oooi-manager")
        .await
        .unwrap();
    let names = ["localhost".to_owned()];
    let first = Certificate::new(&names, None, jiff::Timestamp::now()).unwrap();
    let (serves, served) = tls::channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pages = serving::metrics(client, || Ok("oooi_leader 1\n# EOF\n".to_owned()));
    let server = tokio::spawn(serving::serve(listener, served, pages));
    assert!(
        get(address, &first.trusted, None).await.is_err(),
        "no certificate yet"
    );
    serves.take_up(&first).unwrap();

    let (code, _) = get(address, &first.trusted, None).await.unwrap();
    assert_eq!(code, StatusCode::UNAUTHORIZED, "without a token");
    let (code, _) = get(address, &first.trusted, Some("guessed")).await.unwrap();
    assert_eq!(code, StatusCode::UNAUTHORIZED, "with a wrong token");
    let namespace = world.namespace.name();
    let token = world
        .cluster
        .kubectl(&["-n", namespace, "create", "token", "default"])
        .await
        .unwrap();
    let (code, _) = get(address, &first.trusted, Some(token.trim())).await.unwrap();
    assert_eq!(code, StatusCode::FORBIDDEN, "without the role");
    let account = format!("{namespace}:default");
    let role = [
        "create",
        "clusterrolebinding",
        namespace,
        "--clusterrole=oooi-metrics-reader",
        "--serviceaccount",
        &account,
    ];
    world.cluster.kubectl(&role).await.unwrap();
    until("the role to count", LIMIT, async || {
        match get(address, &first.trusted, Some(token.trim())).await {
            Ok((StatusCode::OK, text)) if text.contains("oooi_leader 1") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    world
        .cluster
        .kubectl(&["delete", "clusterrolebinding", namespace])
        .await
        .unwrap();

    // A new certificate is served from the next connection on.
    let second = Certificate::new(&names, Some(&first), jiff::Timestamp::now()).unwrap();
    serves.take_up(&second).unwrap();
    assert!(
        get(address, &first.trusted, None).await.is_err(),
        "the old one is no longer served"
    );
    get(address, &second.trusted, None).await.unwrap();
    server.abort();
    assert_eq!(calls.forbidden(), [""; 0]);
}

/// A webhook that the API server reaches at this address, with its certificate kept in the cluster.
async fn webhook(world: &World) -> (String, Vec<tokio::task::JoinHandle<()>>) {
    let (client, _) = rights::client_of(world.cluster, "oooi-system", "oooi-manager")
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (serves, served) = tls::channel();
    let (leads, leading) = watch::channel(Term::Unlimited);
    let keeper = Keeper::new(
        client.clone(),
        "oooi-system".into(),
        vec!["localhost".into()],
        leading,
        serves,
        Metrics::default(),
    );
    let (stores, follow) = admission::follow(client);
    let pages = admission::router(Webhook {
        stores,
        manager: None,
    });
    let tasks = vec![
        tokio::spawn(async move {
            let _leads = leads;
            keeper.keep().await;
        }),
        tokio::spawn(follow),
        tokio::spawn(async move {
            serving::serve(listener, served, pages).await.unwrap();
        }),
    ];
    (
        format!("https://localhost:{}{}", address.port(), admission::PATH),
        tasks,
    )
}

#[tokio::test]
async fn the_api_server_refuses_what_collides_and_trusts_the_certificate_that_the_manager_made() {
    let world = World::start("webhook").await;
    world.network("vlan").await;
    let (url, tasks) = webhook(&world).await;
    // As it is shipped, but for the way to it: no node of this cluster could lead to a Service.
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/kustomize/default/webhook.yaml"
    );
    let text = world
        .cluster
        .kubectl(&["create", "--dry-run=client", "-o", "json", "-f", shipped])
        .await
        .unwrap();
    let mut own: Value = serde_json::from_str(&text).unwrap();
    own["webhooks"][0]["clientConfig"] = json!({"url": url});
    own["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace.name()}});
    world.cluster.apply(&own.to_string()).await.unwrap();
    let configurations = Api::<ValidatingWebhookConfiguration>::all(world.client.clone());
    until("the certificate to be trusted", LIMIT, async || {
        let configuration = configurations
            .get("oooi")
            .await
            .map_err(|error| error.to_string())?;
        let bundle = configuration.webhooks.unwrap_or_default()[0]
            .client_config
            .ca_bundle
            .clone();
        bundle.ok_or("not yet".to_owned())
    })
    .await
    .unwrap();

    let infras = world.api::<Infra>();
    let with_dns = |name: &str, address: &str| -> Infra {
        let mut infra = world.infra(name);
        infra["spec"]["infraComponents"] =
            json!({"dns": {"serverIP": address, "baseDomain": "example.com", "clusterName": name}});
        serde_json::from_value(infra).unwrap()
    };
    let params = PostParams::default();
    infras
        .create(&params, &with_dns("first", "10.20.0.9"))
        .await
        .unwrap();
    let message = until("the second to be refused", LIMIT, async || {
        match infras.create(&params, &with_dns("second", "10.20.0.9")).await {
            Err(kube::Error::Api(status)) if status.code == 422 => Ok(status.message.clone()),
            Ok(_) => {
                infras.delete("second", &DeleteParams::default()).await.unwrap();
                Err("allowed".to_owned()) // the webhook has not seen the first one yet
            }
            other => Err(format!("{other:?}")),
        }
    })
    .await
    .unwrap();
    assert!(message.contains("first"), "{message}");
    infras
        .create(&params, &with_dns("third", "10.20.0.10"))
        .await
        .unwrap();

    // A certificate that is lost is made anew.
    let secrets = Api::<Secret>::namespaced(world.client.clone(), "oooi-system");
    let before = secrets.get("oooi-manager-certificate").await.unwrap();
    secrets
        .delete("oooi-manager-certificate", &DeleteParams::default())
        .await
        .unwrap();
    until(
        "a new certificate",
        Duration::from_secs(20),
        async || match secrets.get_opt("oooi-manager-certificate").await {
            Ok(Some(secret)) if secret.uid() != before.uid() => Ok(()),
            other => Err(format!(
                "{:?}",
                other.map(|secret| secret.map(|secret| secret.uid()))
            )),
        },
    )
    .await
    .unwrap();
    configurations
        .delete("oooi", &DeleteParams::default())
        .await
        .unwrap();
    for task in tasks {
        task.abort();
    }
}
