//! Batches under way: the next is begun before the last is done.
//!
//! The sequences of a batch take unequally long, and its texts are numbered by one thread. Where two
//! batches are made at once, the threads that have nothing to do for the one work on the other.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::Receiver;

use super::batch::Batch;
use super::engine::{Engine, Subject};
use super::prefetch::panicked;
use crate::error::{Error, Result};

/// How many batches are made at once.
const AT_ONCE: usize = 2;

/// The outcome of a batch, or what it panicked with.
pub(super) type Outcome = std::result::Result<Result<Batch>, Box<dyn Any + Send>>;

/// The batches of one stream that are being made, the oldest first; each has a note of type `N`.
pub(super) struct UnderWay<N> {
    engine: Arc<Engine>,
    begun: VecDeque<(N, Receiver<Outcome>)>,
}

/// What to make: a task's number, the seeds, and a note to hand back with the batch.
pub(super) type Step<N> = (usize, Vec<Subject>, N);

impl<N> UnderWay<N> {
    pub(super) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, begun: VecDeque::with_capacity(AT_ONCE) }
    }

    /// The next batch and its note; waits until it is made. None when `step` has no more.
    pub(super) fn next(
        &mut self,
        mut step: impl FnMut() -> Result<Option<Step<N>>>,
    ) -> Result<Option<(Batch, N)>> {
        while self.begun.len() < AT_ONCE {
            match step() {
                Ok(Some((task, subjects, note))) => {
                    self.begun.push_back((note, self.engine.begin(task, subjects)));
                }
                Ok(None) => break,
                // Asked again when its turn has come, the step fails again.
                Err(_) if !self.begun.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let Some((note, batch)) = self.begun.pop_front() else { return Ok(None) };
        match batch.recv() {
            Ok(Ok(made)) => Ok(Some((made?, note))),
            Ok(Err(panic)) => Err(panicked(&*panic)),
            Err(_) => Err(Error::shutdown("the threads that make batches have ended")),
        }
    }
}
