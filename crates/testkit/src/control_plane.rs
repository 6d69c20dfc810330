//! etcd, API server and controller manager: the settings, and the start in their order.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener},
    path::PathBuf,
    time::Duration,
};

use crate::{
    Error, Parts, cluster::client, error::Context, machine::Place, pki::Authority, process::Process,
    state::State, wait,
};

/// The ClusterIPs. The first is the API server's own.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
const FIRST_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The addresses of pods; the node gets the first /24 of it.
pub(crate) const PODS: &str = "10.244.0.0/16";
/// Members may do everything.
pub(crate) const ADMINISTRATORS: &str = "system:masters";

/// How long a cold start may take on a busy machine.
const START: Duration = Duration::from_secs(90);

/// A running control plane.
pub(crate) struct ControlPlane {
    pub(crate) authority: Authority,
    pub(crate) server: String,
    // Dropped in this order: clients before what they would miss.
    processes: Vec<Process>,
}

impl ControlPlane {
    /// Starts a control plane in `place`, reachable at `address`, and waits until it answers.
    pub(crate) async fn start(
        state: &State,
        parts: &Parts,
        place: Place,
        address: Ipv4Addr,
    ) -> Result<Self, Error> {
        let [etcd_port, peer_port, port] = ports(place)?;
        let etcd_url = format!("http://127.0.0.1:{etcd_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let server = format!("https://{address}:{port}");
        let authority = Authority::create(state.path())?;
        let (tokens_key, tokens_public) = authority.token_key()?;
        let ca = authority.certificate().display();

        let mut etcd = place.command(parts.program("etcd"));
        etcd.arg("--data-dir").arg(data(state, place)).args([
            "--name=testbed".to_owned(),
            format!("--listen-client-urls={etcd_url}"),
            format!("--advertise-client-urls={etcd_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=testbed={peer_url}"),
            "--unsafe-no-fsync".to_owned(), // the data does not outlive the run
            "--log-level=warn".to_owned(),
        ]);
        let etcd = Process::start("etcd", etcd, &state.logs())?;

        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let addresses = [Ipv4Addr::LOCALHOST, address, FIRST_SERVICE].map(IpAddr::V4);
        let serving = authority.server("kube-apiserver", &names, &addresses)?;
        let kubelet_client = authority.client("kube-apiserver-kubelet-client", Some(ADMINISTRATORS))?;
        let mut api_server = place.command(parts.program("kube-apiserver"));
        api_server.args([
            format!("--etcd-servers={etcd_url}"),
            format!(
                "--bind-address={}",
                if matches!(place, Place::Here) {
                    address
                } else {
                    Ipv4Addr::UNSPECIFIED
                }
            ),
            format!("--advertise-address={address}"),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", state.path().join("pki").display()),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--client-ca-file={ca}"),
            format!(
                "--kubelet-client-certificate={}",
                kubelet_client.certificate.display()
            ),
            format!("--kubelet-client-key={}", kubelet_client.key.display()),
            // `kubectl exec` reaches the kubelet by address: nothing resolves the node's name.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", tokens_public.display()),
            format!("--service-account-signing-key-file={}", tokens_key.display()),
            format!("--service-cluster-ip-range={SERVICES}"),
            // A loopback address is no endpoint that a pod could use.
            format!(
                "--endpoint-reconciler-type={}",
                if address.is_loopback() { "none" } else { "lease" }
            ),
        ]);
        let api_server = Process::start("kube-apiserver", api_server, &state.logs())?;
        let mut this = Self {
            authority,
            server,
            processes: vec![api_server, etcd],
        };
        let kubeconfig = this.kubeconfig("kubeconfig", "testbed-admin", Some(ADMINISTRATORS))?;
        this.answered(&kubeconfig).await?;

        let kubeconfig = this.kubeconfig(
            "kube-controller-manager.kubeconfig",
            "system:kube-controller-manager",
            None,
        )?;
        let mut manager = place.command(parts.program("kube-controller-manager"));
        manager.args([
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--root-ca-file={}", this.authority.certificate().display()),
            format!(
                "--cluster-signing-cert-file={}",
                this.authority.certificate().display()
            ),
            format!("--cluster-signing-key-file={}", this.authority.key().display()),
            format!("--service-account-private-key-file={}", tokens_key.display()),
            "--use-service-account-credentials=true".to_owned(),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            // Made at the start; its default is a folder of the host.
            format!(
                "--flex-volume-plugin-dir={}",
                state.path().join("volume-plugins").display()
            ),
            "--allocate-node-cidrs=true".to_owned(),
            format!("--cluster-cidr={PODS}"),
        ]);
        this.processes.insert(
            0,
            Process::start("kube-controller-manager", manager, &state.logs())?,
        );
        Ok(this)
    }

    /// A kubeconfig for a user of this control plane.
    pub(crate) fn kubeconfig(&self, file: &str, user: &str, group: Option<&str>) -> Result<PathBuf, Error> {
        self.authority.kubeconfig(file, &self.server, user, group)
    }

    /// Waits until the API server is ready, or one of the two has ended.
    async fn answered(&mut self, kubeconfig: &std::path::Path) -> Result<(), Error> {
        let client = client(kubeconfig).await?;
        let processes = &mut self.processes;
        let look = async || {
            for process in &mut *processes {
                if let Err(error) = process.check() {
                    return Ok(Err(error));
                }
            }
            let request = http::Request::get("/readyz")
                .body(Vec::new())
                .map_err(|error| error.to_string())?;
            match client.request_text(request).await {
                Ok(answer) if answer == "ok" => Ok(Ok(())),
                Ok(answer) => Err(answer),
                Err(error) => Err(error.to_string()),
            }
        };
        wait::until("the API server", START, look).await?
    }
}

/// Where etcd keeps its data: in memory on a machine, which has a place for that.
fn data(state: &State, place: Place) -> PathBuf {
    match place {
        Place::Here => state.path().join("etcd"),
        Place::Machine(_) => crate::machine::volatile(state.path()).join("etcd"),
    }
}

/// Free ports: the usual ones on a machine, which nobody shares, else any three of this host.
///
/// All three are held while they are chosen, so that they differ. Between here and their use another
/// program may take one; the component then ends at once and its log says so.
fn ports(place: Place) -> Result<[u16; 3], Error> {
    if matches!(place, Place::Machine(_)) {
        return Ok([2379, 2380, 6443]);
    }
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let ports = || -> std::io::Result<[u16; 3]> {
        let [a, b, c] = [free()?, free()?, free()?];
        Ok([
            a.local_addr()?.port(),
            b.local_addr()?.port(),
            c.local_addr()?.port(),
        ])
    };
    ports().context(|| "cannot find free ports on 127.0.0.1")
}
