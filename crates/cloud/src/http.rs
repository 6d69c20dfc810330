//! The only socket: one request, one answer, within a time.

use std::time::Duration;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use oooi_trust::TrustError;
use rustls::ClientConfig;

use crate::Environment;
use crate::error::{Error, shown};
use crate::proxy::Way;

/// The body of a request.
pub(crate) type Body = Full<std::collections::VecDeque<u8>>;

/// No answer is larger than this: a thousand machines are some megabytes.
const LARGEST: usize = 32 << 20;

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Speaks HTTP, over TLS where the address says so.
#[derive(Clone)]
pub struct Http {
    client: Client<HttpsConnector<Way>, Body>,
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
    /// A client that trusts whom the host trusts, and goes by the proxy that the surroundings name.
    pub fn new(environment: &Environment) -> Result<Self, TrustError> {
        Ok(Self::trusting(oooi_trust::client()?, environment))
    }

    pub(crate) fn trusting(tls: ClientConfig, environment: &Environment) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(Way::new(tls, environment));
        Http {
            client: Client::builder(TokioExecutor::new()).build(connector),
        }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Answer, Lost> {
        self.send_within(request, PATIENCE).await
    }

    pub(crate) async fn send_within(
        &self,
        request: Request<Body>,
        patience: Duration,
    ) -> Result<Answer, Lost> {
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
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
