//! An EgressIPAM from its beginning to its end, with a controller that is ended after every write or two.
//!
//! Each controller may write so often, to the API server and to the cloud together, and then it is as good as dead: not
//! even reads go through. The next one starts from what is there. At each of these ends no address may be in two places,
//! nor in one that no record tells of; and every chapter comes to its end all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::ResourceExt;
use kube::api::ListParams;
use oooi_api::EgressIpam;
use oooi_api::foreign::{EgressIP, HostSubnet, NetNamespace};
use oooi_testkit::until;
use serde_json::json;
use tokio::sync::watch;

use super::{ASKS, GIVEN, Kind, LIMIT, Scene, sdn};

/// More ends than any chapter needs: whoever comes here gets nothing done.
const MOST: usize = 60;

/// Lets so many writes through, to whomever they go, and after them nothing at all: as if the process had ended.
#[derive(Clone)]
pub(crate) struct Cut {
    allowed: usize,
    writes: Arc<watch::Sender<usize>>,
    under_way: Arc<watch::Sender<usize>>,
}

impl Cut {
    fn after(allowed: usize) -> Self {
        Cut {
            allowed,
            writes: Arc::default(),
            under_way: Arc::default(),
        }
    }

    /// Counts a write. False if it is one too many, or comes after such a one.
    pub(crate) fn passes(&self, is_write: bool) -> bool {
        self.writes.send_modify(|writes| *writes += usize::from(is_write));
        *self.writes.borrow() <= self.allowed
    }

    /// Carries what passed to its end, also when the controller ends meanwhile: it had left.
    pub(crate) async fn carry<T: Send + 'static>(&self, sent: impl Future<Output = T> + Send + 'static) -> T {
        let under_way = self.under_way.clone();
        under_way.send_modify(|number| *number += 1);
        let carried = tokio::spawn(async move {
            let answer = sent.await;
            under_way.send_modify(|number| *number -= 1);
            answer
        });
        carried.await.unwrap()
    }

    /// Waits until there was one write too many, and those before it have ended: writes go side by side.
    async fn is_cut(&self) {
        let mut writes = self.writes.subscribe();
        writes.wait_for(|writes| *writes > self.allowed).await.unwrap();
        let mut under_way = self.under_way.subscribe();
        under_way.wait_for(|number| *number == 0).await.unwrap();
    }
}

/// A cloud whose machines carry the addresses.
pub(crate) trait Cloud {
    /// Is cut off too.
    fn cut(&self, cut: &Cut);

    /// Every address that is on a machine beside its own, and the node of the machine.
    async fn carried(&self) -> Vec<(String, String)>;
}

/// No cloud has to be asked.
pub(crate) struct NoCloud;

impl Cloud for NoCloud {
    fn cut(&self, _: &Cut) {}

    async fn carried(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// What happens to the EgressIPAM `x` and its namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chapter {
    /// Two namespaces ask it, and it comes.
    Comes,
    /// The node `n1` fails, and is of its zone no more.
    Fails,
    /// One of the namespaces asks no more, and the node is well again.
    Leaves,
    /// It is deleted.
    Goes,
}

/// The namespaces that ask. The first one leaves.
const ASKING: [&str; 2] = ["cut-a", "cut-b"];

/// Tells the story once for each number of writes that a controller lives for. The node `n1` is of zone `a`, and there
/// is another one that can carry the same.
pub(crate) async fn story(scene: &mut Scene, cloud: &impl Cloud, networks: &[&str], lives: &[usize]) {
    for (id, name) in (100..).zip(ASKING) {
        sdn::namespace(scene, name, id, "x", "").await;
    }
    for allowed in lives {
        let mut ends = Vec::new();
        for chapter in [Chapter::Comes, Chapter::Fails, Chapter::Leaves, Chapter::Goes] {
            begin(scene, networks, chapter).await;
            ends.push(tell(scene, cloud, networks.len(), chapter, *allowed).await);
        }
        println!("ended after {allowed} writes, so often a chapter: {ends:?}");
        assert!(ends[0] > 0 && ends[3] > 0, "it was never ended: {ends:?}");
    }
}

async fn begin(scene: &Scene, networks: &[&str], chapter: Chapter) {
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    match chapter {
        Chapter::Comes => {
            for name in ASKING {
                scene.annotate(name, ASKS, Some("x")).await;
            }
            scene.ipam("x", networks).await;
        }
        Chapter::Fails => {
            scene.ready("n1", false).await;
            scene.change::<Node>("n1", zone("elsewhere")).await;
        }
        Chapter::Leaves => {
            scene.annotate(ASKING[0], ASKS, None).await;
            scene.ready("n1", true).await;
            scene.change::<Node>("n1", zone("a")).await;
        }
        Chapter::Goes => scene.delete::<EgressIpam>("x").await,
    }
}

/// Tells one chapter, and how often the controller was ended in it.
async fn tell(
    scene: &mut Scene,
    cloud: &impl Cloud,
    networks: usize,
    chapter: Chapter,
    allowed: usize,
) -> usize {
    for ends in 0..MOST {
        let cut = Cut::after(allowed);
        cloud.cut(&cut);
        scene.cut = Some(cut.clone());
        scene.start().await;
        let what = format!("{chapter:?} to be over, or an end after {allowed} writes");
        let over = until(&what, LIMIT, async || {
            is_over(scene, cloud, networks, chapter).await
        });
        let is_over = tokio::select! {
            () = cut.is_cut() => false,
            over = over => over.map(|()| true).unwrap(),
        };
        scene.stop();
        if let Err(wrong) = on(scene, cloud).await {
            panic!("{chapter:?}, after {ends} ends, each after {allowed} writes: {wrong}");
        }
        if is_over {
            return ends;
        }
    }
    panic!("{chapter:?} is not over after {MOST} controllers that wrote {allowed} times each");
}

/// Whether a chapter came to its end; else what lacks.
async fn is_over(scene: &Scene, cloud: &impl Cloud, networks: usize, chapter: Chapter) -> Result<(), String> {
    // What is cheap and comes last is looked at first.
    let ipam = scene.api::<EgressIpam>().get_opt("x").await;
    let ipam = ipam.map_err(|error| error.to_string())?;
    let goes = chapter == Chapter::Goes;
    if ipam.is_none() != goes || !goes && !ipam.as_ref().is_some_and(is_ready) {
        return Err(format!("{ipam:?}"));
    }
    let given = given(scene).await?;
    let asking = match chapter {
        Chapter::Comes | Chapter::Fails => 2,
        Chapter::Leaves => 1,
        Chapter::Goes => 0,
    };
    if given.len() != asking * networks {
        return Err(format!("{given:?} are given to {asking} namespaces"));
    }
    for place in on(scene, cloud).await? {
        if place.keys().ne(&given) {
            return Err(format!("{given:?} are given, {place:?} carried"));
        }
        if chapter == Chapter::Fails && place.values().any(|node| node == "n1") {
            return Err(format!("n1 carries some of {place:?}"));
        }
    }
    let left = left(scene, chapter).await;
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("left are {left:?}")),
    }
}

