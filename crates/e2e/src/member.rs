//! A worker as a member of its cluster: what its control plane has of it beyond its first minute.

use std::time::Duration;

use oooi_testkit::{Worker, until};
use serde_json::json;

use crate::{Hosted, PATIENCE, Result};

/// How long a worker may take to be whole again after something broke: its kubelet and its konnectivity agent notice a
/// connection on which nobody answers after 50 s at most, and open another.
const WHOLE: Duration = Duration::from_secs(90);

/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(15);

/// Starts a pod on a worker, which answers for all pods there.
pub async fn run_probe(hosted: &Hosted<'_>, worker: &Worker) -> Result<()> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
        "spec": {
            "nodeName": worker.name(), "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "testbed.invalid/busybox:test", "imagePullPolicy": "Never",
                "command": ["sh", "-c", "echo from the worker; exec sleep 3600"],
            }],
        },
    });
    // The account of the namespace is made by a controller.
    until("the pod to be taken", PATIENCE, async || {
        hosted
            .administer_with(&["apply", "-f", "-"], &pod.to_string())
            .await
            .map_err(|error| error.to_string())
    })
    .await?;
    let wait = ["wait", "--for=condition=Ready", "--timeout=120s", "pod/probe"];
    hosted.administer(&wait).await.map(drop)
}

/// Waits until a worker is what it was: all of it runs, its node is Ready by a word that it gave meanwhile, and
/// `kubectl logs` and `exec` go from the hosted API server through konnectivity to its kubelet on the VLAN.
pub async fn is_whole(hosted: &Hosted<'_>, worker: &mut Worker) -> Result<()> {
    let ready = "--output=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    let renewed = "--output=jsonpath={.spec.renewTime}";
    let name = worker.name().to_owned();
    let mut first = None;
    until("the worker to be whole", WHOLE, async || {
        worker.check().map_err(|error| error.to_string())?;
        let ask = async |arguments: &[&str]| {
            let answer = hosted.administer_for(ATTEMPT, arguments).await;
            answer.map_err(|error| error.to_string())
        };
        let is = |what: &str, wanted: &str, answer: String| match answer == wanted {
            true => Ok(()),
            false => Err(format!("{what}: `{answer}`")),
        };
        // What was said before says nothing: a node is called Ready for a while after its last word.
        let last = ask(&["get", "lease", &name, "--namespace=kube-node-lease", renewed]).await?;
        if *first.get_or_insert_with(|| last.clone()) == last {
            return Err(format!("the node said nothing since {last}"));
        }
        is("Ready", "True", ask(&["get", "node", &name, ready]).await?)?;
        is("logs", "from the worker\n", ask(&["logs", "probe"]).await?)?;
        let inside = ask(&["exec", "probe", "--", "echo", "inside"]).await?;
        is("exec", "inside\n", inside)
    })
    .await
}
