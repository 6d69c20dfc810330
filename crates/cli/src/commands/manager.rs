//! `oooi manager`: all controllers.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use oooi_operator::context::Images;
use oooi_operator::lease::Candidate;
use oooi_operator::manager::{self, Options};
use tokio::sync::watch;

use crate::observe::{self, Pages};
use crate::{Outcome, block_on, until_signal};

/// After how long without a sign of the leader another manager takes over.
const TERM: Duration = Duration::from_secs(15);

/// The Lease that the leader holds.
const LEASE: &str = "oooi-manager";

/// Run the operator: every annotated HostedCluster becomes an Infra, every Infra its components and their Deployments
///
/// It works on the cluster that it runs in, else on that of the kubeconfig. With --leader-elect several may run, and
/// one of them works.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The only namespace to look after; by default all of them
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The image of this binary, for servers whose resource names none
    #[arg(long, env = "RELATED_IMAGE_OOOI", value_name = "IMAGE")]
    image: String,
    /// How many seconds others may take to give the API server's Service of type LoadBalancer an address; then the
    /// gateway's address is written there
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    load_balancer_wait: u64,
    /// Work only while holding a Lease, so that of several managers one works
    #[arg(long, requires = "pod_namespace")]
    leader_elect: bool,
    /// The namespace of that Lease
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pod_namespace: Option<String>,
    /// What this manager is called in that Lease; by default its process id
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pod_name: Option<String>,
    /// Where /healthz and /readyz are served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081")]
    health_probe_bind_address: SocketAddr,
}

/// Runs until a signal ends it, or until another manager leads.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    let client = manager::connect()
        .await
        .context("no cluster is known: run it in one, or set KUBECONFIG")?;
    let (leads, leading) = watch::channel(!args.leader_elect);
    let options = Options {
        client: client.clone(),
        namespace: args.namespace.clone(),
        images: Images {
            oooi: args.image.clone(),
        },
        load_balancer_wait: Duration::from_secs(args.load_balancer_wait),
        leading: leading.clone(),
    };
    let election = async {
        match args.pod_namespace.clone().filter(|_| args.leader_elect) {
            Some(namespace) => candidate(args, namespace).lead(client, &leads).await,
            None => std::future::pending().await,
        }
    };
    let controllers = async {
        let mut leading = leading.clone();
        if leading.wait_for(|leading| *leading).await.is_ok() {
            manager::run(&options).await;
        }
    };
    let work = async {
        tokio::select! {
            () = until_signal() => Ok(Outcome::Done),
            () = election => bail!("leadership was lost: ending, so that only the new leader works"),
            () = controllers => bail!("the controllers ended by themselves"),
        }
    };
    // A manager that waits for its turn is ready: it is there to take over.
    let pages =
        Pages::probe(args.health_probe_bind_address, "/readyz", || true).with("/healthz", || "\"ok\"".into());
    observe::beside(vec![pages], work).await
}

fn candidate(args: &Args, namespace: String) -> Candidate {
    let identity = args.pod_name.clone();
    Candidate {
        namespace,
        name: LEASE.into(),
        identity: identity.unwrap_or_else(|| format!("process-{}", std::process::id())),
        term: TERM,
    }
}
