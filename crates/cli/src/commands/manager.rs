//! `oooi manager`: all controllers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use jiff::Timestamp;
use kube::Client;
use oooi_operator::context::{Images, Platform, Pods};
use oooi_operator::controllers::Controller;
use oooi_operator::egress_ipam::{CloudAccess, Network};
use oooi_operator::lease::{Candidate, Term};
use oooi_operator::manager::{self, Options};
use oooi_operator::metrics::Metrics;
use oooi_operator::serving::admission::{self, Webhook};
use oooi_operator::serving::certificate::Certificate;
use oooi_operator::serving::keeper::{self, Keeper};
use oooi_operator::serving::{self, tls};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
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
    /// The namespaces to look after, repeated or separated by commas; by default all of them
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',')]
    namespace: Vec<String>,
    /// The controllers to run, repeated or separated by commas; by default all of them
    #[arg(long, value_name = "CONTROLLER", value_delimiter = ',', default_values_t = Controller::ALL)]
    controllers: Vec<Controller>,
    /// The image of this binary, for servers whose resource names none
    #[arg(long, env = "RELATED_IMAGE_OOOI", value_name = "IMAGE")]
    image: String,
    /// The image of Envoy, for gateways whose resource names none
    #[arg(long, env = "RELATED_IMAGE_ENVOY", value_name = "IMAGE")]
    envoy_image: Option<String>,
    /// The PriorityClass of all servers' pods, which others make room for
    #[arg(long, env = "SERVER_PRIORITY_CLASS", value_name = "NAME")]
    priority_class: Option<String>,
    /// A Secret that the images of servers are pulled with, by its name in the server's namespace; repeated or separated
    /// by commas
    #[arg(
        long,
        env = "SERVER_IMAGE_PULL_SECRETS",
        value_name = "NAME",
        value_delimiter = ','
    )]
    image_pull_secret: Vec<String>,
    /// The cluster is OpenShift: let DHCP servers use the SecurityContextConstraints oooi-dhcp
    #[arg(long)]
    enable_openshift: bool,
    /// How many seconds others may take to give the API server's Service of type LoadBalancer an address; then the
    /// gateway's address is written there
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    load_balancer_wait: u64,
    /// The network that carries egress addresses: ovn-kubernetes or openshift-sdn; by default found out
    #[arg(long, value_name = "NETWORK")]
    egress_network: Option<Network>,
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
    /// Where /metrics is served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8443")]
    metrics_bind_address: SocketAddr,
    /// Serve metrics over TLS, and only to those whom the API server allows to get the path
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    metrics_secure: bool,
    /// Where the API server may have Infras validated; by default nowhere
    #[arg(long, value_name = "ADDRESS", requires = "pod_namespace")]
    webhook_bind_address: Option<SocketAddr>,
}

/// Runs until a signal ends it, or until another manager leads.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<Outcome> {
    let client = manager::connect()
        .await
        .context("no cluster is known: run it in one, or set KUBECONFIG")?;
    let (leads, leading) = watch::channel(match args.leader_elect {
        true => Term::Over,
        false => Term::Unlimited,
    });
    let metrics = Metrics::default();
    let options = Options {
        client: client.clone(),
        namespaces: args.namespace.clone(),
        controllers: args.controllers.clone(),
        images: Images {
            oooi: args.image.clone(),
            envoy: args.envoy_image.clone(),
        },
        platform: match args.enable_openshift {
            true => Platform::OpenShift,
            false => Platform::Kubernetes,
        },
        pods: Pods {
            priority_class: args.priority_class.clone().filter(|name| !name.is_empty()),
            pull_secrets: named(&args.image_pull_secret),
        },
        load_balancer_wait: Duration::from_secs(args.load_balancer_wait),
        egress_network: args.egress_network,
        cloud: CloudAccess::new(args.pod_namespace.clone()).context("no cloud can be asked")?,
        metrics: metrics.clone(),
        leading: leading.clone(),
    };
    let serving = serving(args, &client, &metrics, &leading).await?;
    let election = async {
        match args.pod_namespace.clone().filter(|_| args.leader_elect) {
            Some(namespace) => candidate(args, namespace).lead(client, &leads).await,
            None => std::future::pending().await,
        }
    };
    let controllers = async {
        let mut leading = leading.clone();
        if leading.wait_for(|term| term.runs()).await.is_ok() {
            manager::run(&options).await;
        }
    };
    let work = async {
        tokio::select! {
            () = until_signal() => Ok(Outcome::Done),
            () = election => bail!("leadership was lost: ending, so that only the new leader works"),
            () = controllers => bail!("the controllers ended by themselves"),
            ended = serving => ended.map(|()| Outcome::Done),
        }
    };
    // A manager that waits for its turn is ready: it is there to take over.
    let pages =
        Pages::probe(args.health_probe_bind_address, "/readyz", || true).with("/healthz", || "\"ok\"".into());
    observe::beside(vec![pages], work).await
}

/// The names of a list; one of an empty variable has none.
fn named(names: &[String]) -> Vec<String> {
    names.iter().filter(|name| !name.is_empty()).cloned().collect()
}

/// Metrics and the webhook, with their certificate. Addresses that cannot be had are an error before it begins.
async fn serving(
    args: &Args,
    client: &Client,
    metrics: &Metrics,
    leading: &watch::Receiver<Term>,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let (registry, counted, leads) = (Arc::new(registry), metrics.clone(), leading.clone());
    let page = move || {
        counted.leads(leads.borrow().runs());
        observe::encode(&registry)
    };
    let (serves, served) = tls::channel();
    let kept = match &args.pod_namespace {
        Some(namespace) => Some(Keeper::new(
            client.clone(),
            namespace.clone(),
            keeper::names(namespace),
            leading.clone(),
            serves,
            metrics.clone(),
        )),
        None => {
            // Nobody else could know a Secret's certificate here: one for this process does.
            serves.take_up(&Certificate::new(
                &["localhost".to_owned()],
                None,
                Timestamp::now(),
            )?)?;
            None
        }
    };
    let metrics_listener = bind(args.metrics_bind_address, "metrics").await?;
    let webhook_listener = match args.webhook_bind_address {
        Some(address) => Some(bind(address, "the webhook").await?),
        None => None,
    };
    let (client, secure, namespace) = (client.clone(), args.metrics_secure, args.pod_namespace.clone());
    Ok(async move {
        let metrics = async {
            if secure {
                let pages = serving::metrics(client.clone(), page);
                serving::serve(metrics_listener, served.clone(), pages).await?;
            } else {
                axum::serve(metrics_listener, serving::open_metrics(page)).await?;
            }
            anyhow::Ok(())
        };
        let webhook = async {
            let Some(listener) = webhook_listener else {
                return anyhow::Ok(());
            };
            let (stores, follow) = admission::follow(client.clone());
            let manager =
                namespace.map(|namespace| format!("system:serviceaccount:{namespace}:oooi-manager"));
            let pages = admission::router(Webhook { stores, manager });
            let (served, ()) = tokio::join!(serving::serve(listener, served.clone(), pages), follow);
            Ok(served?)
        };
        let certificate = async {
            match kept {
                Some(keeper) => keeper.keep().await,
                None => std::future::pending().await,
            }
            anyhow::Ok(())
        };
        tokio::try_join!(metrics, webhook, certificate).map(drop)
    })
}

async fn bind(address: SocketAddr, what: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("{address} cannot be listened on for {what}: choose another address"))
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
