//! What a run of faults measured, for the documentation.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// What stands above the table.
const HEAD: &str = include_str!("../scene/reliability.md");

/// The page while it is written.
pub(crate) struct Page {
    began: Instant,
    pub(crate) table: String,
    /// The load of the machine, a minute each, before the run and after every fault.
    loads: Vec<f64>,
}

impl Page {
    /// A page without a row, for these kinds of traffic.
    pub(crate) fn new(kinds: impl Iterator<Item = &'static str>) -> Self {
        let kinds: Vec<&str> = kinds.collect();
        Self {
            began: Instant::now(),
            table: format!(
                "| fault | {} |\n|---|{}\n",
                kinds.join(" | "),
                "---|".repeat(kinds.len())
            ),
            loads: vec![load()],
        }
    }

    /// Adds the row of a fault.
    pub(crate) fn add(&mut self, row: &str) {
        self.table += row;
        self.table.push('\n');
        self.loads.push(load());
    }

    /// The whole page: the machine, how busy it was, how long all of it took, and the table. `whole` is the time of the
    /// run with all that was before the faults.
    pub(crate) fn end(self, whole: Duration) -> String {
        let minutes = |time: Duration| time.as_secs().div_ceil(60).to_string();
        let least = self.loads.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.loads.iter().copied().fold(0.0, f64::max);
        let head = HEAD
            .replace("MACHINE", &machine())
            .replace("LEAST", &format!("{least:.1}"))
            .replace("MOST", &format!("{most:.1}"))
            .replace("MINUTES", &minutes(self.began.elapsed()))
            .replace("WHOLE", &minutes(whole));
        head + &self.table
    }
}

/// How many processes ran or wanted to, on average over the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// The machine in a few words.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let model = field(&read("/proc/cpuinfo"), "model name");
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let memory = memory.trim_end_matches(" kB").parse().unwrap_or(0_u64) / (1 << 20);
    let kernel = read("/proc/sys/kernel/osrelease");
    let kernel = kernel.trim();
    format!("{cores} cores ({model}), {memory} GiB of memory, Linux {kernel}")
}
