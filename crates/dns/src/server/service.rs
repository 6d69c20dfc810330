//! The internal service's addresses, kept current.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::{Config, Internal};

/// How often a service's name is resolved again. Its address is stable as long as the service exists.
const PERIOD: Duration = Duration::from_secs(5);

/// Resolves the service that the configuration names by the host's own resolver, at once and again and
/// again. A failure keeps the last addresses: a service that is gone answers nobody anyway.
pub(super) async fn keep_resolved(
    mut config: watch::Receiver<Arc<Config>>,
    resolved: watch::Sender<Option<Vec<IpAddr>>>,
) {
    let mut current: Option<String> = None;
    loop {
        let name = match &config.borrow_and_update().internal {
            Some(Internal::Service(name)) => Some(name.clone()),
            _ => None,
        };
        if name != current {
            resolved.send_if_modified(|addresses| addresses.take().is_some());
            current.clone_from(&name);
        }
        let wait = async {
            match &name {
                Some(name) => {
                    publish(name, &resolved).await;
                    tokio::time::sleep(PERIOD).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            changed = config.changed() => if changed.is_err() { break },
        }
    }
    // The configuration will not change any more; its service still may.
    while let Some(name) = &current {
        publish(name, &resolved).await;
        tokio::time::sleep(PERIOD).await;
    }
}

async fn publish(name: &str, resolved: &watch::Sender<Option<Vec<IpAddr>>>) {
    match tokio::net::lookup_host((name, 0)).await {
        Ok(found) => {
            let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            addresses.sort_unstable(); // in a steady order, so that a change is a change
            addresses.dedup();
            resolved.send_if_modified(|known| {
                let changed = known.as_ref() != Some(&addresses);
                *known = Some(addresses);
                changed
            });
        }
        Err(error) => tracing::warn!(service = name, %error, "the internal service cannot be resolved"),
    }
}
