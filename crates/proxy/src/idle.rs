//! Ends connections that were silent for too long, without a timer for each of them.
//!
//! Each thread keeps its connections in a slab: 32 bytes each. A relay that moves bytes marks its slot; now and
//! then a sweep ages the slots that were not marked and aborts those that are too old. So a busy connection pays
//! for one store, and a silent one for nothing.

use std::cell::RefCell;
use std::time::Duration;

use tokio::task::AbortHandle;

thread_local! {
    static CONNECTIONS: RefCell<Slab> = RefCell::default();
}

#[derive(Default)]
struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    task: Option<AbortHandle>,
    /// Counts only while bytes are relayed: the phases before have deadlines of their own.
    relaying: bool,
    active: bool,
    silent: Duration,
}

/// A connection's place in its thread's slab; freed when dropped. Must stay on its thread.
#[derive(Debug)]
pub(crate) struct Place(u32);

impl Place {
    /// A place in this thread's slab.
    pub(crate) fn take() -> Self {
        CONNECTIONS.with_borrow_mut(|slab| {
            let index = slab.free.pop().unwrap_or_else(|| {
                slab.slots.push(Slot::default());
                u32::try_from(slab.slots.len() - 1).unwrap_or(u32::MAX)
            });
            Self(index)
        })
    }

    /// The slab's index, to name the task once it is spawned.
    pub(crate) fn index(&self) -> u32 {
        self.0
    }

    /// From now on silence counts.
    pub(crate) fn start(&self) {
        self.with(|slot| (slot.relaying, slot.active) = (true, true));
    }

    /// Bytes moved.
    pub(crate) fn mark(&self) {
        self.with(|slot| slot.active = true);
    }

    fn with(&self, change: impl FnOnce(&mut Slot)) {
        CONNECTIONS.with_borrow_mut(|slab| {
            if let Some(slot) = slab.slots.get_mut(self.0 as usize) {
                change(slot);
            }
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The task's handle is dropped outside the borrow: it may be the last reference to the task.
        let _ = CONNECTIONS.try_with(|slab| {
            let mut slab = slab.borrow_mut();
            let slot = slab.slots.get_mut(self.0 as usize).map(std::mem::take);
            slab.free.push(self.0);
            drop(slab);
            drop(slot);
        });
    }
}

/// Names the task of a place. It is called before the task first runs.
pub(crate) fn name_task(index: u32, task: AbortHandle) {
    CONNECTIONS.with_borrow_mut(|slab| {
        if let Some(slot) = slab.slots.get_mut(index as usize) {
            slot.task = Some(task);
        }
    });
}

/// Open connections of this thread.
pub(crate) fn count() -> usize {
    CONNECTIONS.with_borrow(|slab| slab.slots.len() - slab.free.len())
}

/// Ages every silent connection by `passed`, and ends those that were silent for `limit`. Returns how many.
pub(crate) fn sweep(passed: Duration, limit: Duration) -> usize {
    let aged = CONNECTIONS.with_borrow_mut(|slab| {
        let mut aged = Vec::new();
        for slot in slab.slots.iter_mut().filter(|slot| slot.relaying) {
            slot.silent = if std::mem::take(&mut slot.active) {
                Duration::ZERO
            } else {
                slot.silent + passed
            };
            if slot.silent >= limit
                && let Some(task) = slot.task.take()
            {
                aged.push(task);
            }
        }
        aged
    });
    aged.iter().for_each(AbortHandle::abort);
    aged.len()
}

/// How often to sweep: a silent connection ends at most a sixteenth late.
pub(crate) fn period(limit: Duration) -> Duration {
    (limit / 16).clamp(Duration::from_millis(50), Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_silent_relays_are_ended_and_places_are_used_again() {
        let second = Duration::from_secs(1);
        let task = || tokio::spawn(std::future::pending::<()>());
        let (setup, quiet, busy) = (Place::take(), Place::take(), Place::take());
        let tasks = [task(), task(), task()];
        for (place, task) in [&setup, &quiet, &busy].into_iter().zip(&tasks) {
            name_task(place.index(), task.abort_handle());
        }
        quiet.start();
        busy.start();
        let mut ended = 0;
        for _ in 0..4 {
            busy.mark();
            ended += sweep(second, 3 * second);
        }
        assert_eq!(ended, 1);
        assert_eq!(sweep(second, 3 * second), 0, "none is ended twice");
        let [setup_task, quiet_task, busy_task] = tasks;
        assert!(quiet_task.await.unwrap_err().is_cancelled());
        assert!(!setup_task.is_finished() && !busy_task.is_finished());
        assert_eq!(count(), 3);
        let index = quiet.index();
        drop(quiet);
        assert_eq!(Place::take().index(), index);
    }
}
