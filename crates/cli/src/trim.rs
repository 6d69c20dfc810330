//! Gives back the memory that only the start of a server needed.
//!
//! Reading a manifest, its schema and its rules, and the first handshake with an API server run once, through much code
//! and many small allocations. What the allocator kept free goes back to the system, and so do the pages of the program
//! itself: those that are needed again come back from the page cache, and those that were for the start alone do not.

#![allow(
    unsafe_code,
    reason = "these calls have no safe wrapper; each block says why it is sound"
)]

use std::time::Duration;

use tracing::debug;

/// By then a server has its configuration, its sockets and its watches.
const SETTLED: Duration = Duration::from_secs(3);

/// Waits until a server has settled, and gives back what it needed until then.
pub(crate) async fn once_settled() {
    tokio::time::sleep(SETTLED).await;
    match std::fs::read_to_string("/proc/self/maps") {
        Ok(maps) => drop_code(&maps),
        Err(error) => debug!(%error, "the program's own pages are not known, and stay"),
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and touches nothing but memory that the allocator has free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of the pages of code that are mapped.
fn drop_code(maps: &str) {
    for (start, length) in maps.lines().filter_map(code) {
        let at = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: these are whole pages of a file, mapped to be read and executed and never written: the kernel reads
        // what is touched again from that file.
        if unsafe { libc::madvise(at, length, libc::MADV_DONTNEED) } != 0 {
            let error = std::io::Error::last_os_error();
            debug!(%error, "pages of the program stay in memory");
        }
    }
}

/// Where a line of `/proc/self/maps` maps code of a file, and how much.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    let file = fields.nth(3)?;
    if rights != "r-xp" || !file.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_files_is_let_go() {
        let kept = [
            "55d0-55e0 r--p 00000000 08:01 1 /oooi",
            "55d0-55e0 rw-p 00000000 08:01 1 /oooi",
            "7fff0000-7fff1000 r-xp 00000000 00:00 0 [vdso]",
            "7f00-7f10 r-xp 00000000 00:00 0",
            "",
        ];
        assert!(kept.iter().all(|line| code(line).is_none()));
        assert_eq!(
            code("55d000-55f000 r-xp 00001000 08:01 1  /opt/a b"),
            Some((0x55d000, 0x2000))
        );
    }

    #[test]
    fn the_program_goes_on_without_its_pages() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.lines().filter_map(code).count() > 0, "{maps}");
        drop_code(&maps);
        assert!(maps.lines().filter_map(code).count() > 0);
    }
}
