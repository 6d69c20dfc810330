//! Asks Envoy's admin interface, which is on loopback: readiness, statistics, log level.

use std::net::SocketAddr;
use std::time::Duration;

use oooi_api::proxy_server::LogLevel;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bootstrap::level_name;

/// Envoy answers at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// Statistics of a thousand backends are about a megabyte.
const LONGEST: u64 = 64 << 20;

/// Why Envoy did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be reached.
    #[error("Envoy's admin interface at {address} does not answer: {source}")]
    Unreachable {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// It answered with another status than 200.
    #[error("Envoy's admin interface refused {path}: {status}")]
    Refused {
        /// What was asked.
        path: String,
        /// What it said.
        status: String,
    },
}

/// An Envoy's admin interface.
#[derive(Debug, Clone, Copy)]
pub struct Admin(pub SocketAddr);

impl Admin {
    /// Whether it serves: its first configuration is there.
    pub async fn is_ready(&self) -> bool {
        self.ask("GET", "/ready").await.is_ok()
    }

    /// All statistics in the Prometheus format.
    pub async fn statistics(&self) -> Result<String, Error> {
        self.ask("GET", "/stats/prometheus").await
    }

    /// Changes how much it logs, at once.
    pub async fn set_log_level(&self, level: LogLevel) -> Result<(), Error> {
        self.ask("POST", &format!("/logging?level={}", level_name(level)))
            .await
            .map(drop)
    }

    async fn ask(&self, method: &str, path: &str) -> Result<String, Error> {
        let unreachable = |source| Error::Unreachable {
            address: self.0,
            source,
        };
        let answer = match timeout(PATIENCE, self.exchange(method, path)).await {
            Ok(answer) => answer.map_err(unreachable)?,
            Err(_) => return Err(unreachable(std::io::ErrorKind::TimedOut.into())),
        };
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.lines().next().unwrap_or_default();
        if status.split(' ').nth(1) != Some("200") {
            return Err(Error::Refused {
                path: path.to_owned(),
                status: status.to_owned(),
            });
        }
        let chunked = head
            .lines()
            .any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
        Ok(if chunked {
            join_chunks(body)
        } else {
            body.to_owned()
        })
    }

    /// One request a connection: the answer ends with it.
    async fn exchange(&self, method: &str, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.0).await?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(LONGEST).read_to_end(&mut answer).await?;
        String::from_utf8(answer).map_err(std::io::Error::other)
    }
}

/// The body without the sizes between its chunks. What is cut short ends there.
fn join_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n")
        && let Ok(size) = usize::from_str_radix(size.trim(), 16)
        && size > 0
        && let Some((chunk, after)) = after.split_at_checked(size)
    {
        body.push_str(chunk);
        rest = after.strip_prefix("\r\n").unwrap_or(after);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_and_nonsense_ends_them() {
        assert_eq!(join_chunks("4\r\nWiki\r\n6\r\npedia \r\n0\r\n\r\n"), "Wikipedia ");
        let whole = "4\r\nWiki\r\na\r\npedia page\r\n0\r\n\r\n";
        for end in 0..whole.len() {
            assert!("Wikipedia page".starts_with(&join_chunks(&whole[..end])));
        }
        assert_eq!(join_chunks("zz\r\n"), "");
        assert_eq!(join_chunks("2\r\n\u{e9}\u{e9}"), "\u{e9}");
    }
}
