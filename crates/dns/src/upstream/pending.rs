//! Questions that wait for their answer on one socket or connection.

use std::cell::RefCell;
use std::collections::HashMap;
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
            outcome,
            round_trip,
        });
    }
}

/// All questions that wait on one socket or connection, by their id.
#[derive(Default)]
pub(super) struct Pending {
    waiting: RefCell<HashMap<u16, Waiting>>,
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

    /// A late answer to a question that was given up is foreign as well, so a few are no sign.
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
        self.pending.waiting.borrow_mut().remove(&self.id);
    }
}
