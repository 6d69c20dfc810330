//! The directory of a running testbed, and the removal of what a killed one left behind.
//!
//! `${OOOI_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/oooi}/run/KIND-PID-N/` holds the kubeconfig, keys
//! and logs of one testbed. Its owner holds a lock on the file `lock` in it; the kernel drops that lock
//! when the owner dies, so a directory whose lock can be had belongs to nobody and is removed by
//! whoever starts next, with the control groups of the same name.

use std::{
    env,
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::id,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::{Error, cgroup, error::Context, process};

/// How many machines may run at once: each takes one /30 of 198.18.0.0/16.
const SLOTS: usize = 256;

/// The file that says which process owns a testbed. It is written first.
const OWNER: &str = "owner";

/// The file that says that a testbed is up.
const READY: &str = "ready";

/// The state of a testbed that this process owns. Dropping it removes it.
pub(crate) struct State {
    path: PathBuf,
    _lock: File,
}

impl State {
    /// Makes a directory for a testbed of this `kind`, after removing those of the dead.
    pub(crate) fn create(kind: &str) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = base()?;
        private_directory(&base)?;
        let _turn = turn(&base)?;
        remove_abandoned(&base);

        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{kind}-{}-{count}", id()));
        private_directory(&path.join("logs"))?;
        let lock =
            File::create(path.join("lock")).context(|| format!("cannot create {}/lock", path.display()))?;
        lock.lock()
            .context(|| format!("cannot lock {}", path.display()))?;
        let state = Self { path, _lock: lock };
        state.write(OWNER, &id().to_string())?;
        Ok(state)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, which the control groups of a node share.
    pub(crate) fn name(&self) -> String {
        name_of(&self.path)
    }

    /// Where the components write their logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// Puts a file into the directory, as [`put`] does.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, Error> {
        put(&self.path, name, content)
    }

    /// A failure of the start with the end of every log, unless it shows the log that matters.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match error {
            shown @ (Error::Ended { .. } | Error::NotUp { .. }) => shown,
            other => Error::NotUp {
                source: Box::new(other),
                logs: process::tails(&self.logs(), 20),
            },
        }
    }

    /// Says that the testbed is up: others may use what lies here.
    pub(crate) fn mark_ready(&self) -> Result<(), Error> {
        self.write(READY, "").map(drop)
    }

    /// A number that no other living machine has.
    pub(crate) fn claim_slot(&self) -> Result<usize, Error> {
        let base = base()?;
        let _turn = turn(&base)?;
        let taken: Vec<usize> = directories(&base)
            .iter()
            .filter_map(|path| fs::read_to_string(path.join("slot")).ok()?.trim().parse().ok())
            .collect();
        let slot = (0..SLOTS)
            .find(|slot| !taken.contains(slot))
            .ok_or(Error::TooManyMachines(SLOTS))?;
        self.write("slot", &slot.to_string())?;
        Ok(slot)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// A testbed that runs now.
#[derive(Debug, Clone)]
pub struct Live {
    /// Its state directory; the value for [`crate::SHARED`].
    pub path: PathBuf,
    /// Its name: what it is, who owns it.
    pub name: String,
    /// The process that owns it.
    pub owner: u32,
}

impl Live {
    /// The kubeconfig of its administrator, once the testbed is up.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        self.path
            .join(READY)
            .exists()
            .then(|| self.path.join("kubeconfig"))
    }
}

/// How long ago a testbed began, by the file that is written first.
pub(crate) fn began(path: &Path) -> Option<Duration> {
    let written = fs::metadata(path.join(OWNER)).and_then(|file| file.modified());
    written.ok()?.elapsed().ok()
}

/// The testbeds that run now, in the order of their names.
pub fn live() -> Result<Vec<Live>, Error> {
    let mut found: Vec<Live> = directories(&base()?)
        .into_iter()
        .filter(|path| !abandoned(path))
        .filter_map(|path| {
            let owner = fs::read_to_string(path.join(OWNER)).ok()?.parse().ok()?;
            Some(Live {
                name: name_of(&path),
                owner,
                path,
            })
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Puts a file into a directory in one step, readable by its owner only, and gives its path.
pub(crate) fn put(directory: &Path, name: &str, content: &str) -> Result<PathBuf, Error> {
    let path = directory.join(name);
    if let Some(parent) = path.parent() {
        private_directory(parent)?;
    }
    let partial = path.with_extension("partial");
    let write = || -> io::Result<()> {
        let mut file = File::create(&partial)?;
        file.write_all(content.as_bytes())?;
        fs::rename(&partial, &path)
    };
    write().context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The folder of all running testbeds of this user.
fn base() -> Result<PathBuf, Error> {
    let set = |name| {
        env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let cache = set("OOOI_CACHE")
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("oooi")))
        .or_else(|| Some(set("HOME")?.join(".cache/oooi")))
        .ok_or(io::ErrorKind::NotFound)
        .context(|| "no place for a cache: set HOME or OOOI_CACHE")?;
    std::path::absolute(cache.join("run")).context(|| "cannot name the cache")
}

/// Keys lie in here: nobody else may read them.
fn private_directory(path: &Path) -> Result<(), Error> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .context(|| format!("cannot create {}", path.display()))
}

/// One process at a time makes, counts and removes directories.
fn turn(base: &Path) -> Result<File, Error> {
    let path = base.join(".turn");
    let file = File::create(&path).context(|| format!("cannot create {}", path.display()))?;
    file.lock()
        .context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

fn directories(base: &Path) -> Vec<PathBuf> {
    fs::read_dir(base)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.is_dir())
                .collect()
        })
        .unwrap_or_default()
}

/// Whether the owner of a directory is gone. One that cannot be opened is another user's: left alone.
fn abandoned(path: &Path) -> bool {
    match File::open(path.join("lock")) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Removes what testbeds left whose owners were killed. Every start does the same first.
pub fn sweep() -> Result<(), Error> {
    let base = base()?;
    if base.is_dir() {
        let _turn = turn(&base)?;
        remove_abandoned(&base);
    }
    Ok(())
}

fn remove_abandoned(base: &Path) {
    for path in directories(base).iter().filter(|path| abandoned(path)) {
        remove(path);
    }
}

/// Removes a testbed's directory and control groups; says so where that fails, since it is a leak.
fn remove(path: &Path) {
    if let Err(error) = cgroup::remove(&name_of(path)) {
        eprintln!(
            "testbed: the control groups of {} stay behind: {error}",
            path.display()
        );
    }
    if let Err(error) = fs::remove_dir_all(path) {
        eprintln!("testbed: {} stays behind: {error}", path.display());
    }
}

/// The name of a state directory, which the control groups of its node share.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
