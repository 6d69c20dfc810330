//! The operator, deployed as a platform team does it.

use std::path::{Path, PathBuf};

use oooi_testkit::Node;

use crate::Result;

/// Installs the definitions, those of the neighbours, and the operator from its manifests; waits until it is up.
pub async fn deploy(node: &Node) -> Result<()> {
    node.import_own_image()?;
    let neighbours = ["hostedclusters", "nodepools", "virtualmachineinstances"]
        .map(|name| root().join(format!("testbed/crds/{name}.yaml")));
    // Of OpenShift's kinds this alone: the rest of OpenShift is not here.
    let resolvers = node.parts().crds().join("operator-dnses.yaml");
    let own = root().join("deploy/crds");
    for path in neighbours.iter().chain([&resolvers, &own]) {
        let path = path.to_string_lossy();
        node.kubectl(&["apply", "--server-side", "-f", &path]).await?;
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "-f",
            &path,
        ];
        node.kubectl(&established).await?;
    }
    let overlay = root().join("deploy/kustomize/default");
    let manifests = node.kubectl(&["kustomize", &overlay.to_string_lossy()]).await?;
    // Nothing can be pulled on the test node: Envoy is there under a name of its own.
    let manifests = manifests
        .lines()
        .map(|line| match line.split_once("value: envoyproxy/envoy") {
            Some((indent, _)) => format!("{indent}value: testbed.invalid/envoy:test\n"),
            None => format!("{line}\n"),
        })
        .collect::<String>();
    node.apply(&manifests).await?;
    let rollout = [
        "--namespace=oooi-system",
        "rollout",
        "status",
        "deployment/oooi-manager",
        "--timeout=120s",
    ];
    node.kubectl(&rollout).await.map(drop)
}

/// The checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
