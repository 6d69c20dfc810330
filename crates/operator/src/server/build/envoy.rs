//! Envoy as a container of its own beside the gateway's control plane.
//!
//! An init container writes what Envoy is started with into a volume that lives as long as the pod; everything else
//! comes over xDS on loopback.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, SecurityContext, Volume, VolumeMount};
use kube::ResourceExt;

use super::Platform;
use super::pod::{USER, security};
use crate::server::{Envoy, Server, Wants};

const VOLUME: &str = "envoy";
const FOLDER: &str = "/run/oooi";
const BOOTSTRAP: &str = "/run/oooi/envoy.json";
/// The place of the binary in the project's own images.
const BINARY: &str = "/usr/local/bin/envoy";
/// How long connections live whose listener is gone, in seconds: a day, as the idle timeout. Watches and konnectivity
/// must not be cut because something else changed.
const DRAIN_TIME: &str = "86400";

/// Writes the file that Envoy starts from.
pub(super) fn init_container<S: Server>(server: &S, wants: &Wants, envoy: &Envoy) -> Container {
    Container {
        name: "bootstrap".into(),
        image: Some(wants.image.clone()),
        args: Some(vec![
            S::ROLE.word().into(),
            format!("--namespace={}", server.namespace().unwrap_or_default()),
            format!("--name={}", server.name_any()),
            format!("--xds-port={}", envoy.xds_port),
            format!("--write-bootstrap={BOOTSTRAP}"),
        ]),
        security_context: Some(security(None)),
        volume_mounts: Some(vec![mount(false)]),
        ..Container::default()
    }
}

/// The data plane.
pub(super) fn container(envoy: &Envoy, platform: Platform) -> Container {
    let arguments = [
        "--config-path",
        BOOTSTRAP,
        "--drain-time-s",
        DRAIN_TIME,
        "--disable-hot-restart",
    ];
    Container {
        name: "envoy".into(),
        image: Some(envoy.image.clone()),
        command: Some(vec![BINARY.into()]),
        args: Some(arguments.map(str::to_owned).to_vec()),
        resources: envoy.resources.clone(),
        security_context: Some(SecurityContext {
            // Its image may name root; on OpenShift the namespace has users of its own.
            run_as_user: (platform == Platform::Kubernetes).then_some(USER),
            ..security(None)
        }),
        volume_mounts: Some(vec![mount(true)]),
        ..Container::default()
    }
}

/// Where the one writes and the other reads.
pub(super) fn volume() -> Volume {
    Volume {
        name: VOLUME.into(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

fn mount(read_only: bool) -> VolumeMount {
    VolumeMount {
        name: VOLUME.into(),
        mount_path: FOLDER.into(),
        read_only: Some(read_only),
        ..VolumeMount::default()
    }
}
