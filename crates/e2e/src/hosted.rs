//! A hosted control plane in its namespace, with real programs.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    time::Duration,
};

use oooi_testkit::{Authority, Error, Node, Tenant, until};
use serde_json::{Value, json};

use crate::{PATIENCE, Result};

const CONTROL_PLANE: &str = include_str!("../scene/control-plane.yaml");
const HTTPS: &str = include_str!("../scene/https.yaml");
const POLICIES: &str = include_str!("../scene/policies.yaml");
const HOSTED_CLUSTER: &str = include_str!("../scene/hosted-cluster.yaml");
const BOOTSTRAP: &str = include_str!("../scene/bootstrap.yaml");

/// The kinds of everything that the operator makes.
const OWN_KINDS: &str = "infras,dhcpservers,dnsservers,proxyservers,dhcpleases,deployments,services,configmaps,\
                         serviceaccounts,rolebindings,persistentvolumeclaims,networkpolicies,poddisruptionbudgets,pods,\
                         network-attachment-definitions";

/// What workers dial to reach the API server.
#[derive(Clone, Copy)]
pub enum Api {
    /// A name that the HostedCluster says.
    Name,
    /// An address that nobody says: the CLI's default is a load balancer without a name, and where nobody else is one, the
    /// gateway is. This is where it will stand.
    Address(Ipv4Addr),
}

/// A hosted cluster: its control plane runs on the node, its workers stand on the VLAN.
pub struct Hosted<'a> {
    node: &'a Node,
    name: &'static str,
    vlan: &'static str,
    api: Api,
    authority: Authority,
    directory: PathBuf,
    /// What the namespace of the control plane holds without us.
    before: Vec<String>,
}

impl<'a> Hosted<'a> {
    /// The namespace of HostedClusters.
    pub const NAMESPACE: &'static str = "clusters";

    /// Starts the control plane of a cluster, whose machines stand on `vlan`, and waits until all of it is ready.
    pub async fn start(node: &'a Node, name: &'static str, vlan: &'static str, api: Api) -> Result<Self> {
        let directory = node.state().join("hosted").join(name);
        let authority = Authority::create(&directory)?;
        let mut this = Self {
            node,
            name,
            vlan,
            api,
            authority,
            directory,
            before: Vec::new(),
        };
        this.certificates()?;
        this.namespace(Self::NAMESPACE, "").await?;
        this.namespace(
            &this.control_plane(),
            r#", labels: {hypershift.openshift.io/hosted-control-plane: "true"}"#,
        )
        .await?;
        let pki = format!("--from-file={}", this.directory.join("pki").display());
        let secret = [
            "create",
            "secret",
            "generic",
            "pki",
            &pki,
            "--dry-run=client",
            "--output=yaml",
        ];
        let secret = this.within(&secret).await?;
        let programs = node.parts().folder();
        let cache = programs.to_string_lossy();
        // The folder is full of links into its sisters.
        let all = programs.parent().unwrap_or(programs).to_string_lossy();
        let control_plane = CONTROL_PLANE
            .replace("CACHE", &cache)
            .replace("PROGRAMS", &all)
            .replace(
                "path: ETCD",
                &format!("path: {}", node.folder(&format!("{name}-etcd"))?),
            );
        let https = |app: &str, port: &str| {
            HTTPS
                .replace("APP", app)
                .replace("PORT", port)
                .replace("CLUSTER", name)
        };
        let servers = [
            https("ignition-server-proxy", "8443"),
            https("oauth-openshift", "6443"),
        ];
        for manifests in [&secret, POLICIES, &control_plane, &servers[0], &servers[1]] {
            this.apply(&this.control_plane(), manifests).await?;
        }
        this.stands().await?;
        // A ready pod is behind its Service a moment later.
        until("the hosted API server", PATIENCE, async || {
            let applied = this.administer_with(&["apply", "--server-side", "-f", "-"], BOOTSTRAP);
            applied.await.map_err(|error| error.to_string())
        })
        .await?;
        // A definition that is installed meanwhile may not be served yet.
        let before = until("all objects of the namespace", PATIENCE, async || {
            this.contents().await.map_err(|error| error.to_string())
        });
        this.before = before.await?;
        Ok(this)
    }

    /// Waits until every program of the control plane is ready.
    pub async fn stands(&self) -> Result<()> {
        for app in [
            "etcd",
            "kube-apiserver",
            "ignition-server-proxy",
            "oauth-openshift",
        ] {
            let deployment = format!("deployment/{app}");
            self.within(&["rollout", "status", &deployment, "--timeout=180s"])
                .await?;
        }
        Ok(())
    }

