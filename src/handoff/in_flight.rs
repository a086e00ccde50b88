//! Items in flight: the next item is begun before the current one is done.
//!
//! The sequences of a batch take unequal times, and one thread alone does some of the work. With two
//! batches in flight, idle threads of one work on the other.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, bounded};
use rayon::ThreadPool;

use crate::error::{Error, Result};
use crate::panics::panic_message;

/// The number of items in flight.
const AT_ONCE: usize = 2;

/// The result of making an item, or the panic that ended it.
type Outcome<T> = std::result::Result<Result<T>, Box<dyn Any + Send>>;

/// An item that has been begun.
pub(crate) struct Begun<T>(Receiver<Outcome<T>>);

/// Begins to make an item on `threads`.
pub(crate) fn begin<T: Send + 'static>(
    threads: &ThreadPool,
    make: impl FnOnce() -> Result<T> + Send + 'static,
) -> Begun<T> {
    let (send, made) = bounded(1);
    threads.spawn(move || {
        let outcome = catch_unwind(AssertUnwindSafe(make));
        // The consumer may be gone; that is no error.
        let _ = send.send(outcome);
    });
    Begun(made)
}

/// The items of one stream in flight, the oldest first, each with a note of type `N`.
pub(crate) struct InFlight<T, N> {
    begun: VecDeque<(Begun<T>, N)>,
}

impl<T, N> Default for InFlight<T, N> {
    fn default() -> Self {
        Self { begun: VecDeque::with_capacity(AT_ONCE) }
    }
}

impl<T, N> InFlight<T, N> {
    /// Returns the next item and its note; waits until it is made. None when `step`, which begins the
    /// items, has no more.
    pub(crate) fn next(
        &mut self,
        mut step: impl FnMut() -> Result<Option<(Begun<T>, N)>>,
    ) -> Result<Option<(T, N)>> {
        while self.begun.len() < AT_ONCE {
            match step() {
                Ok(Some(begun)) => self.begun.push_back(begun),
                Ok(None) => break,
                // The step fails again when it is called for this item.
                Err(_) if !self.begun.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let Some((begun, note)) = self.begun.pop_front() else { return Ok(None) };
        match begun.0.recv() {
            Ok(Ok(made)) => Ok(Some((made?, note))),
            Ok(Err(panic)) => Err(panicked(&*panic)),
            Err(_) => Err(Error::shutdown(
                "the threads that make batches have ended; make a new sampler, and resume it from a cursor",
            )),
        }
    }
}

/// Returns the error of a panic while an item was made.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::invalid(format!(
        "internal error while making a batch ({}); this is a bug in headwater: please report it, with \
         the cursor of the last batch (save_cursor)",
        panic_message(panic)
    ))
}
