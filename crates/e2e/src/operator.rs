//! The operator, deployed as a platform team does it.

use std::path::{Path, PathBuf};

use oooi_testkit::Node;

use crate::Result;

/// Installs the definitions, those of the neighbours, and the operator from its manifests; waits until it is up.
pub async fn deploy(node: &Node) -> Result<()> {
    node.import_own_image()?;
    let neighbours = ["hostedclusters", "nodepools", "virtualmachineinstances"]
        .map(|name| root().join(format!("testbed/crds/{name}.yaml")));
    let own = root().join("deploy/crds");
    for path in neighbours.iter().chain([&own]) {
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
    let base = root().join("deploy/kustomize/base");
    node.kubectl(&["apply", "--server-side", "-k", &base.to_string_lossy()])
        .await?;
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
