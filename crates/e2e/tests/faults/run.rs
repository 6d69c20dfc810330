//! A fault, what of the traffic it cost, and the table of both.

use std::fmt::Write;
use std::time::{Duration, Instant};

use oooi_e2e::{Hosted, PATIENCE, Result, Seen, Traffic};
use oooi_testkit::{Node, until};

/// How long traffic is watched after a fault, beyond its recovery.
const SETTLE: Duration = Duration::from_secs(3);

/// What stands above the table in the documentation.
const PAGE: &str = "\
# Reliability

What was lost when something broke, as `make e2e` measured it on one machine with a real kubelet, API server, Multus and
kube-router. A worker of a hosted cluster stands on the VLAN and does all of this at once, about ten times a second:

| traffic | what it does |
|---|---|
| connections | opens a TLS connection by name, asks, closes; tries every address of the name |
| held | asks again and again on one connection that it keeps |
| watch | holds a watch on the hosted API server |
| bulk | reads a document of megabytes from the hosted API server again and again, on one connection |
| names | asks the resolvers that DHCP gave it |
| leases | renews its lease, and must keep its address |

A cell is empty where nothing was lost. Else it counts failed attempts, says the longest time from a failure to the next
success, and in parentheses the time that the test allows. A single replica is away while its pod is replaced. With two,
a client that tries the next address loses nothing but the connections of the pod that died; it opens those again at once.

";

/// A fault and the longest outage that each kind of traffic may have. What is not named loses nothing.
pub(crate) struct Fault {
    pub(crate) what: &'static str,
    pub(crate) allowed: &'static [(&'static str, u64)],
}

/// One run of all faults against one cluster.
pub(crate) struct Run<'a> {
    pub(crate) node: &'a Node,
    pub(crate) hosted: &'a Hosted<'a>,
    traffic: Vec<Traffic>,
    table: String,
    broken: Vec<String>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(node: &'a Node, hosted: &'a Hosted<'a>, traffic: Vec<Traffic>) -> Self {
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
    pub(crate) fn go_on_with(&mut self, traffic: Vec<Traffic>) {
        self.traffic = traffic;
    }

    /// Does something harmful, waits until all traffic is well again, and holds what was lost against the table.
    pub(crate) async fn fault(
        &mut self,
        what: &'static str,
        allowed: &'static [(&'static str, u64)],
        act: impl AsyncFnOnce(&Node, &Hosted<'_>) -> Result<()>,
    ) {
        self.well(what).await; // what is counted is this fault's
        let marks: Vec<u64> = self.traffic.iter().map(Traffic::mark).collect();
        let began = Instant::now();
        if let Err(error) = act(self.node, self.hosted).await {
            panic!("{what}: {error}");
        }
        self.well(what).await;
        self.count(&Fault { what, allowed }, &marks);
        println!("{what}: {:.1} s", began.elapsed().as_secs_f64());
    }

    /// Waits until nothing is lost for a while.
    async fn well(&self, what: &str) {
        until("traffic to be well for a while", PATIENCE, async || {
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
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    }

    fn count(&mut self, fault: &Fault, marks: &[u64]) {
        let what = fault.what;
        write!(self.table, "| {what} |").unwrap();
        for (one, mark) in self.traffic.iter().zip(marks) {
            let name = one.name();
            let allowed = fault.allowed.iter().find(|(kind, _)| *kind == name);
            let allowed = allowed.map_or(0, |(_, seconds)| *seconds);
            let Seen {
                attempts,
                failed,
                outage,
                reason,
                ..
            } = one.since(*mark);
            let outage = outage.as_secs_f64();
            if failed == 0 {
                write!(self.table, " |").unwrap();
                continue;
            }
            write!(self.table, " {failed} of {attempts}, {outage:.1} s ({allowed}) |").unwrap();
            if allowed == 0 || outage > allowed as f64 {
                self.broken.push(format!(
                    "{what}: {name} lost {failed} of {attempts} in {outage:.1} s ({reason})"
                ));
            }
        }
        writeln!(self.table).unwrap();
    }

    /// Ends the traffic, prints the table and writes it to the file that `RELIABILITY` names; what went beyond it.
    pub(crate) fn end(self) -> Vec<String> {
        println!("{}", self.table);
        if let Ok(path) = std::env::var("RELIABILITY") {
            std::fs::write(path, format!("{PAGE}{}", self.table)).unwrap();
        }
        self.broken
    }
}
