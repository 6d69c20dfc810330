//! The pods behind a gateway: Services and EndpointSlices, watched, become [`Snapshot`]s.
//!
//! Exactly the Services that the `ProxyServer` names are watched, each by its name, and the slices by the label that
//! ties them to it: a role needs no more than that. One task owns the [`Assembler`]; a change costs work for the
//! backends that it touches, and changes that come together make one snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use oooi_api::ProxyServer;
use oooi_proxy::assemble::Assembler;
use oooi_proxy::config::ServiceKey;
use oooi_proxy::snapshot::Snapshot;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::watching::{Seen, Watching};

/// So long a snapshot waits for the endpoints of backends that are new.
const PATIENCE: Duration = Duration::from_secs(3);

/// What a watch of one Service has to say.
enum Fact {
    Service(Box<Service>),
    NoService,
    Slice(Box<EndpointSlice>),
    NoSlice(String),
    /// Everything was listed once.
    Whole,
}

/// Follows the endpoints of a gateway's backends as its resource names them.
///
/// A snapshot has the endpoints of new backends already, unless the API server takes its time: then it comes without
/// them, and says so. Nothing is concluded from the silence of an API server.
/// The tasks end when the receiver or the sender of `resources` is dropped.
pub async fn follow<P>(
    client: Client,
    mut resources: watch::Receiver<Arc<P>>,
    resource_of: impl Fn(&P) -> &ProxyServer + Send + 'static,
) -> watch::Receiver<Arc<Snapshot>>
where
    P: Send + Sync + 'static,
{
    let (facts, mut incoming) = mpsc::channel(1024);
    let mut watches = Watches {
        client,
        facts,
        running: BTreeMap::new(),
        unlisted: BTreeSet::new(),
    };
    let mut assembler = Assembler::default();
    assembler.set_spec(&resource_of(&resources.borrow_and_update()).spec);
    watches.keep(&mut assembler);
    let deadline = Instant::now() + PATIENCE;
    while !watches.unlisted.is_empty() {
        match tokio::time::timeout_at(deadline, incoming.recv()).await {
            Ok(Some((key, fact))) => watches.take(&mut assembler, &key, fact),
            Ok(None) | Err(_) => break,
        }
    }
    let (sender, receiver) = watch::channel(assembler.snapshot());
    tokio::spawn(async move {
        // Until then changes wait for what new watches list.
        let mut held = None;
        loop {
            tokio::select! {
                () = sender.closed() => return,
                () = tokio::time::sleep_until(held.unwrap_or_else(Instant::now)), if held.is_some() => held = None,
                changed = resources.changed() => {
                    if changed.is_err() {
                        // Nobody changes the configuration any more; endpoints still do.
                        sender.closed().await;
                        return;
                    }
                    assembler.set_spec(&resource_of(&resources.borrow_and_update()).spec);
                    if watches.keep(&mut assembler) {
                        held = Some(Instant::now() + PATIENCE);
                    }
                }
                Some((key, fact)) = incoming.recv() => watches.take(&mut assembler, &key, fact),
            }
            while let Ok((key, fact)) = incoming.try_recv() {
                watches.take(&mut assembler, &key, fact);
            }
            if watches.unlisted.is_empty() {
                held = None;
            }
            if held.is_none() {
                sender.send_replace(assembler.snapshot());
            }
        }
    });
    receiver
}

/// The running watches, one a Service.
struct Watches {
    client: Client,
    facts: mpsc::Sender<(ServiceKey, Fact)>,
    running: BTreeMap<ServiceKey, Running>,
    unlisted: BTreeSet<ServiceKey>,
}

/// The watch of one Service, and the slices that it told of.
struct Running {
    task: JoinHandle<()>,
    slices: BTreeSet<String>,
}

impl Watches {
    /// Watches what is wanted, and nothing else. What nobody watches any more is forgotten: it would grow old. True if
    /// there are new watches.
    fn keep(&mut self, assembler: &mut Assembler) -> bool {
        let wanted: BTreeSet<ServiceKey> = assembler.wanted_services().cloned().collect();
        self.unlisted.retain(|key| wanted.contains(key));
        for (key, ended) in self.running.extract_if(.., |key, _| !wanted.contains(key)) {
            ended.task.abort();
            assembler.service_is_here(&key); // nobody waits for it any more
            assembler.remove_service(&key.namespace, &key.name);
            for slice in &ended.slices {
                assembler.remove_slice(&key.namespace, slice);
            }
        }
        let mut new = false;
        for key in wanted {
            if !self.running.contains_key(&key) {
                new = true;
                assembler.await_service(&key);
                let running = Running {
                    task: tokio::spawn(one(self.client.clone(), key.clone(), self.facts.clone())),
                    slices: BTreeSet::new(),
                };
                self.unlisted.insert(key.clone());
                self.running.insert(key, running);
            }
        }
        new
    }

