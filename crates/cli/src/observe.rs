//! Metrics and probes over HTTP, and events in the log.

use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use oooi_api::report::{Event, Report, ServerReport, Severity};
use tracing::{debug, info, warn};

/// Serves `/metrics`, `/healthz` and `/readyz`.
pub(crate) async fn serve<F>(address: SocketAddr, metrics: F) -> anyhow::Result<()>
where
    F: Fn() -> Result<String, std::fmt::Error> + Clone + Send + Sync + 'static,
{
    let exposition = async move || match metrics() {
        Ok(text) => {
            let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, format)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let routes = Router::new()
        .route("/metrics", get(exposition))
        .route("/healthz", get("ok"))
        .route("/readyz", get("ok"));
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
        format!(
            "{address} cannot be listened on for metrics and probes: choose another by --metrics-bind-address"
        )
    })?;
    info!(%address, "metrics and probes");
    axum::serve(listener, routes)
        .await
        .context("metrics and probes ended")
}

/// Where there is no Kubernetes, what servers report is logged.
pub(crate) struct LogReport;

impl Report for LogReport {
    fn state(&self, report: ServerReport) {
        match (&report.message, report.accepted) {
            (Some(message), false) => warn!(addresses = ?report.addresses, "{message}"),
            _ => debug!(addresses = ?report.addresses, counts = ?report.counts, "state"),
        }
    }

    fn event(&self, event: Event) {
        match event.severity {
            Severity::Normal => info!(reason = event.reason, "{}", event.message),
            Severity::Warning => warn!(reason = event.reason, "{}", event.message),
        }
    }
}
