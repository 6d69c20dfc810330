//! The Service in front of all replicas of a server.

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{METRICS_PORT, metadata};
use crate::identity::labels;
use crate::server::{Server, Wants};

pub(super) fn build<S: Server>(server: &S, wants: &Wants) -> Service {
    let mut metadata = metadata(server, server.name_any());
    metadata
        .labels
        .get_or_insert_default()
        .insert("app".into(), S::ROLE.app());
    let metrics = ServicePort {
        name: Some("metrics".into()),
        port: METRICS_PORT,
        protocol: Some("TCP".into()),
        target_port: Some(IntOrString::Int(METRICS_PORT)),
        ..ServicePort::default()
    };
    Service {
        metadata,
        spec: Some(ServiceSpec {
            selector: Some(labels(&server.name_any(), Some(S::ROLE))),
            ports: Some(wants.ports.iter().cloned().chain([metrics]).collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
