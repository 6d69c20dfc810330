//! A fault, what of the traffic it cost, and the table of both.

use std::time::{Duration, Instant};

use oooi_testkit::{Node, until};

use crate::{Hosted, PATIENCE, Result, Seen, Traffic, harm};

/// How long traffic is watched after a fault, beyond its recovery.
const SETTLE: Duration = Duration::from_secs(3);

/// From here on an answer is late, though it came.
const SLOW: Duration = Duration::from_secs(3);

/// The longest outage in seconds that each kind of traffic may have. What is not named loses nothing.
pub type Allowed = &'static [(&'static str, u64)];

/// How many seconds a pod may take to be replaced.
pub const REPLACED: u64 = 45;

/// What goes through a gateway whose pod is replaced.
pub const GATEWAY: Allowed = &[
    ("connections", REPLACED),
    ("held", REPLACED),
    ("watch", REPLACED),
    ("bulk", REPLACED),
];

/// What is away while each server's only pod is replaced.
pub const EVERYTHING: Allowed = &[
    ("connections", REPLACED),
    ("held", REPLACED),
    ("watch", REPLACED),
    ("bulk", REPLACED),
    ("names", REPLACED),
    ("leases", REPLACED),
];

/// Faults against one cluster, one after another, and the table of what they cost.
pub struct Run<'a> {
    node: &'a Node,
    hosted: &'a Hosted<'a>,
    traffic: Vec<Traffic>,
    table: String,
    broken: Vec<String>,
}

impl<'a> Run<'a> {
    /// A run that watches this traffic.
    pub fn new(node: &'a Node, hosted: &'a Hosted<'a>, traffic: Vec<Traffic>) -> Self {
        let names: Vec<&str> = traffic.iter().map(Traffic::name).collect();
        let table = format!(
            "| fault | {} |\n|---|{}\n",
            names.join(" | "),
            "---|".repeat(names.len())
        );
        Self {
            node,
            hosted,
            traffic,
            table,
            broken: Vec::new(),
        }
    }

    /// Goes on with the same kinds of traffic from elsewhere.
    pub fn go_on_with(&mut self, traffic: Vec<Traffic>) {
        self.traffic = traffic;
    }

    /// Does something harmful, waits until all traffic is well again, and holds what was lost against what is allowed.
    pub async fn fault(
        &mut self,
        what: &str,
        allowed: Allowed,
        act: impl AsyncFnOnce(&Node, &Hosted<'_>) -> Result<()>,
    ) -> Result<()> {
        self.well(what).await?; // what is counted is this fault's
        let marks: Vec<u64> = self.traffic.iter().map(Traffic::mark).collect();
        let began = Instant::now();
        act(self.node, self.hosted).await?;
        self.well(what).await?;
        let row = self.count(what, allowed, &marks);
        println!("{:.1} s: {row}", began.elapsed().as_secs_f64());
        self.table += &row;
        self.table.push('\n');
        Ok(())
    }

    /// Breaks what is around the servers: traffic through them goes on, but for new connections while a backend is replaced.
    pub async fn around_the_servers(&mut self, silent: Duration) -> Result<()> {
        let silence = format!("management API server silent for {} s", silent.as_secs());
        self.fault(&silence, &[], async |node, _| {
            harm::silence_the_api_server(node, silent).await
        })
        .await?;
        self.fault("every manager killed", &[], async |node, _| {
            harm::kill_managers(node).await
        })
        .await?;
        self.fault("a backend replaced", &[("connections", 2)], async |_, hosted| {
            harm::replace_backend(hosted).await
        })
        .await
    }

    /// Waits until nothing is lost for a while.
    async fn well(&self, what: &str) -> Result<()> {
        let waiting = format!("traffic to be well for a while ({what})");
        until(&waiting, PATIENCE, async || {
            let before: Vec<u64> = self.traffic.iter().map(Traffic::mark).collect();
            tokio::time::sleep(SETTLE).await;
            let ill: Vec<String> = self
                .traffic
                .iter()
                .zip(before)
                .map(|(one, mark)| (one.name(), one.since(mark)))
                .filter(|(_, seen)| seen.failed > 0 || seen.attempts == 0)
                .map(|(name, seen)| format!("{name}: {}", seen.reason))
                .collect();
            if ill.is_empty() {
                Ok(())
            } else {
                Err(ill.join("; "))
            }
        })
        .await
    }

    /// The row of a fault. What went beyond the allowed is kept for the end.
    fn count(&mut self, what: &str, allowed: Allowed, marks: &[u64]) -> String {
        let mut row = format!("| {what} |");
        for (one, mark) in self.traffic.iter().zip(marks) {
            let name = one.name();
            let limit = allowed.iter().find(|(kind, _)| *kind == name);
            let limit = limit.map_or(0, |(_, seconds)| *seconds);
            let Seen {
                attempts,
                failed,
                outage,
                slowest,
                reason,
                ..
            } = one.since(*mark);
            let outage = outage.as_secs_f64();
            if failed == 0 {
                row += &match slowest {
                    _ if slowest < SLOW => " |".to_owned(),
                    _ => format!(" late, {:.1} s |", slowest.as_secs_f64()),
                };
                continue;
            }
            row += &format!(" {failed} of {attempts}, {outage:.1} s ({limit}) |");
            if limit == 0 || outage > limit as f64 {
                self.broken.push(format!(
                    "{what}: {name} lost {failed} of {attempts} in {outage:.1} s ({reason})"
                ));
            }
        }
        row
    }

    /// Ends the traffic and prints the table: that table, and what went beyond the allowed.
    pub fn end(self) -> (String, Vec<String>) {
        println!("{}", self.table);
        (self.table, self.broken)
    }
}
