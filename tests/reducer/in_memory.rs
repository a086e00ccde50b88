//! Rows in memory as the source of a job.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use headwater::fold::Gram;
use headwater::fold::gram::Triangle;
use headwater::reducer::{FileVersion, Job, Source, Sourced};
use headwater::{Digest, Result};

use crate::{COLUMNS, job, leaf, rows};

/// Rows in memory, and what happens before some of their chunks are folded.
pub(crate) struct InMemory<'a> {
    pub(crate) job: Job,
    pub(crate) data: Vec<f64>,
    pub(crate) gram: Arc<Gram>,
    /// The chunks that this process can read.
    pub(crate) readable: Range<u64>,
    /// Is called with the first chunk.
    pub(crate) before: &'a (dyn Fn(u64) -> Result<()> + Sync),
}

impl<'a> InMemory<'a> {
    /// Chunks of one row each.
    pub(crate) fn new(chunks: u64, before: &'a (dyn Fn(u64) -> Result<()> + Sync)) -> Self {
        let gram = Arc::new(Gram::new(COLUMNS).unwrap());
        Self { job: job(chunks, 1), data: rows(chunks), gram, readable: 0..chunks, before }
    }
}

impl Source for InMemory<'_> {
    type Statistic = Gram;

    fn statistic(&self) -> &Arc<Gram> {
        &self.gram
    }

    fn leaves(&self, chunks: Range<u64>) -> Result<Vec<Sourced<Triangle>>> {
        (self.before)(chunks.start)?;
        Ok(chunks.map(|chunk| leaf(&self.job, &self.data, chunk)).collect())
    }

    fn rows_digest(&self, chunk: u64) -> Result<Digest> {
        Ok(leaf(&self.job, &self.data, chunk).rows)
    }

    fn opened_versions(&self) -> Vec<FileVersion> {
        Vec::new()
    }

    fn versions_of(&self, _: Range<u64>) -> Result<Vec<FileVersion>> {
        Ok(Vec::new())
    }

    fn at_once(&self) -> u64 {
        1
    }

    fn readable(&self) -> Vec<Range<u64>> {
        vec![self.readable.clone()]
    }

    fn files_of(&self, rows: Range<u64>) -> String {
        format!("the file of rows {rows:?}")
    }

    fn cuts(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }
}
