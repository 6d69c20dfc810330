//! Questions that are being asked right now: whoever asks the same waits for the same answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cache::Entry;

/// Those who wait for the answer to one question.
type Followers = Vec<oneshot::Sender<Arc<Entry>>>;

/// All questions in flight, on all cores.
#[derive(Default)]
pub struct InFlight {
    waiting: Mutex<HashMap<Box<[u8]>, Followers>>,
}

/// What becomes of a caller.
pub enum Part {
    /// It asks, for all.
    Lead(Lead),
    /// It waits. An error means that the leader gave up without any answer.
    Follow(oneshot::Receiver<Arc<Entry>>),
}

/// The duty to answer all who wait; dropped without an answer it sends them away.
pub struct Lead {
    all: Arc<InFlight>,
    /// Nothing once it has answered: by then the same key may be another's.
    key: Option<Box<[u8]>>,
}

impl InFlight {
    /// Joins those who ask this.
    pub fn join(self: &Arc<Self>, key: &[u8]) -> Part {
        let mut waiting = self.waiting.lock();
        if let Some(others) = waiting.get_mut(key) {
            let (sender, receiver) = oneshot::channel();
            others.push(sender);
            return Part::Follow(receiver);
        }
        let key: Box<[u8]> = key.into();
        waiting.insert(key.clone(), Vec::new());
        Part::Lead(Lead {
            all: Arc::clone(self),
            key: Some(key),
        })
    }

    /// How many different questions are in flight.
    pub fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// None is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Lead {
    /// Hands the answer to all who wait.
    pub fn finish(mut self, entry: &Arc<Entry>) {
        for other in self.release() {
            let _ = other.send(Arc::clone(entry)); // a client that went away
        }
    }

    /// The question.
    pub fn key(&self) -> &[u8] {
        self.key.as_deref().unwrap_or_default()
    }

    fn release(&mut self) -> Followers {
        let key = self.key.take();
        key.and_then(|key| self.all.waiting.lock().remove(&key))
            .unwrap_or_default()
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        drop(self.release());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Rcode, kind, writer::ExtendedError};
    use std::pin::Pin;
    use std::task::{Context, Wake, Waker};

    /// Asks the same again at the moment at which its answer arrives.
    struct AsksAgain(Arc<InFlight>, Mutex<Option<Part>>);

    impl Wake for AsksAgain {
        fn wake(self: Arc<Self>) {
            *self.1.lock() = Some(self.0.join(b"a"));
        }
    }

    #[test]
    fn a_question_that_is_asked_anew_while_its_answer_is_handed_out_stays_in_flight() {
        let all = Arc::new(InFlight::default());
        let (Part::Lead(lead), Part::Follow(mut follower)) = (all.join(b"a"), all.join(b"a")) else {
            panic!("the first one leads, the second follows")
        };
        let again = Arc::new(AsksAgain(Arc::clone(&all), Mutex::default()));
        let waker = Waker::from(Arc::clone(&again));
        assert!(Future::poll(Pin::new(&mut follower), &mut Context::from_waker(&waker)).is_pending());
        let error = ExtendedError { code: 0, text: "" };
        lead.finish(&Arc::new(Entry::failure(
            b"\x01a\x00",
            kind::A,
            Rcode::SERVFAIL,
            error,
            0,
        )));
        assert!(matches!(*again.1.lock(), Some(Part::Lead(_))));
        assert_eq!(all.len(), 1, "the new question is in flight");
    }

    #[test]
    fn one_leads_the_others_follow_and_a_leader_that_gives_up_sends_them_away() {
        let all = Arc::new(InFlight::default());
        let Part::Lead(lead) = all.join(b"a") else {
            panic!("the first one leads")
        };
        let Part::Follow(mut follower) = all.join(b"a") else {
            panic!("the second one follows")
        };
        let Part::Lead(_other) = all.join(b"b") else {
            panic!("another question has its own leader")
        };
        assert_eq!(all.len(), 2);
        drop(lead);
        assert!(matches!(
            follower.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
        assert!(matches!(all.join(b"a"), Part::Lead(_)));
    }
}
