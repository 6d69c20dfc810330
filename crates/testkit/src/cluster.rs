//! A control plane for tests: [`Cluster`].

use std::{
    any::Any,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{io::AsyncWriteExt, process::Command, sync::OnceCell};

use crate::{
    Error, Namespace, Parts, control_plane::ControlPlane, error::Context, machine::Place, process, shared,
    state::State,
};

/// How often a start is tried when another program took a port in between.
const ATTEMPTS: usize = 3;

/// etcd, API server and controller manager, and the ways to them.
///
/// No root is needed. Started by [`Cluster::start`] it ends when dropped; [`Cluster::shared`] is one
/// for the whole run.
pub struct Cluster {
    state: PathBuf,
    parts: Parts,
    owned: Option<Box<dyn Any + Send + Sync>>,
}

impl Cluster {
    /// The cluster of this run: the one that [`crate::SHARED`] names, else one for this process.
    pub async fn shared() -> Result<&'static Self, Error> {
        static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
        CLUSTER
            .get_or_try_init(async || {
                if let Some(state) = shared::state() {
                    return Self::attach(&state);
                }
                let mut cluster = Self::start().await?;
                if let Some(owned) = cluster.owned.take() {
                    shared::keep_until_exit(owned)?;
                }
                Ok(cluster)
            })
            .await
    }

    /// Starts a cluster of its own on loopback, with random ports, and waits until it answers.
    pub async fn start() -> Result<Self, Error> {
        let parts = Parts::find()?;
        let mut attempt = 1;
        loop {
            let state = State::create("cluster")?;
            match ControlPlane::start(&state, &parts, Place::Here, Ipv4Addr::LOCALHOST).await {
                Ok(control_plane) => {
                    state.mark_ready()?;
                    let path = state.path().to_owned();
                    // The processes end before the directory that they write to.
                    return Ok(Self {
                        state: path,
                        parts,
                        owned: Some(Box::new((control_plane, state))),
                    });
                }
                Err(Error::Ended { log, .. })
                    if attempt < ATTEMPTS && log.contains("address already in use") =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(state.explain(error)),
            }
        }
    }

    /// Uses a testbed that another process owns, by its state directory.
    pub fn attach(state: &Path) -> Result<Self, Error> {
        if !state.join("kubeconfig").exists() {
            let why = format!(
                "it has no kubeconfig; is it gone? Unset {} or start one",
                shared::SHARED
            );
            return Err(Error::Attach {
                path: state.to_owned(),
                why,
            });
        }
        Ok(Self {
            state: state.to_owned(),
            parts: Parts::find()?,
            owned: None,
        })
    }

    /// A client with all rights. Each call makes a new one: a client belongs to its runtime.
    pub async fn client(&self) -> Result<Client, Error> {
        client(&self.kubeconfig()).await
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    /// The state directory, the value of [`crate::SHARED`] for other processes.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The built parts that this cluster runs.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// `kubectl` for this cluster, with nothing of the user's own settings.
    pub fn kubectl_command(&self) -> Command {
        let mut command = Command::new(self.parts.program("kubectl"));
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.state.join("kubectl"));
        command.env("KUBERC", "off").kill_on_drop(true);
        command
    }

    /// Runs `kubectl` with these arguments and gives its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Applies manifests (YAML, one or several) by server-side apply.
    pub async fn apply(&self, manifests: &str) -> Result<String, Error> {
        self.kubectl_with_input(
            &["apply", "--server-side", "--force-conflicts", "-f", "-"],
            manifests,
        )
        .await
    }

    /// Runs `kubectl` with `input` as its standard input.
    pub async fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String, Error> {
        let run = async || -> std::io::Result<_> {
            let mut command = self.kubectl_command();
            command
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut child = command.spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes()).await?;
            }
            child.wait_with_output().await
        };
        let command = format!("kubectl {}", arguments.join(" "));
        let output = run().await.context(|| format!("cannot run {command}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Err(Error::Command {
            command,
            status: output.status,
            output: said,
        })
    }

    /// A new namespace for one test, with its default service account.
    pub async fn namespace(&self, prefix: &str) -> Result<Namespace<'_>, Error> {
        Namespace::create(self, prefix).await
    }

    /// The end of every component's log.
    pub fn logs(&self) -> String {
        process::tails(&self.state.join("logs"), 20)
    }
}

/// A client by a kubeconfig file.
pub(crate) async fn client(kubeconfig: &Path) -> Result<Client, Error> {
    Ok(Client::try_from(config(kubeconfig).await?)?)
}

/// What a kubeconfig file says of a client.
pub(crate) async fn config(kubeconfig: &Path) -> Result<Config, Error> {
    let failed = |why: String| Error::Kubeconfig {
        path: kubeconfig.to_owned(),
        why,
    };
    let document = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(error.to_string()))?;
    let mut config = Config::from_custom_kubeconfig(document, &KubeConfigOptions::default())
        .await
        .map_err(|error| failed(error.to_string()))?;
    config.connect_timeout = Some(Duration::from_secs(2));
    Ok(config)
}
