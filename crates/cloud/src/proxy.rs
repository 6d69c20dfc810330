//! The way to a cloud: straight, or by the proxy that the surroundings of the process name.
//!
//! What is asked over TLS goes through a tunnel (`CONNECT`): the proxy is told whom we ask, and sees nothing of what is
//! asked. Plain HTTP goes straight: it is what a machine's own metadata service speaks, which no proxy reaches for us.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{HttpConnector, proxy::Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::Environment;

/// Stands for a proxy whose name cannot be read: nothing is asked there.
const NOWHERE: &str = "http://proxy.invalid";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Connects to clouds.
#[derive(Clone)]
pub(crate) struct Way {
    straight: HttpConnector,
    to_proxy: HttpsConnector<HttpConnector>,
    matcher: Arc<Matcher>,
    /// Whether the proxy's name can be read.
    is_readable: bool,
}

impl Way {
    /// As the surroundings say. A proxy that is asked over TLS itself is trusted as clouds are.
    pub(crate) fn new(tls: ClientConfig, environment: &Environment) -> Self {
        let proxy = environment.https_proxy.as_deref().unwrap_or_default();
        let not_for = environment.no_proxy.as_deref().unwrap_or_default();
        let is_readable = proxy.is_empty() || is_proxy(proxy);
        let proxy = if is_readable { proxy } else { NOWHERE };
        let mut straight = HttpConnector::new();
        straight.enforce_http(false);
        Way {
            straight,
            to_proxy: HttpsConnectorBuilder::new()
                .with_tls_config(tls)
                .https_or_http()
                .enable_http1()
                .build(),
            matcher: Arc::new(Matcher::builder().https(proxy).no(not_for).build()),
            is_readable,
        }
    }
}

/// Whether this names a proxy that can be asked for a tunnel.
fn is_proxy(text: &str) -> bool {
    let found = Matcher::builder().https(text).build();
    let found = found.intercept(&Uri::from_static("https://cloud.invalid"));
    found.is_some_and(|proxy| matches!(proxy.uri().scheme_str(), Some("http" | "https")))
}

impl Service<Uri> for Way {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = Failure;
    type Future = BoxFuture<'static, Result<Self::Response, Failure>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.straight.poll_ready(context).map_err(Failure::from)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Some(proxy) = self.matcher.intercept(&to) else {
            let connecting = self.straight.call(to);
            return async { Ok(MaybeHttpsStream::Http(connecting.await?)) }.boxed();
        };
        if !self.is_readable {
            let why = "HTTPS_PROXY names no proxy: write it as http://host:port, or unset it";
            return future::ready(Err(why.into())).boxed();
        }
        let name = proxy.uri().clone();
        let mut tunnel = Tunnel::new(name.clone(), self.to_proxy.clone());
        if let Some(login) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(login.clone());
        }
        let tunnel = tunnel.call(to);
        async move {
            let tunnel = tunnel.await;
            tunnel.map_err(|error| {
                format!(
                    "by the proxy {name} of HTTPS_PROXY: {}",
                    crate::http::chain(&error)
                )
                .into()
            })
        }
        .boxed()
    }
}
