//! One producer thread for each stream: sends items in order and waits while its queue is full.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

// In its tests a model checker runs the hand-off, with threads and locks of its own.
#[cfg(not(all(test, shuttle)))]
use {
    crossbeam_channel::{Receiver, Sender, TryRecvError, bounded},
    std::sync::{Condvar, Mutex, MutexGuard},
    std::thread::{Builder, JoinHandle},
};

#[cfg(all(test, shuttle))]
use {
    super::model::{Receiver, Sender, TryRecvError, bounded},
    shuttle::sync::{Condvar, Mutex, MutexGuard},
    shuttle::thread::{Builder, JoinHandle},
};

use super::in_flight::panicked;
use crate::environment::in_default_environment;
use crate::error::{Error, Result};

/// The number of streams that share a gate.
const STREAM_COUNT: usize = 3;

/// The stream that the others yield to.
const FIRST: usize = 0;

/// Makes the other streams' producers wait for the first stream's: a training run requests train
/// batches all the time, and others now and then.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether the first stream has fewer items ahead than allowed.
    first_is_behind: bool,
    /// Whether a consumer waits, for each stream.
    is_awaited: [bool; STREAM_COUNT],
    /// Whether the producer must end, for each stream.
    is_ending: [bool; STREAM_COUNT],
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

    /// Waits until `stream` may make its next item; false when its producer must end.
    fn enter(&self, stream: usize) -> bool {
        let ends = |state: &State| state.is_closed || state.is_ending[stream];
        let must_wait = |state: &mut State| {
            let yields = stream != FIRST && state.first_is_behind;
            yields && !state.is_awaited[stream] && !ends(state)
        };
        let state = self.changed.wait_while(self.state(), must_wait);
        !ends(&state.unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the state in which the first stream's consumer has taken all items made ahead.
    #[cfg(all(test, shuttle))]
    pub(super) fn put_first_behind(&self) {
        self.change(|state| state.first_is_behind = true);
    }

    /// Ends all producers after their current items.
    pub(crate) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}

/// A thread that makes the items of a stream ahead of its consumer.
pub(crate) struct Producer<T> {
    stream: usize,
    gate: Arc<Gate>,
    /// None once the producer must end.
    made: Option<Receiver<Result<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Producer<T> {
    /// Starts a thread, named after `name`, that calls `make` repeatedly, at most `ahead` items before
    /// the consumer takes them.
    pub(crate) fn start(
        stream: usize,
        name: &str,
        ahead: usize,
        gate: Arc<Gate>,
        make: impl FnMut() -> Result<T> + Send + 'static,
    ) -> Result<Self> {
        let (send, made) = bounded(ahead);
        let name = format!("headwater-{name}");
        let work = Work { stream, gate: Arc::clone(&gate), send };
        let start = || Builder::new().name(name).spawn(move || work.run(make));
        let thread = in_default_environment(start);
        let thread = thread.map_err(|e| {
            Error::invalid(format!(
                "cannot start a thread: {e}; use fewer threads, or free some memory"
            ))
        })?;
        Ok(Self { stream, gate, made: Some(made), thread: Some(thread) })
    }

    /// Returns the next item; waits until it is made.
    pub(crate) fn next(&self) -> Result<T> {
        let made = self.made.as_ref().ok_or_else(shut_down_error)?;
        let received = match made.try_recv() {
            Err(TryRecvError::Empty) => {
                let wait = |waits| {
                    move |state: &mut State| {
                        state.is_awaited[self.stream] = waits;
                    }
                };
                self.gate.change(wait(true));
                let received = made.recv();
                self.gate.change(wait(false));
                received.ok()
            }
            received => received.ok(),
        };
        // A producer ends when it is shut down, or after it has sent an error.
        received.unwrap_or_else(|| Err(shut_down_error()))
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // Wakes the producer, whether it waits for room or for the first stream.
        self.made = None;
        self.gate.change(|state| state.is_ending[self.stream] = true);
        if let Some(thread) = self.thread.take() {
            // The producer catches its own panics.
            let _ = thread.join();
        }
        self.gate.change(|state| state.is_ending[self.stream] = false);
    }
}

pub(crate) fn shut_down_error() -> Error {
    Error::shutdown(
        "the sampler was shut down, or ended with an error before this call; make a new one, and \
         resume it from a cursor",
    )
}

struct Work<T> {
    stream: usize,
    gate: Arc<Gate>,
    send: Sender<Result<T>>,
}

impl<T> Work<T> {
    fn run(self, mut make: impl FnMut() -> Result<T>) {
        while self.gate.enter(self.stream) {
            let made = catch_unwind(AssertUnwindSafe(&mut make));
            let made = made.unwrap_or_else(|panic| Err(panicked(&*panic)));
            let ends = made.is_err();
            if self.stream == FIRST {
                let is_behind = self.send.len() + 1 < self.send.capacity().unwrap_or(usize::MAX);
                self.gate.change(|state| state.first_is_behind = is_behind);
            }
            if self.send.send(made).is_err() || ends {
                break;
            }
        }
        if self.stream == FIRST {
            // No stream must wait for a producer that has ended.
            self.gate.change(|state| state.first_is_behind = false);
        }
    }
}
