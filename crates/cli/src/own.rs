//! A server's own resource: from files, and in a cluster live from the resource itself.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use oooi_api::report::Report;
use oooi_feed::cluster::{Kind, Own};
use oooi_feed::status::ClusterReport;
use oooi_feed::{Inputs, Unreadable};
use oooi_manifest::{Document, Mistake};
use tokio::sync::watch;

use crate::observe::{Accepted, LogReport};
use crate::until_signal;

/// Where a server's resource comes from.
#[derive(clap::Args)]
pub(crate) struct OwnArgs {
    /// The server's resource as a manifest, a directory (every *.yaml in it), or - for standard input; may repeat
    #[arg(
        short = 'f',
        long = "filename",
        alias = "config-file",
        value_name = "FILE",
        required_unless_present = "name"
    )]
    files: Vec<PathBuf>,
    /// In a cluster: the namespace of the server's resource
    #[arg(long, value_name = "NAMESPACE", requires = "name")]
    namespace: Option<String>,
    /// In a cluster: the name of the server's resource, which is followed live and told how the server is
    #[arg(long, alias = "proxy-name", value_name = "NAME", requires = "namespace")]
    name: Option<String>,
    /// In a cluster: the name of this pod; by default the name of the host
    #[arg(long, env = "POD_NAME", value_name = "NAME", requires = "name")]
    pod_name: Option<String>,
}

/// A configuration that follows its resource, and where the server says how it is.
pub(crate) struct Followed<T> {
    /// The configuration.
    pub(crate) config: watch::Receiver<Arc<T>>,
    /// Whether the newest version of the resource is what is served, as a metric.
    pub(crate) accepted: Accepted,
    /// Where to report.
    pub(crate) report: Arc<dyn Report>,
    /// The resource in the cluster, if there is one.
    pub(crate) cluster: Option<InCluster>,
}

/// The resource in the cluster.
pub(crate) struct InCluster {
    /// The resource.
    pub(crate) own: Own,
    /// Its uid, if it is known by now.
    pub(crate) uid: Option<String>,
}

impl OwnArgs {
    /// Builds a configuration from the resource, and again whenever it changes. Waits for a first good one.
    pub(crate) async fn follow<K, T, B>(&self, build: B) -> anyhow::Result<Followed<T>>
    where
        K: Kind,
        T: Send + Sync + 'static,
        B: Fn(&[Document]) -> Result<T, Vec<Mistake>> + Send + 'static,
    {
        let accepted = Accepted::default();
        let good = accepted.clone();
        let build = move |documents: &[Document]| build(documents).inspect(|_| good.set(true));
        let bad = accepted.clone();
        let inputs = (!self.files.is_empty()).then(|| Inputs::new(self.files.clone()));
        let (Some(namespace), Some(name)) = (&self.namespace, &self.name) else {
            let config =
                oooi_feed::follow(inputs.ok_or(Unreadable::Nothing)?, build, move |_| bad.set(false))?;
            return Ok(Followed {
                config,
                accepted,
                report: Arc::new(LogReport),
                cluster: None,
            });
        };
        let own = Own::connect::<K>(namespace, name).await?;
        let pod = self.pod_name.clone().unwrap_or_else(host_name);
        let report = ClusterReport::start(own.clone(), pod);
        let verdicts = report.clone();
        let following = oooi_feed::live::follow(inputs, own.clone(), build, move |verdict| {
            bad.set(verdict.refused.is_none());
            verdicts.verdict(verdict);
        });
        let config = tokio::select! {
            config = following => config?,
            () = until_signal() => bail!("asked to end before there was a configuration for {own}"),
        };
        Ok(Followed {
            config,
            accepted,
            cluster: Some(InCluster {
                own,
                uid: report.uid(),
            }),
            report,
        })
    }
}

fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

    use std::time::Duration;

    use prometheus_client::registry::Registry;

    use super::*;

    const GOOD: &str = "apiVersion: v1\nkind: Good\nmetadata: {name: a}\n";
    const BAD: &str = "apiVersion: v1\nkind: Bad\nmetadata: {name: a}\n";

    fn build(documents: &[Document]) -> Result<(), Vec<Mistake>> {
        match documents {
            [one] if one.kind() == "Good" => Ok(()),
            [one] => Err(vec![one.mistake("kind", "is not good")]),
            _ => Err(Vec::new()),
        }
    }

    #[tokio::test]
    async fn a_version_that_is_refused_is_seen_in_the_metrics_until_a_good_one_comes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("own.yaml");
        std::fs::write(&file, GOOD).unwrap();
        let args = OwnArgs {
            files: vec![file.clone()],
            namespace: None,
            name: None,
            pod_name: None,
        };
        let followed = args.follow::<oooi_api::DnsServer, _, _>(build).await.unwrap();
        let mut registry = Registry::default();
        followed.accepted.register(&mut registry);
        for (text, line) in [
            (GOOD, "oooi_config_accepted 1\n"),
            (BAD, "oooi_config_accepted 0\n"),
            ("a: [", "oooi_config_accepted 0\n"),
            (GOOD, "oooi_config_accepted 1\n"),
        ] {
            std::fs::write(&file, text).unwrap();
            let seen = async {
                while !crate::observe::encode(&registry).unwrap().contains(line) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), seen)
                .await
                .unwrap_or_else(|_| panic!("{text:?} did not lead to {line:?}"));
        }
    }
}
