//! One question to one group of upstreams.
//!
//! The members are asked in order. When one's patience runs out the next is asked as well, and the earlier
//! ones may still answer: the first good answer wins. A refusal or a failure moves on at once and is only
//! passed to the client if nobody does better. Truncated answers, strange spellings and signs of guessing
//! move the question to TCP.

use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, timeout_at};

use super::health::Change;
use super::pending::{Event, Trouble};
use super::transport::{Ask, By, Transport};
use super::{Group, Member};
use crate::clock::Clock;
use crate::wire::Rcode;
use crate::wire::name::Name;
use crate::wire::reply::{Mismatch, Reply};

/// All attempts together: below the five seconds after which a client asks again or gives up.
const BUDGET: Duration = Duration::from_millis(4500);
/// A lone upstream is asked so often before it is given up: datagrams get lost.
const LEAST_ATTEMPTS: usize = 3;
/// The most questions to upstreams for one of a client.
const MOST_ATTEMPTS: usize = 6;

/// Why no upstream gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// There is nobody to ask: `system` has no resolver, or every upstream asks us in turn.
    #[error("there is no upstream to ask")]
    Nobody,
    /// Nobody answered in time.
    #[error("no upstream answered in time")]
    Silence,
}

/// Told of upstreams that are lost, back, or in a loop with us.
pub trait Notice {
    /// `member` is lost or back.
    fn changed(&self, member: &Member, change: Change);
    /// `member` sends our questions for `zone` back to us, or has ceased to.
    fn looped(&self, member: &Member, zone: &Name, looped: bool);
}

/// Asks.
pub async fn exchange(
    transport: &Transport,
    group: &Group,
    ask: &Ask,
    clock: &Clock,
    notice: &dyn Notice,
) -> Result<Reply, NoAnswer> {
    let order = group.order(&ask.name);
    if order.is_empty() {
        return Err(NoAnswer::Nobody);
    }
    let attempts = (2 * order.len())
        .clamp(LEAST_ATTEMPTS, MOST_ATTEMPTS)
        .max(order.len());
    let deadline = Instant::now() + BUDGET;
    let (reply_to, mut replies) = unbounded_channel();
    let mut held = Vec::new();
    let mut refused: Vec<usize> = Vec::new();
    let mut fallback = None;
    let failed = |member: &Member| notice.changed(member, member.failed(clock.millis()));

    for &at in order.iter().cycle().take(attempts) {
        if refused.contains(&at) {
            continue;
        }
        let member = &*group.members[at];
        let by = By::usual(&member.target);
        match transport.ask((at, member), ask, by, &reply_to) {
            Ok(ticket) => held.push(ticket),
            Err(_) => {
                failed(member);
                continue;
            }
        }
        let mut patience = (Instant::now() + patience(member, by)).min(deadline);
        loop {
            let Ok(Some(event)) = timeout_at(patience, replies.recv()).await else {
                failed(member);
                break;
            };
            let from = &*group.members[event.member];
            let own = event.member == at;
            match judge(event, from, notice) {
                Verdict::Answer(reply) => return Ok(reply),
                Verdict::Again(by, member_at) => {
                    match transport.ask((member_at, from), ask, by, &reply_to) {
                        Ok(ticket) => held.push(ticket),
                        Err(_) if own => break,
                        Err(_) => continue,
                    }
                    patience = (Instant::now() + self::patience(from, by)).min(deadline);
                }
                Verdict::Refusal(reply, member_at) => {
                    fallback.get_or_insert(reply);
                    refused.push(member_at);
                    if own {
                        break;
                    }
                }
                Verdict::Failure => {
                    failed(from);
                    if own {
                        break;
                    }
                }
            }
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    fallback.ok_or(NoAnswer::Silence)
}

fn patience(member: &Member, by: By) -> Duration {
    match by {
        By::Datagram => member.health.patience(),
        By::Stream => member.health.patience() * 2, // a connection may have to come up first
    }
}

enum Verdict {
    Answer(Reply),
    /// Ask the same one again in this way.
    Again(By, usize),
    /// It answered, with a code that another upstream may do better than.
    Refusal(Reply, usize),
    /// It did not answer.
    Failure,
}

fn judge(event: Event, member: &Member, notice: &dyn Notice) -> Verdict {
    let answered = |member: &Member| notice.changed(member, member.answered(event.round_trip));
    match event.outcome {
        Ok(reply) => {
            answered(member);
            match reply.rcode {
                Rcode::NOERROR | Rcode::NXDOMAIN => Verdict::Answer(reply),
                // A server from before EDNS stumbles over OPT and sends none (RFC 6891, 7).
                Rcode::FORMERR | Rcode::NOTIMP
                    if !reply.edns && !member.plain_dns.swap(true, std::sync::atomic::Ordering::Relaxed) =>
                {
                    Verdict::Again(By::usual(&member.target), event.member)
                }
                _ => Verdict::Refusal(reply, event.member),
            }
        }
        Err(Trouble::Mismatch(Mismatch::Truncated | Mismatch::Spelling)) if !event.by_stream => {
            answered(member);
            Verdict::Again(By::Stream, event.member)
        }
        Err(Trouble::Guessing) if !event.by_stream => Verdict::Again(By::Stream, event.member),
        Err(_) => Verdict::Failure,
    }
}
