//! What can go wrong while a testbed starts or serves. Tests `unwrap` these, so `Debug` reads as
//! well as `Display`: the message, its causes, and what to do.

use std::{fmt, io, path::PathBuf, process::ExitStatus, time::Duration};

/// A testbed that did not start, or a command in it that failed.
#[derive(thiserror::Error)]
pub enum Error {
    /// The parts are not in the cache, or the script that knows cannot run.
    #[error("{0}\nBuild the testbed first: `make testbed`")]
    NotBuilt(String),
    /// A node needs namespaces, mounts and control groups of the system.
    #[error(
        "a node needs root: run the node tests as root (`sudo make test-node`), or `make test-unit` without"
    )]
    NotRoot,
    /// A program of a Debian package is missing.
    #[error("{0} is missing: run `testbed/packages node` as root")]
    MissingProgram(String),
    /// The project's own image is not there.
    #[error("{0} is not there: run `make image`")]
    MissingImage(PathBuf),
    /// A directory that the machine hides from its processes holds the cache.
    #[error(
        "the cache {0} lies in a directory that the test machine replaces; set OOOI_CACHE to another place"
    )]
    HiddenCache(PathBuf),
    /// A file, directory or process operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried, with its path.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A DHCP client wrote something else than its address.
    #[error("the DHCP client got `{0}`, which is no address")]
    Lease(String),
    /// A certificate could not be made.
    #[error("cannot make the certificate of {subject}: {source}")]
    Certificate {
        /// Whose certificate.
        subject: String,
        /// Why it failed.
        source: rcgen::Error,
    },
    /// A component ended although it should serve.
    #[error("{name} ended early ({status}). Its last lines:\n{log}")]
    Ended {
        /// The component.
        name: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// A condition did not become true.
    #[error("waited {} s for {what}; the last thing seen: {seen}", after.as_secs())]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        after: Duration,
        /// The last answer.
        seen: String,
    },
    /// A testbed did not come up; its logs go with its directory, so their ends are here.
    #[error("{source}\n{logs}")]
    NotUp {
        /// What failed.
        source: Box<Error>,
        /// The last lines of every component.
        logs: String,
    },
    /// A command ended with a failure.
    #[error("`{command}` failed ({status}):\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// Standard output and standard error.
        output: String,
    },
    /// The API server refused, or could not be reached.
    #[error("the API server: {0}")]
    Kube(Box<kube::Error>),
    /// The kubeconfig that a testbed left cannot be used.
    #[error("cannot use the kubeconfig {path}: {why}")]
    Kubeconfig {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No address is left for a further machine.
    #[error("{0} machines run at once already; see `testbed status`")]
    TooManyMachines(usize),
    /// The shared testbed has no node, or its state is not there.
    #[error("the testbed at {path} cannot be used: {why}")]
    Attach {
        /// Its state directory.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(Box::new(error))
    }
}

/// Says what was tried when an operation of the system fails.
pub(crate) trait Context<T> {
    /// Names the operation; called on failure only.
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            what: what().into(),
            source: source.into(),
        })
    }
}
