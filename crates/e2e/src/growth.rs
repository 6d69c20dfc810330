//! What a process has, and whether it grows.

use std::{fs, io};

/// More than this many KiB is growth: less is what an allocator keeps or gives back as it likes.
const MEMORY: u64 = 1024;

/// What a process has at a moment of rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in KiB.
    pub memory: u64,
    /// Open file descriptors.
    pub files: u64,
    /// Threads.
    pub threads: u64,
    /// Tasks in its event loops, which it counts itself.
    pub tasks: u64,
}

impl Usage {
    /// What a process has now: `tasks` by its own word, the rest as the kernel counts it.
    pub fn of(process: u32, tasks: u64) -> io::Result<Self> {
        let folder = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            number.ok_or_else(|| io::Error::other(format!("{folder}/status has no {name}")))
        };
        Ok(Self {
            memory: field("VmRSS:")?,
            files: fs::read_dir(format!("{folder}/fd"))?.count() as u64,
            threads: field("Threads:")?,
            tasks,
        })
    }
}

/// What grows over moments of rest: what is more at every one of the later half than at any of the earlier half. A peak
/// is no growth, a leak is.
///
/// Memory is filled in the beginning and settles, so the last two of each half are compared: a slope that goes on.
pub fn growth(rests: &[Usage]) -> Vec<String> {
    let (earlier, later) = rests.split_at(rests.len() / 2);
    let grows = |what: &str, slack: u64, earlier: &[Usage], later: &[Usage], pick: fn(&Usage) -> u64| {
        let (most, least) = (earlier.iter().map(pick).max()?, later.iter().map(pick).min()?);
        (least > most + slack).then(|| format!("{what} grew from at most {most} to at least {least}"))
    };
    [
        grows("memory (KiB)", MEMORY, end(earlier), end(later), |usage| {
            usage.memory
        }),
        grows("file descriptors", 0, earlier, later, |usage| usage.files),
        grows("threads", 0, earlier, later, |usage| usage.threads),
        grows("tasks", 0, earlier, later, |usage| usage.tasks),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The last two of some rests.
fn end(rests: &[Usage]) -> &[Usage] {
    &rests[rests.len().saturating_sub(2)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(memory: u64, files: u64) -> Usage {
        Usage {
            memory,
            files,
            threads: 7,
            tasks: 30,
        }
    }

    #[test]
    fn what_is_more_at_every_later_rest_grows() {
        let leak = [
            usage(50_000, 20),
            usage(50_000, 21),
            usage(50_000, 22),
            usage(50_000, 23),
        ];
        assert_eq!(
            growth(&leak),
            ["file descriptors grew from at most 21 to at least 22"]
        );
        let leak = [
            usage(50_000, 20),
            usage(51_000, 20),
            usage(57_000, 20),
            usage(58_000, 20),
        ];
        assert_eq!(
            growth(&leak),
            ["memory (KiB) grew from at most 51000 to at least 57000"]
        );
    }

    #[test]
    fn memory_that_goes_on_growing_by_little_grows() {
        let leak: Vec<Usage> = (0..8).map(|rest| usage(50_000 + rest * 400, 20)).collect();
        assert_eq!(
            growth(&leak),
            ["memory (KiB) grew from at most 51200 to at least 52400"]
        );
    }

    #[test]
    fn memory_that_is_filled_once_does_not_grow() {
        let filled = [40_000, 50_000, 54_000, 55_000, 55_300, 55_400, 55_500, 55_400];
        assert!(growth(&filled.map(|memory| usage(memory, 20))).is_empty());
    }

    #[test]
    fn a_peak_is_no_growth() {
        let peak = [
            usage(50_000, 20),
            usage(50_000, 20),
            usage(60_000, 40),
            usage(50_500, 20),
        ];
        assert!(growth(&peak).is_empty());
    }

    #[test]
    fn this_process_has_memory_files_and_threads() {
        let Usage {
            memory,
            files,
            threads,
            ..
        } = Usage::of(std::process::id(), 0).unwrap();
        assert!(memory > 0 && files > 0 && threads > 0);
    }
}
