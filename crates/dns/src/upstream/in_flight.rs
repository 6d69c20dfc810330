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
    key: Box<[u8]>,
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
            key,
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
    pub fn finish(self, entry: &Arc<Entry>) {
        let others = self.all.waiting.lock().remove(&self.key).unwrap_or_default();
        for other in others {
            let _ = other.send(Arc::clone(entry)); // a client that went away
        }
    }

    /// The question.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.all.waiting.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
