//! What a process has, and whether it grows.

use std::{fs, io};

/// More than this many KiB is growth: less is what an allocator keeps or gives back as it likes.
const MEMORY: f64 = 1024.0;

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
/// Memory fills up and settles, so it is judged by its slope: see [`leak`].
pub fn growth(rests: &[Usage]) -> Vec<String> {
    let (earlier, later) = rests.split_at(rests.len() / 2);
    let grows = |what: &str, pick: fn(&Usage) -> u64| {
        let (most, least) = (earlier.iter().map(pick).max()?, later.iter().map(pick).min()?);
        (least > most).then(|| format!("{what} grew from at most {most} to at least {least}"))
    };
    let memory: Vec<f64> = later.iter().map(|usage| usage.memory as f64).collect();
    [
        leak(&memory),
        grows("file descriptors", |usage| usage.files),
        grows("threads", |usage| usage.threads),
        grows("tasks", |usage| usage.tasks),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Memory in KiB that goes on growing: by more than an allocator may keep, and at its end not half as slowly as before.
/// What settles flattens.
fn leak(memory: &[f64]) -> Option<String> {
    let (before, end) = memory.split_at(memory.len() / 2);
    let grown = slope(memory) * memory.len() as f64;
    let flattens = slope(end) < slope(before) / 2.0;
    (grown > MEMORY && !flattens)
        .then(|| format!("memory grew by {grown:.0} KiB in the later half, and does not settle"))
}

/// By how much each value is more than the one before it: the median over all pairs (Theil and Sen), which a peak does not
/// move. Nothing for fewer than two.
fn slope(values: &[f64]) -> f64 {
    let indexed = || values.iter().enumerate();
    let pairs = indexed().flat_map(|(at, value)| {
        let later = indexed().skip(at + 1);
        later.map(move |(then, other)| (other - value) / (then - at) as f64)
    });
    let mut slopes: Vec<f64> = pairs.collect();
    slopes.sort_by(f64::total_cmp);
    let middle = slopes.len() / 2;
    match slopes.len() % 2 {
        _ if slopes.is_empty() => 0.0,
        0 => (slopes[middle - 1] + slopes[middle]) / 2.0,
        _ => slopes[middle],
    }
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
    }

    /// A run of which only the memory counts.
    fn run(memory: impl Iterator<Item = f64>) -> Vec<String> {
        growth(&memory.map(|memory| usage(memory as u64, 20)).collect::<Vec<_>>())
    }

    /// What an allocator keeps and gives back, as it likes.
    fn noise(rest: u32) -> f64 {
        f64::from(rest * 7919 % 401) - 200.0
    }

    #[test]
    fn memory_that_goes_on_growing_grows() {
        let leak = [50_000.0, 51_000.0, 57_000.0, 58_000.0];
        assert_eq!(
            run(leak.into_iter()),
            ["memory grew by 2000 KiB in the later half, and does not settle"]
        );
        let little = run((0..8).map(|rest| 50_000.0 + f64::from(rest) * 400.0));
        assert_eq!(
            little,
            ["memory grew by 1600 KiB in the later half, and does not settle"]
        );
    }

    #[test]
    fn a_leak_is_seen_behind_what_fills_up_and_what_comes_and_goes() {
        let filled = |rest: u32| 3_000.0 * (1.0 - (-f64::from(rest) / 8.0).exp());
        for leak in [100.0, 300.0] {
            let leaks = |rest: u32| 66_000.0 + filled(rest) + f64::from(rest) * leak + noise(rest);
            assert_eq!(run((0..40).map(leaks)).len(), 1, "{leak} KiB a rest");
        }
        assert!(run((0..40).map(|rest| 66_000.0 + filled(rest) + noise(rest))).is_empty());
    }

    #[test]
    fn memory_that_settles_late_does_not_grow() {
        // More than the limit in the later half, but ever less of it.
        let settles = |rest: u32| 60_000.0 + 9_000.0 * (1.0 - (-f64::from(rest) / 12.0).exp()) + noise(rest);
        assert!(settles(39) - settles(20) > 1_024.0);
        assert!(run((0..40).map(settles)).is_empty());
    }

    #[test]
    fn memory_that_is_filled_once_does_not_grow() {
        let filled = [
            40_000.0, 50_000.0, 54_000.0, 55_000.0, 55_300.0, 55_400.0, 55_500.0, 55_400.0,
        ];
        assert!(run(filled.into_iter()).is_empty());
    }

    #[test]
    fn a_peak_at_the_end_is_no_growth_of_memory() {
        let peak = |rest: u32| {
            if rest > 37 {
                60_000.0
            } else {
                50_000.0 + noise(rest)
            }
        };
        assert!(run((0..40).map(peak)).is_empty());
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
