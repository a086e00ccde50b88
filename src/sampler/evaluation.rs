//! `Evaluation`: a finite pass over the seeds of a split.

use super::batch::Batch;
use super::batches::Batches;
use super::engine::SequenceSource;
use crate::error::Result;
use crate::handoff::Pass;

/// Returns the task and this rank's seeds of the next batch.
pub(super) type NextSeeds = Box<dyn FnMut() -> Result<Option<(usize, Vec<SequenceSource>)>> + Send>;

/// A finite pass over the seeds of a split, as an iterator of batches.
pub struct Evaluation {
    pub(super) pass: Pass<Batches, NextSeeds>,
    pub(super) remaining: u64,
}

impl Evaluation {
    /// Returns the process whose threads make the batches; another process cannot continue the pass.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.pass.process()
    }

    /// Returns the number of batches that are left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl Iterator for Evaluation {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.pass.next()?;
        self.remaining = self.remaining.saturating_sub(1);
        Some(batch)
    }
}
