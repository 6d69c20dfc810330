//! The only socket: one request, one answer, within a time.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, shown};

/// The body of a request.
pub(crate) type Body = Full<std::collections::VecDeque<u8>>;

/// No answer is larger than this: a thousand machines are some megabytes.
const LARGEST: usize = 32 << 20;

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Speaks HTTP, over TLS where the address says so.
#[derive(Clone)]
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    /// Why nobody can be asked over TLS.
    no_tls: Option<String>,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as text. Clouds answer in UTF-8.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Why there is no answer.
pub(crate) enum Lost {
    /// The request did not leave.
    NotSent(String),
    /// It may have arrived.
    NoAnswer(String),
}

impl Lost {
    pub(crate) fn error(self, call: &str) -> Error {
        let call = call.to_owned();
        match self {
            Lost::NotSent(why) => Error::Unreachable { call, why },
            Lost::NoAnswer(why) => Error::Unknown { call, why },
        }
    }
}

impl Http {
    /// A client that trusts the authorities of the host (`SSL_CERT_FILE`, `SSL_CERT_DIR`, else the system's).
    pub fn new() -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let no_tls = roots.is_empty().then(|| {
            "no certificate authority was found; mount a bundle and name it in SSL_CERT_FILE".to_owned()
        });
        // The provider is named, since a process-wide default may not have been chosen.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Http {
            client: Client::builder(TokioExecutor::new()).build(connector),
            no_tls,
        })
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Answer, Lost> {
        self.send_within(request, PATIENCE).await
    }

    pub(crate) async fn send_within(
        &self,
        request: Request<Body>,
        patience: Duration,
    ) -> Result<Answer, Lost> {
        if let Some(why) = &self.no_tls
            && request.uri().scheme_str() == Some("https")
        {
            return Err(Lost::NotSent(why.clone()));
        }
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| {
                let why = shown(&chain(&error));
                match error.is_connect() {
                    true => Lost::NotSent(why),
                    false => Lost::NoAnswer(why),
                }
            })?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, LARGEST).collect().await;
            let body = body.map_err(|error| Lost::NoAnswer(shown(&error.to_string())))?;
            Ok(Answer {
                status: parts.status,
                headers: parts.headers,
                body: body.to_bytes().to_vec(),
            })
        };
        match tokio::time::timeout(patience, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Lost::NoAnswer(format!(
                "nothing came within {} s",
                patience.as_secs()
            ))),
        }
    }
}

/// A body of this text.
pub(crate) fn body(text: String) -> Body {
    Full::new(text.into_bytes().into())
}

/// An error and what it comes from.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