    fn take(&mut self, assembler: &mut Assembler, key: &ServiceKey, fact: Fact) {
        // What a watch said just before it was ended is of no interest, and nobody would take it back.
        let Some(running) = self.running.get_mut(key) else {
            return;
        };
        match fact {
            Fact::Service(service) => assembler.set_service(&service),
            Fact::NoService => assembler.remove_service(&key.namespace, &key.name),
            Fact::Slice(slice) => {
                running.slices.insert(slice.name_any());
                assembler.set_slice(&slice);
            }
            Fact::NoSlice(name) => {
                running.slices.remove(&name);
                assembler.remove_slice(&key.namespace, &name);
            }
            Fact::Whole => {
                self.unlisted.remove(key);
                assembler.service_is_here(key);
            }
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.task.abort());
    }
}

/// Watches one Service and its slices.
async fn one(client: Client, key: ServiceKey, facts: mpsc::Sender<(ServiceKey, Fact)>) {
    let by_name = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let by_label = watcher::Config::default().labels(&format!("kubernetes.io/service-name={}", key.name));
    let services: Api<Service> = Api::namespaced(client.clone(), &key.namespace);
    let slices: Api<EndpointSlice> = Api::namespaced(client, &key.namespace);
    let mut services = Watching::new(services, by_name, format!("Service {key}"));
    let mut slices = Watching::new(slices, by_label, format!("EndpointSlices of Service {key}"));
    let mut known = BTreeSet::new();
    let (mut service_listed, mut slices_listed) = (false, false);
    loop {
        let news: Vec<Fact> = tokio::select! {
            seen = services.next() => match seen {
                Seen::All(mut all) => {
                    service_listed = true;
                    vec![all.pop().map_or(Fact::NoService, |service| Fact::Service(Box::new(service)))]
                }
                Seen::Put(service) => vec![Fact::Service(Box::new(service))],
                Seen::Gone(_) => vec![Fact::NoService],
                Seen::Lost => Vec::new(),
            },
            seen = slices.next() => match seen {
                Seen::All(all) => {
                    slices_listed = true;
                    let now: BTreeSet<String> = all.iter().map(ResourceExt::name_any).collect();
                    let gone = std::mem::replace(&mut known, now.clone()).into_iter().filter(|name| !now.contains(name));
                    // What is there comes before what is gone, so that a backend is never without endpoints between.
                    all.into_iter().map(|slice| Fact::Slice(Box::new(slice))).chain(gone.map(Fact::NoSlice)).collect()
                }
                Seen::Put(slice) => {
                    known.insert(slice.name_any());
                    vec![Fact::Slice(Box::new(slice))]
                }
                Seen::Gone(slice) => {
                    known.remove(&slice.name_any());
                    vec![Fact::NoSlice(slice.name_any())]
                }
                Seen::Lost => Vec::new(),
            },
        };
        let whole = (service_listed && slices_listed).then_some(Fact::Whole);
        for fact in news.into_iter().chain(whole) {
            if facts.send((key.clone(), fact)).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::SocketAddr;

    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// As much of an API server as a watch needs. Each Service has one pod; of those that are slow nothing is heard.
    struct ApiServer {
        address: SocketAddr,
        slow: watch::Sender<BTreeSet<&'static str>>,
    }

    impl ApiServer {
        async fn start(slow: &[&'static str]) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (slow, slowness) = watch::channel(slow.iter().copied().collect());
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(answer(stream, slowness.clone()));
                }
            });
            Self { address, slow }
        }

        fn client(&self) -> Client {
            let url = format!("http://{}/", self.address).parse().unwrap();
            Client::try_from(kube::Config::new(url)).unwrap()
        }
    }

    /// Answers one list; a watch hears nothing.
    async fn answer(
        stream: TcpStream,
        mut slowness: watch::Receiver<BTreeSet<&'static str>>,
    ) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        let mut request = String::new();
        stream.read_line(&mut request).await?;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).await?;
        }
        let _ = slowness
            .wait_for(|slow| !slow.iter().any(|name| request.contains(name)))
            .await;
        if request.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let name = if request.contains("second") {
            "second"
        } else {
            "first"
        };
        let body = list(name, request.contains("/endpointslices")).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await?;
        stream.shutdown().await
    }

    fn list(service: &str, slices: bool) -> Value {
        let labels = json!({"kubernetes.io/service-name": service});
        let metadata =
            json!({"name": service, "namespace": "demo", "resourceVersion": "1", "labels": labels});
        let address = if service == "first" {
            "10.0.0.1"
        } else {
            "10.0.0.2"
        };
        let item = match slices {
            true => {
                json!({"metadata": metadata, "addressType": "IPv4", "ports": [{"name": "main", "port": 8443}],
                "endpoints": [{"addresses": [address], "conditions": {"ready": true}}]})
            }
            false => json!({"metadata": metadata, "spec": {"ports": [{"name": "main", "port": 443}]}}),
        };
        let (version, kind) = match slices {
            true => ("discovery.k8s.io/v1", "EndpointSliceList"),
            false => ("v1", "ServiceList"),
        };
        json!({"apiVersion": version, "kind": kind, "metadata": {"resourceVersion": "1"}, "items": [item]})
    }

    fn gateway(service: &str) -> Arc<ProxyServer> {
        let resource = json!({"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer",
            "metadata": {"name": "gateway"}, "spec": {"networkConfig": {"serverIP": "192.0.2.4"}, "backends": [
                {"name": "api", "hostname": "api.example.com", "port": 443, "targetService": service,
                 "targetNamespace": "demo", "targetPort": 443}]}});
        Arc::new(serde_json::from_value(resource).unwrap())
    }

    fn endpoints(snapshot: &Snapshot) -> Vec<String> {
        let api = snapshot.clusters.get("api").unwrap();
        api.endpoints.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn a_silent_api_server_means_unknown_endpoints_and_not_missing_ones() {
        let server = ApiServer::start(&["first"]).await;
        let (_resources, receiver) = watch::channel(gateway("first"));
        let mut snapshots = follow(server.client(), receiver, |resource| resource).await;
        let first = snapshots.borrow_and_update().clone();
        assert!(!first.clusters.get("api").unwrap().known);
        assert!(first.problems.is_empty(), "{:?}", first.problems);
        server.slow.send_replace(BTreeSet::new());
        let told = snapshots.wait_for(|snapshot| endpoints(snapshot) == ["10.0.0.1:8443"]);
        assert!(told.await.unwrap().clusters.get("api").unwrap().known);
    }

    #[tokio::test]
    async fn another_service_takes_over_when_its_endpoints_are_known_and_not_before() {
        let server = ApiServer::start(&["second"]).await;
        let (resources, receiver) = watch::channel(gateway("first"));
        let mut snapshots = follow(server.client(), receiver, |resource| resource).await;
        assert_eq!(endpoints(&snapshots.borrow_and_update()), ["10.0.0.1:8443"]);
        resources.send_replace(gateway("second"));
        // Longer than it waits for the new Service: the pods of the old one go on.
        snapshots.changed().await.unwrap();
        let between = snapshots.borrow_and_update().clone();
        assert_eq!(endpoints(&between), ["10.0.0.1:8443"]);
        assert!(between.problems.is_empty(), "{:?}", between.problems);
        server.slow.send_replace(BTreeSet::new());
        let taken_over = snapshots.wait_for(|snapshot| {
            assert!(snapshot.problems.is_empty(), "{:?}", snapshot.problems);
            endpoints(snapshot) == ["10.0.0.2:8443"]
        });
        drop(taken_over.await.unwrap());
    }

    #[tokio::test]
    async fn a_backend_that_is_new_comes_with_its_endpoints() {
        let server = ApiServer::start(&[]).await;
        let (resources, receiver) = watch::channel(gateway("first"));
        let mut snapshots = follow(server.client(), receiver, |resource| resource).await;
        snapshots.borrow_and_update();
        resources.send_replace(gateway("second"));
        snapshots.changed().await.unwrap();
        assert_eq!(
            endpoints(&snapshots.borrow_and_update()),
            ["10.0.0.2:8443"],
            "at once"
        );
    }
}
