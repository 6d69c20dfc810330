//! Questions that wait for their answer on one socket or connection.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::wire::reply::{Asked, Mismatch, Reply};

/// What came of one question to one upstream.
pub(super) struct Event {
    /// The number of the upstream in its group.
    pub(super) member: usize,
    /// It went over a connection, where nothing is cut and nobody guesses.
    pub(super) by_stream: bool,
    /// It was asked with EDNS.
    pub(super) edns: bool,
    /// The answer, or why there is none.
    pub(super) outcome: Result<Reply, Trouble>,
    /// Since it was sent.
    pub(super) round_trip: Duration,
}

/// Why an upstream gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It said something that cannot be used.
    Mismatch(Mismatch),
    /// It could not be reached, or closed.
    Unreachable,
    /// Many answers with wrong ids came: somebody is guessing.
    Guessing,
}

/// So many foreign answers on one socket look like somebody who guesses ids: the question moves to TCP.
const GUESSES: u32 = 16;

pub(super) struct Waiting {
    pub(super) asked: Asked,
    pub(super) edns: bool,
    pub(super) cap: u32,
    pub(super) member: usize,
    pub(super) reply_to: UnboundedSender<Event>,
    pub(super) sent: Instant,
}

impl Waiting {
    fn resolve(self, outcome: Result<Reply, Trouble>) {
        let round_trip = self.sent.elapsed();
        // Nobody listens any more where another upstream was faster.
        let by_stream = !self.asked.spelling;
        let _ = self.reply_to.send(Event {
            member: self.member,
            by_stream,
            edns: self.edns,
            outcome,
            round_trip,
        });
    }
}

/// All questions that wait on one socket or connection, by their id.
#[derive(Default)]
pub(super) struct Pending {
    waiting: RefCell<HashMap<u16, Waiting>>,
    /// Ids of questions that were given up: their answers come late and are no guesses.
    late: RefCell<HashSet<u16>>,
    foreign: RefCell<u32>,
}

impl Pending {
    /// Adds a question; gives it back where its id is taken.
    pub(super) fn add(self: &Rc<Self>, waiting: Waiting) -> Result<Ticket, Waiting> {
        let id = waiting.asked.id;
        let mut all = self.waiting.borrow_mut();
        if all.contains_key(&id) {
            return Err(waiting);
        }
        all.insert(id, waiting);
        self.late.borrow_mut().remove(&id);
        Ok(Ticket {
            pending: Rc::clone(self),
            id,
        })
    }

    /// Hands a message to the question that it answers. What answers none is dropped.
    pub(super) fn deliver(&self, message: &[u8]) {
        let Some(&[high, low]) = message.first_chunk::<2>() else {
            return;
        };
        let id = u16::from_be_bytes([high, low]);
        let mut all = self.waiting.borrow_mut();
        let outcome = all
            .get(&id)
            .map(|waiting| Reply::read(message, &waiting.asked, waiting.cap));
        let outcome = match outcome {
            None if self.late.borrow_mut().remove(&id) => return,
            None | Some(Err(Mismatch::Foreign)) => {
                drop(all);
                self.count_foreign();
                return;
            }
            Some(outcome) => outcome.map_err(Trouble::Mismatch),
        };
        let waiting = all.remove(&id);
        drop(all);
        if let Some(waiting) = waiting {
            waiting.resolve(outcome);
        }
    }

    /// A second answer to the same question is foreign as well, so a few are no sign.
    fn count_foreign(&self) {
        let mut foreign = self.foreign.borrow_mut();
        *foreign += 1;
        if *foreign >= GUESSES {
            *foreign = 0;
            drop(foreign);
            self.fail_all(Trouble::Guessing);
        }
    }

    /// No answer will come here any more.
    pub(super) fn fail_all(&self, trouble: Trouble) {
        let all = std::mem::take(&mut *self.waiting.borrow_mut());
        for (_, waiting) in all {
            waiting.resolve(Err(trouble));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }
}

/// Keeps a question waiting; when it is dropped the id is free again.
pub(super) struct Ticket {
    pending: Rc<Pending>,
    id: u16,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.pending.waiting.borrow_mut().remove(&self.id).is_some() {
            self.pending.late.borrow_mut().insert(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::kind;
    use tokio::sync::mpsc::unbounded_channel;

    fn waiting(id: u16, reply_to: &UnboundedSender<Event>) -> Waiting {
        Waiting {
            asked: Asked {
                id,
                name: b"\x01a\x00"[..].into(),
                kind: kind::A,
                dnssec_ok: false,
                spelling: true,
            },
            edns: false,
            cap: 60,
            member: 0,
            reply_to: reply_to.clone(),
            sent: Instant::now(),
        }
    }

    #[test]
    fn late_answers_to_questions_that_were_given_up_are_no_guesses_and_strange_ids_are() {
        let pending = Rc::new(Pending::default());
        let (reply_to, mut replies) = unbounded_channel();
        let _held = pending.add(waiting(7, &reply_to)).ok().unwrap();
        for id in 100..140u16 {
            drop(pending.add(waiting(id, &reply_to)).ok().unwrap());
        }
        for id in 100..140u16 {
            pending.deliver(&id.to_be_bytes());
        }
        assert!(replies.try_recv().is_err(), "late answers look like guesses");
        for id in 100..116u16 {
            pending.deliver(&id.to_be_bytes());
        }
        let event = replies.try_recv().unwrap();
        assert!(
            matches!(event.outcome, Err(Trouble::Guessing)),
            "each is late but once"
        );
    }
}
