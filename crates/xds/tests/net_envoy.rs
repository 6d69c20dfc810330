//! The battery against a real Envoy.

#[path = "../../proxy/tests/battery/mod.rs"]
mod battery;
mod harness;

async fn start() -> harness::Envoy {
    harness::Envoy::start().await
}

battery!(start);
