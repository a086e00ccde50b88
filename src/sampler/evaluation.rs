//! `Evaluation`: a finite pass over the seeds of a split.

use std::sync::Arc;

use super::batch::Batch;
use super::engine::Engine;
use super::stream::Pass;
use crate::error::Result;
use crate::handoff::{Gate, InFlight, shut_down_error};
use crate::process::check_process;

/// A finite pass over the seeds of a split, as an iterator of batches.
pub struct Evaluation {
    pub(super) engine: Arc<Engine>,
    pub(super) pass: Pass,
    pub(super) in_flight: InFlight<Batch, ()>,
    /// Whether batches are begun ahead of the caller.
    pub(super) is_ahead: bool,
    pub(super) gate: Arc<Gate>,
    pub(super) process: u32,
}

impl Evaluation {
    /// Returns the process whose threads make the batches; another process cannot continue the pass.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }
}

impl Drop for Evaluation {
    fn drop(&mut self) {
        if check_owner(self.process).is_err() {
            // As for a sampler: the threads are in another process.
            std::mem::forget(std::mem::take(&mut self.in_flight));
            std::mem::forget(Arc::clone(&self.engine));
        }
    }
}

impl Iterator for Evaluation {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = check_owner(self.process) {
            return Some(Err(error));
        }
        if self.gate.is_closed() {
            return Some(Err(shut_down_error()));
        }
        let Self { engine, pass, in_flight, is_ahead, .. } = self;
        let mut step = || pass.advance(&engine.tasks);
        match is_ahead {
            false => {
                let step = step().transpose()?;
                Some(step.and_then(|(task, sources)| engine.make(task, &sources)))
            }
            true => {
                let begun = || Ok(step()?.map(|(task, sources)| (engine.begin(task, sources), ())));
                in_flight.next(begun).map(|made| made.map(|(batch, ())| batch)).transpose()
            }
        }
    }
}

/// Rejects calls on a sampler, or on its pass, in another process than its own.
pub(crate) fn check_owner(process: u32) -> Result<()> {
    let remedy = "make a sampler in the child, and resume it from a cursor";
    check_process(process, "sampler", remedy)
}
