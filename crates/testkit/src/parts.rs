//! Where the built parts are. The one script that builds them (`testbed/build`) also knows the key of
//! the cache; it is asked, so that the two cannot disagree.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::Error;

/// The folder of the built parts: programs, the vendors' CRDs, images.
#[derive(Debug, Clone)]
pub struct Parts {
    root: PathBuf,
}

impl Parts {
    /// Finds the parts of this checkout in the cache. Builds nothing.
    pub fn find() -> Result<Self, Error> {
        static FOUND: OnceLock<Parts> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found.clone());
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testbed/build");
        let output = Command::new(&script)
            .arg("--where")
            .output()
            .map_err(|error| Error::NotBuilt(format!("cannot run {}: {error}", script.display())))?;
        if !output.status.success() {
            return Err(Error::NotBuilt(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        let root = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        Ok(FOUND.get_or_init(|| Self { root }).clone())
    }

    /// The folder itself. What is in it are links into folders beside it.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// The path of a program, such as `kube-apiserver`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.root.join("bin").join(name)
    }

    /// The folder of the vendors' CRDs, one file a kind.
    pub fn crds(&self) -> PathBuf {
        self.root.join("crds")
    }

    /// An image archive of the testbed: `pause`, `busybox` or `envoy`. A node has all three, under
    /// the reference `testbed.invalid/NAME:test`.
    pub fn image(&self, name: &str) -> PathBuf {
        self.root.join("images").join(format!("{name}.tar"))
    }
}
