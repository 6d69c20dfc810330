//! What the cluster runs on, and the cloud that must be asked for each address.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use oooi_api::foreign::{CloudPlatform, Infrastructure, PlatformStatus};
use oooi_cloud::aws::Aws;
use oooi_cloud::azure::{Azure, Place};
use oooi_cloud::{Cloud, SecretReader};
use tokio::sync::Notify;

use super::super::Options;
use super::super::detect::until_answered;
use super::super::follow::follow_some;
use super::machines::Machines;

/// The Secret with the credentials, in the manager's own namespace.
pub const CREDENTIALS: &str = "oooi-cloud-credentials";

/// The machines of the cloud that the cluster runs on, if it must be asked for each address; and what keeps its
/// credentials up to date.
pub(super) async fn machines(
    options: &Options,
    wake: &Arc<Notify>,
) -> (Option<Machines>, BoxFuture<'static, ()>) {
    let nothing = || future::ready(()).boxed();
    let status = until_answered("what the cluster runs on", || platform(options)).await;
    let Some(status) = status else {
        return (None, nothing());
    };
    if !matches!(status.type_, Some(CloudPlatform::AWS | CloudPlatform::Azure)) {
        return (None, nothing());
    }
    let (store, following) = match &options.cloud.namespace {
        None => (None, nothing()),
        Some(namespace) => {
            let api = Api::<Secret>::namespaced(options.client.clone(), namespace);
            let named = watcher::Config::default().fields(&format!("metadata.name={CREDENTIALS}"));
            let (store, following) = follow_some(api, named, wake, |_| ());
            (Some(store), following)
        }
    };
    let secret = reader(store.clone());
    let (http, environment) = (options.cloud.http.clone(), options.cloud.environment.clone());
    let cloud: Arc<dyn Cloud> = if status.type_ == Some(CloudPlatform::AWS) {
        let region = status.aws.and_then(|aws| aws.region).unwrap_or_default();
        Arc::new(Aws::new(http, &region, secret, environment))
    } else {
        let known = status.azure.unwrap_or_default();
        let place = Place {
            cloud: known.cloud_name,
            manager: known.arm_endpoint,
        };
        Arc::new(Azure::new(http, &place, secret, &environment))
    };
    (Some(Machines::new(cloud, store)), following)
}

async fn platform(options: &Options) -> Result<Option<PlatformStatus>, kube::Error> {
    if !options.presence.has::<Infrastructure>() {
        return Ok(None);
    }
    let infrastructure = Api::<Infrastructure>::all(options.client.clone())
        .get_opt("cluster")
        .await?;
    Ok(infrastructure.and_then(|one| one.status?.platform_status))
}

/// Reads the Secret as it is at that moment.
fn reader(store: Option<Store<Secret>>) -> SecretReader {
    Arc::new(move || {
        let secret = store.as_ref()?.state().into_iter().next()?;
        let data = secret.data.iter().flatten();
        let data = data.map(|(key, value)| (key.clone(), value.0.clone()));
        Some(data.collect())
    })
}