    /// The namespace of the control plane.
    pub fn control_plane(&self) -> String {
        format!("{}-{}", Self::NAMESPACE, self.name)
    }

    /// A published name of the cluster, such as `api.alpha.example.com`.
    pub fn published(&self, service: &str) -> String {
        format!("{service}.{}", self.zone())
    }

    /// What workers dial to reach a service: its published name, or an address.
    pub fn dialled(&self, service: &str) -> String {
        match (service, self.api) {
            ("api", Api::Address(address)) => address.to_string(),
            _ => self.published(service),
        }
    }

    /// The zone of all of its names.
    pub fn zone(&self) -> String {
        format!("{}.example.com", self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The selector of the pods of a server: `dhcp`, `dns` or `proxy`.
    pub fn pods_of(&self, server: &str) -> String {
        format!(
            "app={server}-server,app.kubernetes.io/instance={}-{server}",
            self.name
        )
    }

    /// A machine on its VLAN, with nothing but its interface.
    pub async fn tenant(&self, name: &str) -> Result<Tenant> {
        self.node.tenant_on(self.vlan, name).await
    }

    /// Applies the HostedCluster with its one annotation, and one for the engine of the gateway where it is not the
    /// default; fills in the status as things come to be known.
    pub async fn annotate(&self, network: &str, engine: &str) -> Result<()> {
        let chosen = format!("hostedcluster.densityops.com/proxy-engine: {engine}");
        let hostname = match self.api {
            Api::Name => ", loadBalancer: {hostname: api.CLUSTER.example.com}",
            Api::Address(_) => "",
        };
        let manifests = HOSTED_CLUSTER
            .replace("ENGINE", if engine == "Envoy" { "" } else { &chosen })
            .replace("HOSTNAME", hostname)
            .replace("CLUSTER", self.name)
            .replace("NAMESPACE", Self::NAMESPACE)
            .replace("NETWORK", network)
            .replace("VLAN", self.vlan);
        self.apply(Self::NAMESPACE, &manifests).await?;
        self.report(&json!({
            "ignitionEndpoint": self.published("ignition"),
            "oauthCallbackURLTemplate":
                format!("https://{}:443/oauth2callback/[identity-provider-name]", self.published("oauth")),
        }))
        .await?;
        if let Api::Address(address) = self.api {
            self.given(address).await?;
        }
        self.report(&json!({"controlPlaneEndpoint": {"host": self.dialled("api"), "port": 6443}}))
            .await
    }

    /// Waits until the Service of the API server has the address of a load balancer.
    async fn given(&self, address: Ipv4Addr) -> Result<()> {
        until("the API server's load balancer", PATIENCE, async || {
            let path = "--output=jsonpath={.status.loadBalancer.ingress[*].ip}";
            match self.within(&["get", "service", "kube-apiserver", path]).await {
                Ok(given) if given == address.to_string() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// Fills in the status of the HostedCluster as HyperShift does.
    async fn report(&self, status: &Value) -> Result<()> {
        let status = json!({ "status": status });
        let namespace = format!("--namespace={}", Self::NAMESPACE);
        let patch = format!("--patch={status}");
        let arguments = [
            "patch",
            "hostedcluster",
            self.name,
            "--subresource=status",
            "--type=merge",
        ];
        self.node
            .kubectl(&[&arguments[..], &[&namespace, &patch]].concat())
            .await
            .map(drop)
    }

    /// Has the gateway run with another engine.
    pub async fn choose_engine(&self, engine: &str) -> Result<()> {
        let chosen = format!("hostedcluster.densityops.com/proxy-engine={engine}");
        let annotate = ["annotate", "hostedcluster", self.name, &chosen, "--overwrite"];
        let namespace = ["--namespace", Self::NAMESPACE];
        self.node.kubectl(&[&annotate[..], &namespace].concat()).await?;
        until("the gateway to get its engine", PATIENCE, async || {
            let server = format!("proxyserver/{}-proxy", self.name);
            let path = "--output=jsonpath={.spec.engine}";
            let look = [&["get", &server, path], &namespace[..]].concat();
            match self.node.kubectl(&look).await {
                Ok(now) if now == engine => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// Changes fields of the Infra that belong to people.
    pub async fn change(&self, spec: &Value) -> Result<()> {
        self.patch("infra", spec).await
    }

    /// Changes fields in the specification of the object of a kind that has the name of the cluster.
    pub(crate) async fn patch(&self, kind: &str, spec: &Value) -> Result<()> {
        let patch = json!({"spec": spec}).to_string();
        let arguments = ["patch", kind, self.name, "--type=merge", "--patch", &patch];
        let namespace = ["--namespace", Self::NAMESPACE];
        self.node
            .kubectl(&[&arguments[..], &namespace].concat())
            .await
            .map(drop)
    }

    /// Waits until the Infra says that it is ready as it is now asked for.
    pub async fn ready(&self) -> Result<()> {
        let infra = format!("infra/{}", self.name);
        until("the Infra to be ready", PATIENCE, async || {
            let look = ["get", &infra, "--namespace", Self::NAMESPACE, "--output=json"];
            let infra = self
                .node
                .kubectl(&look)
                .await
                .map_err(|error| error.to_string())?;
            let infra: Value = serde_json::from_str(&infra).unwrap_or_default();
            let conditions = &infra["status"]["conditions"];
            let newest = &infra["metadata"]["generation"];
            let ready = conditions.as_array().into_iter().flatten().any(|one| {
                one["type"] == "Ready" && one["status"] == "True" && one["observedGeneration"] == *newest
            });
            if ready {
                Ok(())
            } else {
                Err(conditions.to_string())
            }
        })
        .await
    }

    /// The address on the VLAN of a server: `dhcp`, `dns` or `proxy`.
    pub async fn address_of(&self, server: &str) -> Result<String> {
        let resource = format!("{server}server/{}-{server}", self.name);
        let path = "--output=jsonpath={.spec.networkConfig.serverIP}";
        let address = self
            .node
            .kubectl(&["get", &resource, "--namespace", Self::NAMESPACE, path])
            .await?;
        Ok(address.split('/').next().unwrap_or_default().to_owned())
    }

    /// The leases in the store of the DHCP server's only pod.
    pub async fn leases(&self) -> Result<Vec<Value>> {
        let deployment = format!("deployment/{}-dhcp", self.name);
        let show = ["exec", "--namespace", Self::NAMESPACE, &deployment];
        let show = [&show[..], &["--", "/oooi", "leases", "--output=json"]].concat();
        let mut shown: Value = serde_json::from_str(&self.node.kubectl(&show).await?).unwrap_or_default();
        Ok(match shown["leases"].take() {
            Value::Array(leases) => leases,
            _ => Vec::new(),
        })
    }

    /// Every object of the operator by its unique id, except leases, which come and go.
    pub async fn objects(&self) -> Result<String> {
        let kinds = OWN_KINDS.replace("dhcpleases,", "");
        let path = "--output=jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid}\n{end}";
        let ours = "--selector=app.kubernetes.io/managed-by=oooi";
        let look = [
            "get",
            &kinds,
            "--all-namespaces",
            ours,
            "--sort-by={.metadata.uid}",
            path,
        ];
        self.node.kubectl(&look).await
    }

    /// Every object in the namespace of the control plane, whoever made it. What another one owns, such as a pod, goes
    /// with its owner.
    async fn contents(&self) -> Result<Vec<String>> {
        let kinds = ["api-resources", "--namespaced", "--verbs=list", "--output=name"];
        let kinds = self.node.kubectl(&kinds).await?;
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
        let path = "--output=jsonpath={range .items[*]}{.metadata.ownerReferences[*].kind}:\
                    {.kind}/{.metadata.name}\n{end}";
        let objects = self.within(&["get", &kinds.join(","), path]).await?;
        let own = objects.lines().filter_map(|object| object.strip_prefix(':'));
        let mut own: Vec<String> = own.map(str::to_owned).collect();
        own.sort_unstable();
        Ok(own)
    }

    /// Deletes the HostedCluster, its machines first, and waits until everything that was made for it is gone, and the
    /// namespace of its control plane holds what it did before.
    pub async fn delete(&self) -> Result<()> {
        self.within(&["delete", "virtualmachineinstances", "--all"])
            .await?;
        let namespace = ["--namespace", Self::NAMESPACE];
        let delete = ["delete", "hostedcluster", self.name, "--timeout=60s"];
        self.node.kubectl(&[&delete[..], &namespace].concat()).await?;
        let ours = "--selector=app.kubernetes.io/managed-by=oooi";
        until("everything to be gone", PATIENCE, async || {
            let look = [
                "get",
                OWN_KINDS,
                "--all-namespaces",
                ours,
                "--output=name",
                "--ignore-not-found",
            ];
            let left = self
                .node
                .kubectl(&look)
                .await
                .map_err(|error| error.to_string())?;
            let left: Vec<&str> = left.lines().filter(|name| name.contains(self.name)).collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(left.join(" "))
            }
        })
        .await?;
        until("the control plane to be as before", PATIENCE, async || {
            let now = self.contents().await.map_err(|error| error.to_string())?;
            if now == self.before {
                Ok(())
            } else {
                Err(format!("before: {:?}, now: {now:?}", self.before))
            }
        })
        .await
    }

    /// The kubeconfig that ignition leaves on a worker: what is published, and the right to ask for a certificate.
    pub fn bootstrap(&self) -> Result<PathBuf> {
        let server = format!("https://{}:6443", self.dialled("api"));
        self.authority.kubeconfig(
            "bootstrap.kubeconfig",
            &server,
            "bootstrap",
            Some("system:bootstrappers"),
        )
    }

    /// The authority that every server of the cluster has its certificate from.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// `kubectl` against the hosted API server, as its administrator, from the management side.
    pub async fn administer(&self, arguments: &[&str]) -> Result<String> {
        self.administer_with(arguments, "").await
    }

    /// The same, given up after some time: a tunnel that nobody serves says nothing.
    pub async fn administer_for(&self, limit: Duration, arguments: &[&str]) -> Result<String> {
        self.kubectl_there(limit, arguments, "").await
    }

    /// The same, with `input` as its standard input.
    pub async fn administer_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        self.kubectl_there(PATIENCE, arguments, input).await
    }

    async fn kubectl_there(&self, limit: Duration, arguments: &[&str], input: &str) -> Result<String> {
        let service = [
            "get",
            "service",
            "kube-apiserver",
            "--output=jsonpath={.spec.clusterIP}",
        ];
        let address = self.within(&service).await?;
        let server = format!("https://{address}:6443");
        let kubeconfig = self.authority.kubeconfig(
            "admin.kubeconfig",
            &server,
            "administrator",
            Some("system:masters"),
        )?;
        let mut command = self.node.command("timeout");
        command
            .arg(limit.as_secs().to_string())
            .arg(self.node.parts().program("kubectl"));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command
            .args(["--tls-server-name=kubernetes.default.svc"])
            .args(arguments);
        command.env("KUBECACHEDIR", self.directory.join("kubectl"));
        oooi_testkit::output_of(command, input)
    }

    /// `kubectl` in the namespace of the control plane.
    pub async fn within(&self, arguments: &[&str]) -> Result<String> {
        let namespace = format!("--namespace={}", self.control_plane());
        self.node
            .kubectl(&[&[namespace.as_str()], arguments].concat())
            .await
    }

    async fn apply(&self, namespace: &str, manifests: &str) -> Result<String> {
        let namespace = format!("--namespace={namespace}");
        let arguments = [
            "apply",
            "--server-side",
            "--force-conflicts",
            &namespace,
            "-f",
            "-",
        ];
        self.node.kubectl_with_input(&arguments, manifests).await
    }

    async fn namespace(&self, name: &str, more: &str) -> Result<()> {
        let manifest = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}{more}}}}}");
        self.node.apply(&manifest).await.map(drop)
    }

    /// One certificate a server, by the names that it is published under.
    fn certificates(&self) -> Result<()> {
        let mut addresses = vec![IpAddr::from([127, 0, 0, 1])];
        if let Api::Address(address) = self.api {
            addresses.push(address.into());
        }
        let own = self.published("api");
        let kubernetes = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let names: Vec<&str> = kubernetes.into_iter().chain([own.as_str()]).collect();
        self.authority.server("kube-apiserver", &names, &addresses)?;
        for (file, service) in [
            ("konnectivity", "konnectivity"),
            ("ignition-server-proxy", "ignition"),
            ("oauth-openshift", "oauth"),
        ] {
            self.authority.server(file, &[&self.published(service)], &[])?;
        }
        self.authority.client("kubelet-client", Some("system:masters"))?;
        self.authority.client("konnectivity-agent", None)?;
        self.authority.client("system:kube-controller-manager", None)?;
        self.authority.token_key()?;
        // Its files have other places inside the pod.
        let user = json!({
            "client-certificate": "/pki/system-kube-controller-manager.crt",
            "client-key": "/pki/system-kube-controller-manager.key",
        });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "own",
            "clusters": [{"name": "own", "cluster": {
                "server": "https://127.0.0.1:6443", "certificate-authority": "/pki/ca.crt",
            }}],
            "users": [{"name": "own", "user": user}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}],
        });
        let path = self.directory.join("pki/kube-controller-manager.kubeconfig");
        fs::write(&path, kubeconfig.to_string()).map_err(|source| Error::Io {
            what: format!("cannot write {}", path.display()),
            source,
        })
    }
}
