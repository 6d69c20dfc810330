//! What a machine could leave on the host: processes, mounts, namespaces, interfaces, control groups.
#![allow(clippy::unwrap_used, reason = "these are parts of tests")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::runner;

/// What identifies one machine to the host, taken while it runs.
pub(crate) struct Traces {
    state: PathBuf,
    namespaces: Vec<PathBuf>,
    interface: PathBuf,
    index: String,
}

impl Traces {
    /// The traces of the machine with this state directory.
    pub(crate) fn of(state: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(state.join(name)).unwrap().trim().to_owned();
        let process = PathBuf::from("/proc").join(read("init")).join("ns");
        let namespaces = ["mnt", "net", "pid", "uts"].map(|kind| fs::read_link(process.join(kind)).unwrap());
        let interface = Path::new("/sys/class/net").join(format!("oooi{}", read("slot")));
        let index = fs::read_to_string(interface.join("ifindex")).unwrap();
        let traces = Self {
            state: state.to_owned(),
            namespaces: namespaces.into(),
            interface,
            index,
        };
        // A look that finds nothing now would find nothing afterwards either.
        let seen = traces.left();
        for kind in ["process", "namespace", "interface", "cgroup"] {
            assert!(
                seen.iter().any(|trace| trace.starts_with(kind)),
                "no {kind} is seen of a running machine: {seen:?}"
            );
        }
        traces
    }

    /// The state directory.
    pub(crate) fn state(&self) -> &Path {
        &self.state
    }

    /// What the host still has of the machine.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = runner::processes_of(&self.state)
            .iter()
            .map(|line| format!("process {line}"))
            .collect();
        for namespace in self.namespaces.iter().filter(|namespace| in_use(namespace)) {
            left.push(format!("namespace {}", namespace.display()));
        }
        // The next machine may have the same name by now; the index is given once.
        if fs::read_to_string(self.interface.join("ifindex")).is_ok_and(|index| index == self.index) {
            left.push(format!("interface {}", self.interface.display()));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let name = self.state.to_str().unwrap();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(name))
                .map(|line| format!("mount {line}")),
        );
        let group = format!("oooi-{}", self.state.file_name().unwrap().to_str().unwrap());
        for line in mounts.lines().filter(|line| line.contains(" - cgroup")) {
            let path = Path::new(line.split(' ').nth(4).unwrap()).join(&group);
            if path.exists() {
                left.push(format!("cgroup {}", path.display()));
            }
        }
        left
    }
}

/// Whether any process is in a namespace, named as /proc/PID/ns names it.
fn in_use(namespace: &Path) -> bool {
    fs::read_dir("/proc").unwrap().flatten().any(|process| {
        ["mnt", "net", "pid", "uts"].iter().any(|kind| {
            fs::read_link(process.path().join("ns").join(kind)).is_ok_and(|link| link == namespace)
        })
    })
}
