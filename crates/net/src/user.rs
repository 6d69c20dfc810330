//! A user namespace of one's own.

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Makes the caller root of a new user namespace, in which it may make network namespaces. Nothing outside of it
/// can be changed from there. Must be called before the process has a second thread.
pub fn become_root_of_own_namespace() -> io::Result<()> {
    let (uid, gid) = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    // SAFETY: the process has one thread, which the kernel checks: it refuses the flag otherwise.
    #[allow(unsafe_code, reason = "there is no safe way to leave a namespace")]
    unsafe {
        unshare_unsafe(UnshareFlags::NEWUSER)?;
    }
    // A process may map groups only after it gave up changing them.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
