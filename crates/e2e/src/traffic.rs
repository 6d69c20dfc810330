//! Traffic from a tenant that goes on while something breaks, and what of it was lost.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
    process::{Child, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use oooi_testkit::{Error, Tenant};

use crate::{Hosted, Result};

const PROGRAM: &str = include_str!("../scene/traffic.py");

/// One kind of traffic, ten attempts a second. It ends when dropped.
pub struct Traffic {
    name: &'static str,
    log: PathBuf,
    child: Child,
}

/// The traffic of a worker: what a node and its users do all the time. `leasing` is a tenant without an address. Where
/// there are several gateways or resolvers, those that are `preferred` are tried first.
pub fn traffic(
    hosted: &Hosted<'_>,
    tenant: &Tenant,
    leasing: &Tenant,
    preferred: &[String],
) -> Result<Vec<Traffic>> {
    let ca = hosted.authority().certificate().to_string_lossy().into_owned();
    let user = hosted.authority().client("watcher", Some("system:masters"))?;
    let (certificate, key) = (user.certificate.to_string_lossy(), user.key.to_string_lossy());
    let (api, ignition, oauth) = (
        hosted.published("api"),
        hosted.published("ignition"),
        hosted.published("oauth"),
    );
    let as_user: [&str; 5] = [&api, "6443", &ca, &certificate, &key];
    let start = |tenant, kind, arguments: &[&str]| Traffic::start(tenant, kind, arguments, preferred);
    Ok(vec![
        start(tenant, "connections", &[&ignition, "443", &ca])?,
        start(tenant, "held", &[&oauth, "443", &ca])?,
        start(tenant, "watch", &as_user)?,
        start(tenant, "bulk", &as_user)?,
        start(tenant, "names", &[&api])?,
        start(leasing, "leases", &[])?,
    ])
}

/// What a time of traffic saw.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Seen {
    /// How often it was tried.
    pub attempts: usize,
    /// How often it failed.
    pub failed: usize,
    /// The longest time without a success, from the one before a failure to the one after it.
    pub outage: Duration,
    /// The longest time that an attempt took which succeeded, with the pause before it.
    pub slowest: Duration,
    /// The first failure in words.
    pub reason: String,
    /// Whether the last attempt succeeded.
    pub well: bool,
}

impl Traffic {
    /// Starts traffic of a kind in a tenant; `traffic.py` says which there are.
    fn start(tenant: &Tenant, kind: &'static str, arguments: &[&str], preferred: &[String]) -> Result<Self> {
        // The same may begin anew before it ended.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let log = std::env::temp_dir().join(format!("oooi-{kind}-{}-{count}", std::process::id()));
        let start = || -> io::Result<Child> {
            let mut command = tenant.command("python3");
            command.args(["-u", "-c", PROGRAM, kind]).args(arguments);
            command.env("PREFERRED", preferred.join(" "));
            let output = File::create(&log)?;
            command
                .stdin(Stdio::null())
                .stderr(output.try_clone()?)
                .stdout(output);
            oooi_testkit::spawn(command)
        };
        let child = start().map_err(|source| Error::Io {
            what: format!("cannot start traffic of the kind {kind}"),
            source,
        })?;
        Ok(Self {
            name: kind,
            log,
            child,
        })
    }

    /// Its kind.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The present moment, for [`Self::since`].
    pub fn mark(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |file| file.len())
    }

    /// What was seen since a moment.
    pub fn since(&self, mark: u64) -> Seen {
        let read = || -> io::Result<String> {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(mark))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        seen(&read().unwrap_or_else(|error| format!("0 {error}")))
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        // All three fail only for what is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

/// Counts the lines of a log.
fn seen(log: &str) -> Seen {
    let mut seen = Seen {
        well: true,
        ..Seen::default()
    };
    // When something succeeded last, and when the attempt before ended.
    let (mut success, mut before): (Option<f64>, Option<f64>) = (None, None);
    for line in log.lines() {
        let (time, said) = line.split_once(' ').unwrap_or(("", line));
        let time = time.parse().unwrap_or(before.unwrap_or_default());
        let since = |moment: Option<f64>| Duration::from_secs_f64((time - moment.unwrap_or(time)).max(0.0));
        // Where nothing succeeded yet, the first failure is the beginning.
        let was_well = seen.well;
        seen.attempts += 1;
        seen.well = said == "ok";
        if !seen.well {
            seen.failed += 1;
            success.get_or_insert(time);
            if seen.reason.is_empty() {
                seen.reason = said.to_owned();
            }
        } else if was_well {
            seen.slowest = seen.slowest.max(since(before));
        }
        if !(seen.well && was_well) {
            seen.outage = seen.outage.max(since(success));
        }
        if seen.well {
            success = Some(time);
        }
        before = Some(time);
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_success_before_it_to_the_next() {
        let seen = seen("1.0 ok\n2.0 refused\n2.5 reset\n3.25 ok\n4.0 ok\n5.0 reset\n5.5 ok\n");
        assert_eq!((seen.attempts, seen.failed), (7, 3));
        assert_eq!(seen.outage, Duration::from_millis(2250));
        assert_eq!(seen.reason, "refused");
        assert!(seen.well);
    }

    #[test]
    fn an_outage_that_goes_on_lasts_until_the_last_attempt() {
        let seen = seen("1.0 ok\n2.0 refused\n5.0 refused\n");
        assert_eq!((seen.outage, seen.well), (Duration::from_secs(4), false));
    }

    #[test]
    fn the_slowest_success_is_seen_and_an_outage_is_none() {
        let seen = seen("1.0 ok\n1.5 ok\n4.0 ok\n5.0 reset\n9.0 ok\n9.5 ok\n");
        assert_eq!(seen.slowest, Duration::from_millis(2500));
        assert_eq!(seen.outage, Duration::from_secs(5));
    }

    #[test]
    fn what_is_no_line_of_traffic_is_a_failure() {
        let seen = seen("1.0 ok\nTraceback\n");
        assert_eq!((seen.failed, seen.well), (1, false));
    }
}
