//! `Evaluation`: a finite pass over the seeds of a split.

use std::path::Path;
use std::sync::Arc;

use super::batch::Batch;
use super::batches::Batches;
use super::engine::SequenceSource;
use super::stream;
use crate::durable;
use crate::error::Result;
use crate::handoff::Pass;
use crate::plan::{Cursor, CursorKind, Plan};

/// Returns the task and this rank's seeds of the next batch.
pub(super) type NextSeeds = Box<dyn FnMut() -> Result<Option<(usize, Vec<SequenceSource>)>> + Send>;

/// A finite pass over the seeds of a split, as an iterator of batches.
///
/// The pass ends at a batch that cannot be made; its cursor is before that batch.
pub struct Evaluation {
    /// The batches, some of them made ahead.
    made: Pass<Batches, NextSeeds>,
    batches: Arc<Batches>,
    /// The place of the caller.
    consumed: stream::Pass,
    plan: Plan,
}

impl Evaluation {
    pub(super) fn new(
        made: Pass<Batches, NextSeeds>,
        batches: Arc<Batches>,
        consumed: stream::Pass,
        plan: Plan,
    ) -> Self {
        Self { made, batches, consumed, plan }
    }

    /// Returns the process whose threads make the batches; another process cannot continue the pass.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.made.process()
    }

    /// Waits until the next batch is made, without taking it: an interrupt while waiting consumes
    /// nothing.
    ///
    /// # Errors
    /// That of making the batch.
    pub fn wait(&mut self) -> Result<()> {
        self.made.wait()
    }

    /// Returns the number of batches that are left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.consumed.remaining(&self.batches.engine.tasks)
    }

    /// Returns the cursor after the last batch that was taken, the same on every rank.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(CursorKind::Evaluation, self.plan.clone(), self.consumed.position())
    }

    /// Writes the cursor to a file, completely or not at all.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    pub fn save_cursor(&self, path: &Path) -> Result<()> {
        self.cursor().write(&durable::Disk, path)
    }
}

impl Iterator for Evaluation {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.made.next()?;
        if batch.is_ok() {
            self.consumed.step(&self.batches.engine.tasks);
        }
        Some(batch)
    }
}
