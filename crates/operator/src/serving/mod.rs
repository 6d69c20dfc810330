//! What a manager serves over TLS: its metrics, to those who may read them, and the validation of Infras.
//!
//! ```text
//! certificate (pure) ──keeper──► Secret, trusted by the API server ──► every replica's TLS
//! metrics: TokenReview ─► SubjectAccessReview ─► page          webhook: review ─► judge (pure) ─► allowed or not
//! ```

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use kube::Client;
use tokio::net::TcpListener;

pub mod access;
pub mod admission;
pub mod certificate;
pub mod judge;
pub mod keeper;
pub mod tls;

/// The page of the metrics, for those who may read it.
pub fn metrics<M>(client: Client, page: M) -> Router
where
    M: Fn() -> Result<String, std::fmt::Error> + Clone + Send + Sync + 'static,
{
    open_metrics(page).layer(axum::middleware::from_fn_with_state(client, access::authorised))
}

/// The page of the metrics, for everybody.
pub fn open_metrics<M>(page: M) -> Router
where
    M: Fn() -> Result<String, std::fmt::Error> + Clone + Send + Sync + 'static,
{
    let page = async move || match page() {
        Ok(text) => {
            let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, format)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    Router::new().route("/metrics", get(page))
}

/// Serves pages over TLS, each connection with the certificate of its moment.
pub async fn serve(listener: TcpListener, served: tls::Served, pages: Router) -> Result<(), tls::Error> {
    let listener = tls::Listener::new(listener, served)?;
    // It ends only by being dropped: the listener keeps its errors to itself.
    let _ = axum::serve(listener, pages).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn open_metrics_ask_nobody_who_they_are() {
        let asked = Request::get("/metrics").body(Body::empty()).unwrap();
        let answer = open_metrics(|| Ok("# EOF\n".into()))
            .oneshot(asked)
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        let failing = Request::get("/metrics").body(Body::empty()).unwrap();
        let answer = open_metrics(|| Err(std::fmt::Error))
            .oneshot(failing)
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
