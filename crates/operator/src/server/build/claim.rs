//! The volume that keeps leases.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{claim_name, metadata};
use crate::server::{LeaseClaim, Server};

pub(super) fn build<S: Server>(server: &S, wanted: &LeaseClaim) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: metadata(server, claim_name(server)),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([(
                    "storage".to_owned(),
                    Quantity(wanted.size.clone()),
                )])),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: wanted.class.clone(),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
