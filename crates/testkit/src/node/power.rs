//! The end of everything on a node at once, and its return: what a reboot is to those outside.
//!
//! The components of a node start again when they were killed, as their init system would have it, but not while the
//! node is off: whoever turns it off holds a lock for that time.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use super::Node;
use crate::{
    Error,
    machine::{Place, volatile},
    state::{State, name_of},
};

/// Starts a program, and again after it was killed and the node is on. Its own failure is the end before that, so that
/// a node that does not come up says why; after it, it is tried again, as an init system does: a kubelet gives up on a
/// container runtime that is still reading what it left behind.
const KEEP: &str = r#"
killed=''
until "$@"; status=$?; [ -z "$killed" ] && [ $status -ne 137 ]; do
    [ -z "$killed" ] || sleep 1
    killed=yes
    flock --shared "$POWER" true
done
exit $status
"#;

/// Turns the node off: what the kernel forgets by a reboot is gone, what lies on disk stays.
///
/// A worker's runtime and kubelet have mounts of their own: they are other machines. An interface of a pod is removed
/// by its end at the node, since the pod's namespace lives on in the mounts of every tenant that was made meanwhile.
const OFF: &str = r#"
set -u
own="$(readlink /proc/self/ns/mnt)"
end() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/mnt")" = "$own" ] || continue
        name=''
        read -r name < "$process/comm" || continue
        for wanted; do [ "$name" != "$wanted" ] || kill -KILL "${process#/proc/}"; done
    done
}
end kubelet containerd containerd-shim runc kube-proxy kube-router
find /sys/fs/cgroup -path "*/$GROUP/kubepods/*" -name cgroup.procs -exec cat {} + 2> /dev/null | sort --unique |
    while read -r process; do [ "$process" = 0 ] || kill -KILL "$process"; done
# A kubelet that starts waits seconds for each container whose group it finds.
groups() { find /sys/fs/cgroup -depth -path "*/$GROUP/kubepods*" -type d "$@"; }
while groups | grep --quiet .; do groups -exec rmdir {} + 2> /dev/null || sleep 0.1; done
tac /proc/self/mounts | while read -r _ point _; do
    case "$point" in
    "$VOLATILE"/kubelet/* | "$VOLATILE"/containerd/* | /run/containerd/* | /run/netns | /run/netns/*)
        umount --lazy "$(printf %b "$point")" ;;
    esac
done
rm -rf --one-file-system /run/containerd /run/netns
for interface in $(ip -oneline link show type veth | sed -n 's/^[0-9]*: \(veth[^@:]*\).*/\1/p'); do
    ip link delete "$interface"
done
nft flush ruleset
for table in filter nat mangle raw; do
    iptables-legacy --table "$table" --flush
    iptables-legacy --table "$table" --delete-chain
done 2> /dev/null
ipset destroy
true
"#;

/// The file whose lock means that the node is off.
fn power(state: &Path) -> PathBuf {
    state.join("power")
}

/// A command for a component of the node, which starts again when it was killed.
pub(super) fn kept(place: Place, state: &State, program: impl AsRef<OsStr>) -> Command {
    let mut command = place.command("sh");
    command.args(["-c", KEEP, "keep"]).arg(program);
    command.env("POWER", power(state.path()));
    command
}

impl Node {
    /// Reboots the node: kubelet, container runtime, packet filters and every container end at once, and the
    /// components start again. The control plane of the cluster, tenants and workers go on: they are other machines.
    pub fn reboot(&self) -> Result<(), Error> {
        reboot(self.place, self.state())
    }
}

/// Reboots the node of a machine, by its state.
pub(super) fn reboot(place: Place, state: &Path) -> Result<(), Error> {
    let mut command = place.command("flock");
    command.arg("--exclusive").arg(power(state));
    command.args(["sh", "-c", OFF]);
    command.env("GROUP", crate::cgroup::group(&name_of(state)));
    command.env("VOLATILE", volatile(state));
    crate::process::output(command).map(drop)
}
