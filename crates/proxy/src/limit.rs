//! What one client, and all of them together, may take. No clock: `now` is handed in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The limits of a gateway.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at a time; further ones wait in the kernel's queue.
    pub connections: usize,
    /// Connections at a time from one address; further ones are reset.
    pub connections_per_client: u32,
    /// New connections a second; further ones wait.
    pub accepts_per_second: u32,
    /// The time that one attempt to connect to an endpoint may take.
    pub attempt_time: Duration,
    /// The time until the hello is complete.
    pub hello_time: Duration,
    /// The time that open connections get to end after a shutdown was asked for.
    pub drain_time: Duration,
    /// How long a UDP session may be silent.
    pub udp_idle: Duration,
}

/// File descriptors that are not for connections: listeners, epoll, logs, metrics, pooled pipes.
const RESERVED_DESCRIPTORS: u64 = 256;

impl Limits {
    /// What fits into this many file descriptors: two a connection. One client may take all but a sixteenth, so
    /// that it never locks the others out.
    pub fn for_descriptors(descriptors: u64) -> Self {
        let usable = descriptors
            .saturating_sub(RESERVED_DESCRIPTORS)
            .max(descriptors / 2);
        let connections = usize::try_from(usable / 2)
            .unwrap_or(usize::MAX)
            .clamp(1, 1 << 20);
        Self {
            connections,
            connections_per_client: u32::try_from(connections - connections / 16).unwrap_or(u32::MAX),
            accepts_per_second: 20_000,
            attempt_time: Duration::from_secs(5),
            hello_time: Duration::from_secs(10),
            drain_time: Duration::from_secs(30),
            udp_idle: Duration::from_secs(60),
        }
    }
}

/// A token bucket that holds a tenth of a second of its rate.
#[derive(Debug)]
pub struct Rate {
    per_second: f64,
    tokens: f64,
    last: Instant,
}

impl Rate {
    /// A full bucket.
    pub fn new(per_second: u32, now: Instant) -> Self {
        let per_second = f64::from(per_second.max(1));
        Self {
            per_second,
            tokens: (per_second / 10.0).max(1.0),
            last: now,
        }
    }

    /// Takes one token, or says how long to wait for it.
    pub fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = now;
        self.tokens = (self.tokens + passed * self.per_second).min((self.per_second / 10.0).max(1.0));
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }

    /// Gives a token back that was not needed.
    pub fn put_back(&mut self) {
        self.tokens += 1.0;
    }
}

/// Open connections by client. Holds only clients that have one.
#[derive(Debug, Default)]
pub struct Clients(HashMap<IpAddr, u32>);

impl Clients {
    /// Counts one more, unless the client has `limit` already.
    pub fn enter(&mut self, client: IpAddr, limit: u32) -> bool {
        let count = self.0.entry(client).or_default();
        let free = *count < limit;
        *count += u32::from(free);
        if *count == 0 {
            self.0.remove(&client);
        }
        free
    }

    /// Counts one less.
    pub fn leave(&mut self, client: IpAddr) {
        if let Some(count) = self.0.get_mut(&client) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_share_and_what_it_gives_back() {
        let mut clients = Clients::default();
        let (a, b) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        assert!(clients.enter(a, 2) && clients.enter(a, 2));
        assert!(!clients.enter(a, 2));
        assert!(clients.enter(b, 2));
        clients.leave(a);
        assert!(clients.enter(a, 2));
        for client in [a, a, b] {
            clients.leave(client);
        }
        assert!(!clients.enter(a, 0));
        assert!(clients.0.is_empty());
    }

    #[test]
    fn a_rate_lets_a_burst_through_and_then_its_rate() {
        let start = Instant::now();
        let mut rate = Rate::new(100, start);
        assert_eq!((0..20).filter(|_| rate.take(start).is_ok()).count(), 10);
        let wait = rate.take(start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(10));
        assert!(rate.take(start + wait).is_ok());
        assert!(rate.take(start + wait).is_err());
        let second = Duration::from_secs(1);
        let in_a_second = (0..1000)
            .filter(|i| rate.take(start + wait + second * *i / 1000).is_ok())
            .count();
        assert!((95..=105).contains(&in_a_second), "{in_a_second}");
    }

    #[test]
    fn two_descriptors_a_connection_and_no_client_takes_them_all() {
        let limits = Limits::for_descriptors(20_000);
        assert_eq!(limits.connections, 9872);
        assert!(
            limits.connections_per_client > 9000
                && (limits.connections_per_client as usize) < limits.connections
        );
        assert!(Limits::for_descriptors(1).connections >= 1);
        assert_eq!(Limits::for_descriptors(64).connections, 16);
    }
}