fn is_ready(ipam: &EgressIpam) -> bool {
    let conditions = ipam.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

/// The node of every address, by each who must know it; or which one is in two places, or in one that no record tells
/// of.
async fn on(scene: &Scene, cloud: &impl Cloud) -> Result<Vec<BTreeMap<String, String>>, String> {
    if scene.has_ovn() {
        return on_ovn(scene).await;
    }
    let mut nodes = Vec::new();
    for host in all::<HostSubnet>(scene).await {
        let node = host.name_any();
        nodes.extend(
            host.spec
                .egress_ips
                .into_iter()
                .map(|address| (address, node.clone())),
        );
    }
    let machines = cloud.carried().await;
    // Records are written first and cleared last, so they are read last.
    let mut records = Vec::new();
    for node in all::<Node>(scene).await {
        let text = node.annotations().get(sdn::PLACED).cloned().unwrap_or_default();
        let addresses = text.split(',').filter(|address| !address.is_empty());
        records.extend(addresses.map(|address| (address.to_owned(), node.name_any())));
    }
    if let Some(unknown) = nodes.iter().chain(&machines).find(|one| !records.contains(one)) {
        return Err(format!("{unknown:?} is not in the records {records:?}"));
    }
    let mut places = vec![once(nodes)?];
    if scene.cloud.namespace.is_some() {
        places.push(once(machines)?);
    }
    // An address that moves is in two records for a while.
    places.push(records.into_iter().collect());
    Ok(places)
}

/// OVN-Kubernetes places, and every address is in one of our objects.
async fn on_ovn(scene: &Scene) -> Result<Vec<BTreeMap<String, String>>, String> {
    let (mut placed, mut written) = (Vec::new(), Vec::new());
    for one in all::<EgressIP>(scene).await {
        let name = one.name_any();
        let items = one.status.into_iter().flat_map(|status| status.items);
        placed.extend(items.map(|item| (item.egress_ip, item.node)));
        written.extend(
            one.spec
                .egress_ips
                .into_iter()
                .map(|address| (address, name.clone())),
        );
    }
    Ok(vec![once(placed)?, once(written)?])
}

fn once(pairs: Vec<(String, String)>) -> Result<BTreeMap<String, String>, String> {
    let mut places = BTreeMap::new();
    for (address, node) in pairs {
        if let Some(other) = places.insert(address.clone(), node.clone()) {
            return Err(format!("{address} is on {node} and on {other}"));
        }
    }
    Ok(places)
}

/// The addresses that the namespaces have in writing, none twice.
async fn given(scene: &Scene) -> Result<BTreeSet<String>, String> {
    let mut given = BTreeSet::new();
    for name in ASKING {
        let namespace = scene.api::<Namespace>().get(name).await.unwrap();
        let text = namespace.annotations().get(GIVEN).cloned().unwrap_or_default();
        for address in text.split(',').filter(|address| !address.is_empty()) {
            if !given.insert(address.to_owned()) {
                return Err(format!("{address} is given twice"));
            }
        }
    }
    Ok(given)
}

/// What stands in the cluster and should not after a chapter, beside addresses.
async fn left(scene: &Scene, chapter: Chapter) -> Vec<String> {
    let is_gone = chapter == Chapter::Goes;
    let ours = |key: &&String| key.starts_with("egressip-ipam-operator");
    let mut left: Vec<String> = Vec::new();
    for node in all::<Node>(scene).await {
        if is_gone || chapter == Chapter::Fails && node.name_any() == "n1" {
            let label = node
                .labels()
                .keys()
                .filter(|key| key.contains("egress-assignable"));
            left.extend(node.annotations().keys().filter(ours).chain(label).cloned());
        }
    }
    for one in all::<NetNamespace>(scene).await {
        if is_gone || chapter == Chapter::Leaves && one.name_any() == ASKING[0] {
            left.extend(
                one.annotations()
                    .keys()
                    .filter(ours)
                    .chain(&one.spec.egress_ips)
                    .cloned(),
            );
        }
    }
    if is_gone {
        let namespace = scene.api::<Namespace>().get(ASKING[1]).await.unwrap();
        let keys = namespace.annotations().keys().filter(ours);
        left.extend(keys.filter(|key| *key != ASKS).cloned());
    }
    left
}

async fn all<K: Kind>(scene: &Scene) -> Vec<K> {
    scene.api::<K>().list(&ListParams::default()).await.unwrap().items
}
