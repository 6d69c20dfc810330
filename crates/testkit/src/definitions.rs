//! What a cluster is given before a test looks at it: definitions of kinds, and the manager's account and roles.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{Cluster, Error};

impl Cluster {
    /// Installs these definitions (a list of them), and waits until every kind is served.
    pub async fn define(&self, definitions: &Value) -> Result<(), Error> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
        self.apply(&list.to_string()).await?;
        self.served().await
    }

    /// Installs the definitions of other projects' kinds, and waits until every one is served. The vendors' own come
    /// with the parts; `testbed/crds` has stand-ins for the others.
    pub async fn define_neighbours(&self) -> Result<(), Error> {
        for folder in [self.parts().crds(), repository().join("testbed/crds")] {
            self.apply_path("-f", &folder).await?;
        }
        self.served().await
    }

    /// Installs the manager as it is shipped: its namespace, account and roles. Nothing runs its Deployment here.
    pub async fn install_manager(&self) -> Result<(), Error> {
        let base = repository().join("deploy/kustomize/base");
        self.apply_path("-k", &base).await
    }

    async fn apply_path(&self, flag: &str, path: &Path) -> Result<(), Error> {
        let path = path.to_string_lossy();
        self.kubectl(&["apply", "--server-side", "--force-conflicts", flag, &path])
            .await
            .map(drop)
    }

    async fn served(&self) -> Result<(), Error> {
        let established = [
            "wait",
            "--for=condition=Established",
            "--timeout=60s",
            "crd",
            "--all",
        ];
        self.kubectl(&established).await.map(drop)
    }
}

/// The root of this repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
