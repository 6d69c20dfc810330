//! A namespace for one test, which tells what happened in it when the test fails.

use std::{
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use k8s_openapi::api::core::v1::{Namespace as KubeNamespace, ServiceAccount};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};

use crate::{Cluster, Error, until};

/// A namespace of its own. Dropping it asks for its deletion; the cluster's controllers do the rest.
///
/// Dropped by a panic, it first prints what would tell why: pods, recent events, and the end of every
/// component's log.
pub struct Namespace<'a> {
    cluster: &'a Cluster,
    name: String,
}

impl<'a> Namespace<'a> {
    pub(crate) async fn create(cluster: &'a Cluster, prefix: &str) -> Result<Self, Error> {
        let client = cluster.client().await?;
        let name = unique(prefix);
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        };
        Api::<KubeNamespace>::all(client.clone())
            .create(
                &PostParams::default(),
                &KubeNamespace {
                    metadata,
                    ..KubeNamespace::default()
                },
            )
            .await?;
        let namespace = Self { cluster, name };
        // Pods are refused before the controllers have made the service account that they use.
        let accounts = Api::<ServiceAccount>::namespaced(client, &namespace.name);
        until(
            "the default service account",
            Duration::from_secs(30),
            async || accounts.get("default").await.map_err(|error| error.to_string()),
        )
        .await?;
        Ok(namespace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `kubectl` in this namespace and gives its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        let arguments = [&["--namespace", &self.name], arguments].concat();
        self.cluster.kubectl(&arguments).await
    }

    /// Applies manifests in this namespace, by server-side apply.
    pub async fn apply(&self, manifests: &str) -> Result<String, Error> {
        let arguments = [
            "--namespace",
            &self.name,
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            "-",
        ];
        self.cluster.kubectl_with_input(&arguments, manifests).await
    }

    /// Runs `kubectl` without a runtime: a destructor has none. Gives all that it said.
    fn say(&self, arguments: &[&str]) -> String {
        let mut command = self.cluster.kubectl_command();
        command
            .as_std_mut()
            .args(arguments)
            .args(["--request-timeout", "5s"]);
        match command.as_std_mut().output() {
            Ok(output) => String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
            Err(error) => format!("kubectl: {error}"),
        }
    }
}

impl Drop for Namespace<'_> {
    fn drop(&mut self) {
        let name = self.name.as_str();
        if thread::panicking() {
            eprintln!("==== namespace {name} at the failure ====");
            for question in [
                "get pods --output=wide",
                "get events --sort-by=.lastTimestamp",
                "logs --selector=!none --all-containers --prefix --tail=20",
            ] {
                let words: Vec<&str> = ["--namespace", name]
                    .into_iter()
                    .chain(question.split(' '))
                    .collect();
                eprintln!("{}", self.say(&words));
            }
            eprintln!("{}", self.cluster.logs());
        }
        self.say(&["delete", "namespace", name, "--wait=false", "--ignore-not-found"]);
    }
}

/// A name that no other test of any process takes. The time keeps a reused process id apart.
fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |age| age.subsec_nanos());
    format!("{prefix}-{}-{count}-{:x}", process::id(), time & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_namespaces_never_share_a_name() {
        assert_ne!(unique("a"), unique("a"));
    }

    #[test]
    fn a_name_is_a_valid_dns_label() {
        let name = unique("dhcp");
        assert!(name.len() <= 63, "{name}");
        assert!(
            name.bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
        );
    }
}
