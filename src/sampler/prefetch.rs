//! What is made ahead: one producer for each stream, and an ordered, bounded hand-off.

#[cfg(all(test, shuttle))]
mod model;
#[cfg(all(test, shuttle))]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

// A model checker runs the hand-off in its tests, and has threads and locks of its own.
#[cfg(not(all(test, shuttle)))]
use {
    crossbeam_channel::{Receiver, Sender, TryRecvError, bounded},
    std::sync::{Condvar, Mutex, MutexGuard},
    std::thread::{Builder, JoinHandle},
};

#[cfg(all(test, shuttle))]
use {
    model::{Receiver, Sender, TryRecvError, bounded},
    shuttle::sync::{Condvar, Mutex, MutexGuard},
    shuttle::thread::{Builder, JoinHandle},
};

use crate::error::{Error, Result};
use crate::panics::words_of;
use crate::plan::Split;

/// Lets the other streams' producers wait for train's: a training run asks for train batches all the
/// time, and for others now and then.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether train has fewer batches ahead than it may have.
    train_is_behind: bool,
    /// Whether a consumer waits, for each split.
    is_awaited: [bool; 3],
    /// Whether the producer is to end, for each split.
    is_ending: [bool; 3],
    is_closed: bool,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Waits until it is this split's turn; false when there will be none.
    fn enter(&self, split: Split) -> bool {
        let ends = |state: &State| state.is_closed || state.is_ending[split as usize];
        let must_wait = |state: &mut State| {
            let others_first = split != Split::Train && state.train_is_behind;
            others_first && !state.is_awaited[split as usize] && !ends(state)
        };
        let state = self.changed.wait_while(self.state(), must_wait);
        !ends(&state.unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends all producers after the batch that they are at.
    pub(super) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}

/// A thread that makes what a stream consists of, some ahead of its consumer.
pub(super) struct Producer<T> {
    split: Split,
    gate: Arc<Gate>,
    /// None once the producer is to end.
    made: Option<Receiver<Result<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Producer<T> {
    /// Starts to call `make` for one after the other, at most `ahead` before they are asked for.
    pub(super) fn start(
        split: Split,
        ahead: usize,
        gate: Arc<Gate>,
        make: impl FnMut() -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let (send, made) = bounded(ahead);
        let name = format!("headwater-{}", split.name());
        let work = Work { split, gate: Arc::clone(&gate), send };
        let thread = Builder::new().name(name).spawn(move || work.run(make));
        let thread = thread.map_err(|e| Error::invalid(format!("starting a thread: {e}")))?;
        Ok(Self { split, gate, made: Some(made), thread: Some(thread) })
    }

    /// The next one; waits until it is made.
    pub(super) fn next(&self) -> Result<T> {
        let made = self.made.as_ref().ok_or_else(closed)?;
        let received = match made.try_recv() {
            Err(TryRecvError::Empty) => {
                let wait = |waits| {
                    move |state: &mut State| {
                        state.is_awaited[self.split as usize] = waits;
                    }
                };
                self.gate.change(wait(true));
                let received = made.recv();
                self.gate.change(wait(false));
                received.ok()
            }
            received => received.ok(),
        };
        // A producer that ends without a word was told to, or has told its error before.
        received.unwrap_or_else(|| Err(closed()))
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // Wakes the producer where it waits for room, or for train.
        self.made = None;
        self.gate.change(|state| state.is_ending[self.split as usize] = true);
        if let Some(thread) = self.thread.take() {
            // It has caught its panics itself.
            let _ = thread.join();
        }
        self.gate.change(|state| state.is_ending[self.split as usize] = false);
    }
}

pub(super) fn closed() -> Error {
    Error::shutdown(
        "the sampler was shut down, or ended with an error before this call; make a new one, and \
         resume it from a cursor",
    )
}

struct Work<T> {
    split: Split,
    gate: Arc<Gate>,
    send: Sender<Result<T>>,
}

impl<T> Work<T> {
    fn run(self, mut make: impl FnMut() -> Result<T>) {
        while self.gate.enter(self.split) {
            let made = catch_unwind(AssertUnwindSafe(&mut make));
            let made = made.unwrap_or_else(|panic| Err(panicked(&*panic)));
            let ends = made.is_err();
            if self.split == Split::Train {
                let is_behind = self.send.len() + 1 < self.send.capacity().unwrap_or(usize::MAX);
                self.gate.change(|state| state.train_is_behind = is_behind);
            }
            if self.send.send(made).is_err() || ends {
                break;
            }
        }
        if self.split == Split::Train {
            // Nobody waits for a train that has left.
            self.gate.change(|state| state.train_is_behind = false);
        }
    }
}

pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::invalid(format!(
        "making a batch failed in a way that it never should ({}); this is a fault in headwater: \
         please report it with the cursor of the last batch",
        words_of(panic)
    ))
}
