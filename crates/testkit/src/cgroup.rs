//! The control groups of a machine: one group of its name below the root of every hierarchy.
//!
//! The kubelet makes its own groups below it (`cgroupRoot`). The kernel keeps empty groups when their
//! processes die, so they are removed by name, children first.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// How long processes that were killed may take to leave their groups.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the hierarchies are mounted, with whether they are of version 2.
fn hierarchies() -> io::Result<Vec<(PathBuf, bool)>> {
    Ok(parse(&fs::read_to_string("/proc/self/mountinfo")?))
}

/// The mount points of type cgroup and cgroup2 in a mountinfo table (proc(5)).
fn parse(mountinfo: &str) -> Vec<(PathBuf, bool)> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let kind = filesystem.split(' ').next()?;
            let point = mount.split(' ').nth(4)?;
            match kind {
                "cgroup" => Some((point.into(), false)),
                "cgroup2" => Some((point.into(), true)),
                _ => None,
            }
        })
        .collect()
}

/// The name of a machine's group. The prefix keeps anything that is not ours out of [`remove`].
pub(crate) fn group(name: &str) -> String {
    format!("oooi-{name}")
}

/// Makes the group of machine `name` everywhere and gives the kubelet's name for it.
pub(crate) fn create(name: &str) -> io::Result<String> {
    create_path(&group(name))
}

/// Makes a group below that of machine `name`, for a kubelet of a tenant. It goes with the machine's.
pub(crate) fn create_below(name: &str, below: &str) -> io::Result<String> {
    create_path(&format!("{}/{below}", group(name)))
}

fn create_path(group: &str) -> io::Result<String> {
    for (root, version_2) in hierarchies()? {
        let path = root.join(group);
        let parent = path.parent().unwrap_or(&root);
        if version_2 {
            // A controller that the parent does not pass on is not there for the pods; the kubelet names it.
            for controller in fs::read_to_string(parent.join("cgroup.controllers"))?.split_whitespace() {
                let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
        fs::create_dir(&path)?;
        // A group of cpuset version 1 is born empty and takes no process until both are set.
        for file in ["cpuset.mems", "cpuset.cpus"] {
            if !version_2 && path.join(file).exists() {
                fs::write(path.join(file), fs::read_to_string(parent.join(file))?)?;
            }
        }
    }
    Ok(format!("/{group}"))
}

/// Removes the groups of machine `name`, waiting for its processes to be gone. None is no error.
pub(crate) fn remove(name: &str) -> io::Result<()> {
    let began = Instant::now();
    for (root, _) in hierarchies()? {
        let path = root.join(group(name));
        while path.exists() {
            match remove_tree(&path) {
                Ok(()) => break,
                Err(error) if began.elapsed() > PATIENCE => return Err(error),
                // There is no event for a group that becomes empty in version 1.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
    Ok(())
}

/// Removes a group with its children. Its files are no entries of their own: only directories count.
fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let table = "\
30 22 0:25 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:26 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu
32 30 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
        let expected: Vec<(PathBuf, bool)> = vec![
            ("/sys/fs/cgroup/cpu".into(), false),
            ("/sys/fs/cgroup/unified".into(), true),
        ];
        assert_eq!(parse(table), expected);
    }

    #[test]
    fn a_table_cut_anywhere_is_no_panic() {
        let line = "31 30 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu";
        for end in 0..line.len() {
            parse(&line[..end]);
        }
    }
}
