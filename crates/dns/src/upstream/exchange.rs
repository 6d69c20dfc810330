//! One question to one group of upstreams.
//!
//! The members are asked in order. When the patience with one runs out the next is asked as well, and the
//! earlier ones may still answer: the first good answer wins. When all have been asked, their answers are
//! awaited for as long as the client waits: a name may be slow where its upstream is not. A refusal or a
//! failure moves on at once and is only passed to the client if nobody does better. Truncated answers,
//! strange spellings and signs of guessing move the question to TCP.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

use super::health::Change;
use super::pending::{Event, Trouble};
use super::transport::{Ask, By, Held, Transport};
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
    let (reply_to, replies) = unbounded_channel();
    let mut asking = Asking {
        transport,
        group,
        ask,
        clock,
        notice,
        deadline: Instant::now() + BUDGET,
        reply_to,
        replies,
        held: Vec::new(),
        awaited: 0,
        marks: vec![Marks::default(); group.members.len()],
        fallback: None,
    };
    let answer = asking.run(order.iter().copied().cycle().take(attempts)).await;
    asking.count_silence();
    answer.or(asking.fallback).ok_or(NoAnswer::Silence)
}

/// One question while it is asked.
struct Asking<'a> {
    transport: &'a Transport,
    group: &'a Group,
    ask: &'a Ask,
    clock: &'a Clock,
    notice: &'a dyn Notice,
    deadline: Instant,
    reply_to: UnboundedSender<Event>,
    replies: UnboundedReceiver<Event>,
    /// Keeps all that was asked waiting for its answer.
    held: Vec<Held>,
    /// Questions of which nothing has come yet.
    awaited: usize,
    /// What is known of each member from this question.
    marks: Vec<Marks>,
    fallback: Option<Reply>,
}

/// What one question has shown of one member.
#[derive(Clone, Copy, Default)]
struct Marks {
    /// The patience with it ran out, and it has said nothing since.
    silent: bool,
    /// It counts as failed already: one question is one failure, however often it was asked.
    failed: bool,
    /// It answered with a code that others may do better than.
    refused: bool,
    /// It stumbled over EDNS.
    stumbled: bool,
}

impl Asking<'_> {
    async fn run(&mut self, order: impl Iterator<Item = usize>) -> Option<Reply> {
        for at in order {
            if Instant::now() >= self.deadline {
                return None;
            }
            let by = By::usual(&self.group.members[at].target);
            if self.marks[at].refused || !self.send(at, by) {
                continue;
            }
            if let Some(reply) = self.listen(self.patience(at, by), Some(at)).await {
                return Some(reply);
            }
        }
        // What came already is worth more than the wait for those who were silent so far.
        if self.fallback.is_some() {
            return None;
        }
        self.listen(self.deadline, None).await
    }

    /// Asks a member; false where that is not possible.
    fn send(&mut self, at: usize, by: By) -> bool {
        let member = &*self.group.members[at];
        let edns = !self.marks[at].stumbled && member.takes_edns(self.clock.millis());
        match self
            .transport
            .ask((at, member), self.ask, (by, edns), &self.reply_to)
        {
            Ok(held) => {
                self.held.push(held);
                self.awaited += 1;
                true
            }
            Err(_) => {
                self.fail(at);
                false
            }
        }
    }

    /// Listens until there is an answer, until the time is over, until `asked` has none to give, or until
    /// nobody is left to wait for.
    async fn listen(&mut self, mut until: Instant, asked: Option<usize>) -> Option<Reply> {
        while self.awaited > 0 {
            let Ok(Some(event)) = timeout_at(until, self.replies.recv()).await else {
                asked.into_iter().for_each(|at| self.marks[at].silent = true);
                return None;
            };
            self.awaited -= 1;
            let at = event.member;
            self.marks[at].silent = false;
            match self.judge(event) {
                Verdict::Answer(reply) => return Some(reply),
                Verdict::Again(by) if self.send(at, by) => {
                    if asked.is_some() {
                        until = self.patience(at, by);
                    }
                    continue;
                }
                Verdict::Again(_) => {}
                Verdict::Refusal(reply) => {
                    self.fallback.get_or_insert(reply);
                    self.marks[at].refused = true;
                }
                Verdict::Failure => self.fail(at),
            }
            if asked == Some(at) {
                return None;
            }
        }
        None
    }

    /// Until when to wait for this member alone.
    fn patience(&self, at: usize, by: By) -> Instant {
        let patience = self.group.members[at].health.patience();
        let patience = match by {
            By::Datagram => patience,
            By::Stream => patience * 2, // a connection may have to come up first
        };
        (Instant::now() + patience).min(self.deadline)
    }

    fn judge(&mut self, event: Event) -> Verdict {
        let member = &*self.group.members[event.member];
        let marks = &mut self.marks[event.member];
        let answered = || {
            self.notice.changed(member, member.answered(event.round_trip));
        };
        match event.outcome {
            Ok(reply) => {
                answered();
                let stumbles = matches!(reply.rcode, Rcode::FORMERR | Rcode::NOTIMP);
                // A server from before EDNS stumbles over OPT and sends none (RFC 6891, 7).
                if stumbles && event.edns && !reply.edns && !marks.stumbled {
                    marks.stumbled = true;
                    return Verdict::Again(By::usual(&member.target));
                }
                if marks.stumbled && !event.edns && !stumbles {
                    member.leave_edns_out(self.clock.millis());
                }
                match reply.rcode {
                    Rcode::NOERROR | Rcode::NXDOMAIN => Verdict::Answer(reply),
                    _ => Verdict::Refusal(reply),
                }
            }
            Err(Trouble::Mismatch(Mismatch::Truncated | Mismatch::Spelling)) if !event.by_stream => {
                answered();
                Verdict::Again(By::Stream)
            }
            Err(Trouble::Guessing) if !event.by_stream => Verdict::Again(By::Stream),
            Err(_) => Verdict::Failure,
        }
    }

    /// Counts a failure of this member, once.
    fn fail(&mut self, at: usize) {
        if !std::mem::replace(&mut self.marks[at].failed, true) {
            let member = &*self.group.members[at];
            self.notice.changed(member, member.failed(self.clock.millis()));
        }
    }

    /// Counts those who have let their time pass. Only now: one that is late has not failed.
    fn count_silence(&mut self) {
        for at in 0..self.marks.len() {
            if self.marks[at].silent {
                self.fail(at);
            }
        }
    }
}

enum Verdict {
    Answer(Reply),
    /// Ask the same one again in this way.
    Again(By),
    /// It answered, with a code that another upstream may do better than.
    Refusal(Reply),
    /// It did not answer.
    Failure,
}
