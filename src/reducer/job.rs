//! What is to be folded, and how the work is shared out.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::fold::FORMAT_VERSION;
use crate::matrix::Element;
use crate::plan::{Plan, Setting};

/// Far from where the numbers of rows, chunks and nodes end.
const ROWS_MAX: u64 = 1 << 62;

/// A statistic over rows, in chunks: all that determines the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    plan: Plan,
    rows: u64,
    chunk_rows: u64,
}

impl Job {
    /// The job of folding `rows` rows, `chunk_rows` at a time.
    ///
    /// `what` names the statistic and the data.
    ///
    /// # Errors
    /// `InvalidArgument` for chunks without rows, or a field of a name that every job has;
    /// `LimitExceeded` for more than 2^62 rows, and for plan that no file of partials has room for.
    pub fn new(mut what: Plan, rows: u64, chunk_rows: u64) -> Result<Self> {
        if chunk_rows == 0 {
            return Err(Error::invalid("expected chunks of at least 1 row, found 0"));
        }
        if rows > ROWS_MAX {
            return Err(Error::limit(format!("expected at most 2^62 rows, found {rows}")));
        }
        what.add("rows", rows)?;
        what.add("chunk_rows", chunk_rows)?;
        what.add("fold", FORMAT_VERSION)?;
        let job = Self { plan: what, rows, chunk_rows };
        // Whatever is kept or shipped holds the plan.
        job.plan.encode().map_err(|_| {
            Error::limit(
                "expected the settings of a job to have at most 1 MiB, found more; give the data a \
                 shorter name, such as a digest",
            )
        })?;
        Ok(job)
    }

    /// The job of folding `statistic` over rows of `columns` numbers each, which `data` identifies;
    /// `settings` are what else determines it.
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
        let mut what = Plan::new();
        what.add("statistic", statistic)?;
        what.add("columns", columns as u64)?;
        what.add("element", element.name())?;
        what.add("data", data)?;
        for (name, value) in settings {
            what.add(*name, value.clone())?;
        }
        Self::new(what, rows, chunk_rows)
    }

    /// What determines the result.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many rows a chunk has, but for the last.
    #[must_use]
    pub fn chunk_rows(&self) -> u64 {
        self.chunk_rows
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunk_count(&self) -> u64 {
        self.rows.div_ceil(self.chunk_rows)
    }

    /// The rows of a chunk; none of one that is not there.
    #[must_use]
    pub fn rows_of(&self, chunk: u64) -> Range<u64> {
        let at = |chunk: u64| chunk.saturating_mul(self.chunk_rows).min(self.rows);
        at(chunk)..at(chunk.saturating_add(1))
    }

    /// The chunk that a row lies in.
    #[must_use]
    pub fn chunk_of(&self, row: u64) -> u64 {
        row / self.chunk_rows
    }

    /// The chunks all of whose rows are among some rows.
    #[must_use]
    pub fn chunks_within(&self, rows: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let end_of =
            |end| if end == self.rows { self.chunk_count() } else { end / self.chunk_rows };
        let chunks = rows.into_iter().map(|r| r.start.div_ceil(self.chunk_rows)..end_of(r.end));
        chunks.filter(|chunks| !chunks.is_empty()).collect()
    }

    /// For each of some rows, where the chunk begins and ends that has rows before and after it.
    #[must_use]
    pub fn chunks_around(&self, rows: impl Iterator<Item = u64>) -> BTreeSet<u64> {
        rows.flat_map(|row| [row / self.chunk_rows, row.div_ceil(self.chunk_rows)]).collect()
    }
}

/// The chunks of a job in aligned blocks, of each of which one partial is shipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    chunk_count: u64,
    level: u32,
}

impl Blocks {
    /// How many blocks a rank should have at least: so many can be taken over one by one when it
    /// dies, and so few are lost with it.
    const PER_RANK: u64 = 16;

    /// Blocks of `2^level` chunks.
    ///
    /// # Errors
    /// `InvalidArgument` for blocks that no number counts.
    pub fn new(chunk_count: u64, level: u32) -> Result<Self> {
        if level > 62 {
            return Err(Error::invalid(format!(
                "expected blocks of at most 2^62 chunks, found 2^{level}"
            )));
        }
        Ok(Self { chunk_count, level })
    }

    /// Blocks as great as can be, so that few partials are shipped, with enough for each of `ranks`
    /// and of no more than `chunks_max` chunks each.
    #[must_use]
    pub fn for_ranks(chunk_count: u64, ranks: u64, chunks_max: u64) -> Self {
        let each = chunk_count / ranks.saturating_mul(Self::PER_RANK).max(1);
        Self { chunk_count, level: each.min(chunks_max).checked_ilog2().unwrap_or(0) }
    }

    /// The end of the block that a chunk lies in.
    pub(super) fn end_of_block_with(&self, chunk: u64) -> u64 {
        self.chunks(chunk >> self.level).end
    }

    /// How many chunks a block has, but for the last.
    #[must_use]
    pub fn chunks_each(&self) -> u64 {
        1 << self.level
    }

    /// How many blocks there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.chunk_count.div_ceil(1 << self.level)
    }

    /// The chunks of a block; none of one that is not there.
    #[must_use]
    pub fn chunks(&self, block: u64) -> Range<u64> {
        let at = |block: u64| block.saturating_mul(1 << self.level).min(self.chunk_count);
        at(block)..at(block.saturating_add(1))
    }
}
