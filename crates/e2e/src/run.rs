//! A fault, what of the traffic it cost, and the table of both.

use std::time::{Duration, Instant};

use oooi_testkit::{Node, Tenant, until};

use crate::{Hosted, PATIENCE, Result, Seen, Traffic, harm, page::Page, traffic};

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
    page: Page,
    /// The last fault, and what each kind of traffic saw of it.
    last: (String, Vec<(&'static str, Seen)>),
    broken: Vec<String>,
}

impl<'a> Run<'a> {
    /// A run that watches this traffic.
    pub fn new(node: &'a Node, hosted: &'a Hosted<'a>, traffic: Vec<Traffic>) -> Self {
        let page = Page::new(traffic.iter().map(Traffic::name));
        Self {
            node,
            hosted,
            traffic,
            page,
            last: Default::default(),
            broken: Vec::new(),
        }
    }

    /// Goes on with the same kinds of traffic of other machines, begun anew: of several gateways and resolvers it tries
    /// those on a node first.
    pub async fn go_on_through(&mut self, member: &str, tenant: &Tenant, leasing: &Tenant) -> Result<()> {
        let mut preferred = Vec::new();
        for server in ["proxy", "dns"] {
            preferred.push(harm::address_on(self.node, self.hosted, server, member).await?);
        }
        self.traffic = traffic(self.hosted, tenant, leasing, &preferred)?;
        Ok(())
    }

    /// Does something harmful, waits until all traffic is well again, and holds what was lost against what is allowed.
    pub async fn fault(
        &mut self,
        what: &str,
        allowed: Allowed,
        act: impl AsyncFnOnce(&Node, &Hosted<'_>) -> Result<()>,
    ) -> Result<()> {
        self.well(what).await?; // what is counted is this fault's
        let marks = self.marks();
        let began = Instant::now();
        act(self.node, self.hosted).await?;
        self.well(what).await?;
        let row = self.count(what, allowed, &marks);
        println!("{:.1} s: {row}", began.elapsed().as_secs_f64());
        self.page.add(&row);
        Ok(())
    }

    /// Holds it against the run if none of these kinds of traffic saw this of the last fault: none went through what
    /// broke, and that nothing of it was lost would say nothing. One of several may have gone elsewhere, as a client does
    /// that is not answered in time.
    pub fn must_have_seen(&mut self, kinds: &[&str], cost: impl Fn(&Seen) -> bool) {
        let (what, seen) = &self.last;
        if !seen.iter().any(|(name, seen)| kinds.contains(name) && cost(seen)) {
            self.broken
                .push(format!("{what}: no {} went through it", kinds.join(" or ")));
        }
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

    /// Waits until nothing is lost for a while, in which everything was tried.
    async fn well(&self, what: &str) -> Result<()> {
        let waiting = format!("traffic to be well for a while ({what})");
        let (mut began, mut marks) = (Instant::now(), self.marks());
        until(&waiting, PATIENCE, async || {
            let seen = self.since(&marks);
            let mut ill = seen.iter().filter(|(_, seen)| seen.failed > 0).peekable();
            if ill.peek().is_some() {
                (began, marks) = (Instant::now(), self.marks());
                let ill = ill.map(|(name, seen)| format!("{name}: {}", seen.reason));
                return Err(ill.collect::<Vec<_>>().join("; "));
            }
            match seen.iter().find(|(_, seen)| seen.attempts == 0) {
                Some((name, _)) => Err(format!("{name}: no attempt ended")),
                None if began.elapsed() < SETTLE => Err("nothing was lost for a moment".to_owned()),
                None => Ok(()),
            }
        })
        .await
    }

    fn marks(&self) -> Vec<u64> {
        self.traffic.iter().map(Traffic::mark).collect()
    }

    /// What each kind of traffic saw since these moments.
    fn since(&self, marks: &[u64]) -> Vec<(&'static str, Seen)> {
        let each = self.traffic.iter().zip(marks);
        each.map(|(one, mark)| (one.name(), one.since(*mark))).collect()
    }

    /// The row of a fault. What went beyond the allowed is kept for the end.
    fn count(&mut self, what: &str, allowed: Allowed, marks: &[u64]) -> String {
        let mut row = format!("| {what} |");
        self.last = (what.to_owned(), self.since(marks));
        for (name, seen) in &self.last.1 {
            let limit = allowed.iter().find(|(kind, _)| kind == name);
            let limit = limit.map_or(0, |(_, seconds)| *seconds);
            let Seen {
                attempts,
                failed,
                outage,
                slowest,
                reason,
                ..
            } = seen;
            let outage = outage.as_secs_f64();
            if *failed == 0 {
                row += &match slowest {
                    _ if *slowest < SLOW => " |".to_owned(),
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

    /// Ends the traffic and prints the table: the page of it, and what went beyond the allowed.
    pub fn end(self) -> (String, Vec<String>) {
        let whole = self.node.age();
        println!("{}\n{} s since the node began", self.page.table, whole.as_secs());
        (self.page.end(whole), self.broken)
    }
}
