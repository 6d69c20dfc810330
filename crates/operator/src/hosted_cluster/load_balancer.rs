//! The API server's load balancer, where nobody else is one.
//!
//! HyperShift's CLI publishes the API server by a Service of type LoadBalancer without a name. Where no controller
//! gives that Service an address, nodes have nothing to dial. The gateway is on their VLAN and forwards to the API
//! server: its address is written as the load balancer's. Whoever gives another one later is followed.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use oooi_plan::hosted_cluster::Derived;

use super::observe::Observed;
use super::watch::Surroundings;
use super::{Error, MANAGER};

/// Writes the gateway's address into a Service that waited long enough for somebody else. Gives how long to wait.
pub(super) async fn serve(
    around: &Surroundings,
    seen: &Observed,
    derived: &Derived,
) -> Result<Option<Duration>, Error> {
    let waiting = derived.waiting_load_balancer.as_ref();
    let service = seen
        .services
        .iter()
        .find(|service| Some(&service.name_any()) == waiting && is_ours_to_serve(service));
    let (Some(service), Some(gateway)) = (service, seen.gateway()) else {
        return Ok(None); // either of them is watched
    };
    let left = left(service, around.load_balancer_wait, around.common.now());
    if left.is_none() {
        around.common.writer.load_balancer(service, gateway).await?;
    }
    Ok(left)
}

/// Whether a Service asks for a load balancer, and for none in particular.
fn is_ours_to_serve(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| {
        spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.is_none()
    })
}

/// How long others have left to give a Service its address.
fn left(service: &Service, wait: Duration, now: Timestamp) -> Option<Duration> {
    let created = service.metadata.creation_timestamp.as_ref()?;
    let age = Duration::try_from(now.duration_since(created.0)).unwrap_or_default();
    wait.checked_sub(age).filter(|left| !left.is_zero())
}

/// The address that this controller once gave a Service.
pub(super) fn given(service: &Service) -> Option<Ipv4Addr> {
    let ours = |entry: &_| {
        let entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry = entry;
        entry.manager.as_deref() == Some(MANAGER)
    };
    service
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .find(|entry| ours(entry))?;
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    status
        .ingress
        .iter()
        .flatten()
        .find_map(|ingress| ingress.ip.as_ref()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "kube-apiserver", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn a_service_that_asks_for_somebody_s_load_balancer_is_left_to_them() {
        assert!(is_ours_to_serve(&service(json!({"type": "LoadBalancer"}))));
        let theirs = json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/metal"});
        assert!(!is_ours_to_serve(&service(theirs)));
        assert!(!is_ours_to_serve(&service(json!({"type": "NodePort"}))));
    }

    #[test]
    fn others_have_their_time_before_the_gateway_is_the_load_balancer() {
        let at = |text: &str| text.parse().unwrap();
        let (service, wait) = (service(json!({"type": "LoadBalancer"})), Duration::from_secs(60));
        let left = |now| left(&service, wait, at(now));
        assert_eq!(left("2026-01-01T00:00:20Z"), Some(Duration::from_secs(40)));
        assert_eq!(left("2026-01-01T00:01:00Z"), None);
        assert_eq!(left("2025-12-31T23:59:00Z"), Some(wait), "a clock that is behind");
    }
}
