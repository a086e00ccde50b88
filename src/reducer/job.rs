//! The job of a fold, and its blocks.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::fold::FORMAT_VERSION;
use crate::matrix::Element;
use crate::plan::{Plan, Setting};

/// Small enough that no number of rows, chunks or nodes overflows.
const ROWS_MAX: u64 = 1 << 62;

/// Settings of a job by their names.
pub type Settings = Vec<(&'static str, Setting)>;

/// A statistic over rows, in chunks: its plan determines the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    plan: Plan,
    rows: u64,
    chunk_rows: u64,
}

impl Job {
    /// Returns the job of folding `rows` rows, `chunk_rows` at a time.
    ///
    /// `plan` names the statistic and the data.
    ///
    /// # Errors
    /// `InvalidArgument` for chunks without rows, and for a setting with a name that every job has;
    /// `LimitExceeded` for more than 2^62 rows, and for a plan that is too long for a portion.
    pub fn new(mut plan: Plan, rows: u64, chunk_rows: u64) -> Result<Self> {
        if chunk_rows == 0 {
            return Err(Error::invalid("expected chunks of at least 1 row, found 0"));
        }
        if rows > ROWS_MAX {
            return Err(Error::limit(format!("expected at most 2^62 rows, found {rows}")));
        }
        plan.add("rows", rows)?;
        plan.add("chunk_rows", chunk_rows)?;
        plan.add("fold", FORMAT_VERSION)?;
        let job = Self { plan, rows, chunk_rows };
        // Every portion contains the plan.
        job.plan.encode().map_err(|_| {
            Error::limit(
                "expected the settings of a job to have at most 1 MiB, found more; give the data a \
                 shorter name, such as a digest",
            )
        })?;
        Ok(job)
    }

    /// Returns the job of folding `statistic` over rows of `columns` numbers, which `data` identifies;
    /// `settings` are the other settings of its plan.
    ///
    /// # Errors
    /// As [`Job::new`].
    pub fn of_matrix(
        statistic: &str,
        (columns, element): (usize, Element),
        data: impl Into<Setting>,
        (rows, chunk_rows): (u64, u64),
        settings: &[(&str, Setting)],
    ) -> Result<Self> {
        let mut plan = Plan::new();
        plan.add("statistic", statistic)?;
        plan.add("columns", columns as u64)?;
        plan.add("element", element.name())?;
        plan.add("data", data)?;
        for (name, value) in settings {
            plan.add(*name, value.clone())?;
        }
        Self::new(plan, rows, chunk_rows)
    }

    /// The plan, which determines the result.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The number of rows of each chunk but the last.
    #[must_use]
    pub fn chunk_rows(&self) -> u64 {
        self.chunk_rows
    }

    /// The number of chunks.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        self.rows.div_ceil(self.chunk_rows)
    }

    /// The rows of a chunk; an empty range for a chunk that the job does not have.
    #[must_use]
    pub fn rows_of(&self, chunk: u64) -> Range<u64> {
        let at = |chunk: u64| chunk.saturating_mul(self.chunk_rows).min(self.rows);
        at(chunk)..at(chunk.saturating_add(1))
    }

    /// The chunk of a row.
    #[must_use]
    pub fn chunk_of(&self, row: u64) -> u64 {
        row / self.chunk_rows
    }

    /// The chunks that lie entirely within the ranges of `rows`.
    #[must_use]
    pub fn chunks_within(&self, rows: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let end_of =
            |end| if end == self.rows { self.chunk_count() } else { end / self.chunk_rows };
        let chunks = rows.into_iter().map(|r| r.start.div_ceil(self.chunk_rows)..end_of(r.end));
        chunks.filter(|chunks| !chunks.is_empty()).collect()
    }

    /// For each of `rows`: its chunk, and the first chunk that starts at or after it.
    #[must_use]
    pub fn chunks_around(&self, rows: impl Iterator<Item = u64>) -> BTreeSet<u64> {
        rows.flat_map(|row| [row / self.chunk_rows, row.div_ceil(self.chunk_rows)]).collect()
    }
}

/// The chunks of a job in aligned blocks; a rank sends one partial for each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    chunk_count: u64,
    level: u32,
}

impl Blocks {
    /// The least blocks for each rank: when a rank dies, others fold its blocks one by one, and only the
    /// current ones are lost.
    const PER_RANK: u64 = 16;

    /// Blocks of `2^level` chunks.
    ///
    /// # Errors
    /// `InvalidArgument` for blocks of more than 2^62 chunks.
    pub fn new(chunk_count: u64, level: u32) -> Result<Self> {
        if level > 62 {
            return Err(Error::invalid(format!(
                "expected blocks of at most 2^62 chunks, found 2^{level}"
            )));
        }
        Ok(Self { chunk_count, level })
    }

    /// The largest blocks, so that ranks send few partials, with enough blocks for each of `ranks` and at
    /// most `chunks_max` chunks each.
    #[must_use]
    pub fn for_ranks(chunk_count: u64, ranks: u64, chunks_max: u64) -> Self {
        let each = chunk_count / ranks.saturating_mul(Self::PER_RANK).max(1);
        Self { chunk_count, level: each.min(chunks_max).checked_ilog2().unwrap_or(0) }
    }

    /// The block of a chunk.
    pub(super) fn block_with(&self, chunk: u64) -> u64 {
        chunk >> self.level
    }

    /// The number of chunks of each block but the last.
    #[must_use]
    pub fn chunks_each(&self) -> u64 {
        1 << self.level
    }

    /// The number of blocks.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.chunk_count.div_ceil(1 << self.level)
    }

    /// The chunks of a block; an empty range for a block that the job does not have.
    #[must_use]
    pub fn chunks(&self, block: u64) -> Range<u64> {
        let at = |block: u64| block.saturating_mul(1 << self.level).min(self.chunk_count);
        at(block)..at(block.saturating_add(1))
    }
}
