//! The job of a fold, and its blocks.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::fold::{FORMAT_VERSION, Partial, Tree};
use crate::matrix::Element;
use crate::plan::{Plan, Setting};

/// Small enough that no number of rows, chunks or nodes overflows.
const ROWS_MAX: u64 = 1 << 62;

/// Settings of a job by their names.
pub type Settings = Vec<(&'static str, Setting)>;

/// The bits of the number of a row within its part: the part's number is above them.
const PART_ROWS_BITS: u32 = 38;
/// The most parts, so that every row has a number below 2^62.
const PARTS_MAX: u64 = 1 << 24;

/// What the leaves of a job's tree are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    /// Chunks of rows.
    Chunks,
    /// Parts, each a fold of its own in chunks of so many rows.
    Parts(u64),
    /// Arrays that the caller has computed.
    Arrays,
}

/// A statistic over rows, in chunks: its plan determines the result.
///
/// A job of parts has the parts in place of rows and of chunks, and a job of arrays the leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    plan: Plan,
    rows: u64,
    chunk_rows: u64,
    leaves: Leaves,
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
        Self { plan, rows, chunk_rows, leaves: Leaves::Chunks }.checked()
    }

    /// Returns the job of folding `parts` parts, each a fold of its own, `chunk_rows` rows at a time;
    /// how many rows a part has need not be known.
    ///
    /// # Errors
    /// As [`Job::new`], and `LimitExceeded` for more than 2^24 parts.
    pub fn of_parts(mut plan: Plan, parts: u64, chunk_rows: u64) -> Result<Self> {
        if parts > PARTS_MAX {
            return Err(Error::limit(format!("expected at most 2^24 parts, found {parts}")));
        }
        plan.add("parts", parts)?;
        plan.add("chunk_rows", chunk_rows)?;
        plan.add("fold", FORMAT_VERSION)?;
        let job = Self { plan, rows: parts, chunk_rows: 1, leaves: Leaves::Parts(chunk_rows) };
        Self::of_part(chunk_rows)?;
        job.checked()
    }

    /// Returns the job of adding the arrays of `leaves` leaves.
    ///
    /// # Errors
    /// As [`Job::new`].
    pub fn of_arrays(mut plan: Plan, leaves: u64) -> Result<Self> {
        if leaves > ROWS_MAX {
            return Err(Error::limit(format!("expected at most 2^62 leaves, found {leaves}")));
        }
        plan.add("leaves", leaves)?;
        plan.add("fold", FORMAT_VERSION)?;
        Self { plan, rows: leaves, chunk_rows: 1, leaves: Leaves::Arrays }.checked()
    }

    /// Returns the job of the rows of one part, and the number of the first in the whole.
    ///
    /// # Errors
    /// `InvalidArgument` for a job that has no such part, and for chunks without rows.
    pub fn part(&self, part: u64) -> Result<(Self, u64)> {
        match self.leaves {
            Leaves::Parts(chunk_rows) if part < self.rows => {
                Ok((Self::of_part(chunk_rows)?, part << PART_ROWS_BITS))
            }
            Leaves::Parts(_) => Err(Error::invalid(format!(
                "expected a part below {}, found {part}; set the number of parts of the job to that of \
                 all parts",
                self.rows
            ))),
            _ => Err(Error::invalid("expected a job of parts, found one of rows or of arrays")),
        }
    }

    fn of_part(chunk_rows: u64) -> Result<Self> {
        Self::new(Plan::new(), 1 << PART_ROWS_BITS, chunk_rows)
    }

    /// Whether a node covers a number of rows that is known from the job.
    pub(super) fn knows_rows(&self) -> bool {
        self.leaves == Leaves::Chunks
    }

    /// Returns an empty tree of the job.
    pub(super) fn tree<P: Partial>(&self) -> Tree<P> {
        let words = match self.leaves {
            Leaves::Chunks => ["chunk", "chunks"],
            Leaves::Parts(_) => ["part", "parts"],
            Leaves::Arrays => ["leaf", "leaves"],
        };
        Tree::of(words, self.chunk_count())
    }

    /// Checks the length of the plan, because every portion contains it.
    fn checked(self) -> Result<Self> {
        self.plan.encode().map_err(|_| {
            Error::limit(
                "expected the settings of a job to have at most 1 MiB, found more; give the data a \
                 shorter name, such as a digest",
            )
        })?;
        Ok(self)
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
        let plan = Self::plan_of_matrix(statistic, (columns, element), data, settings)?;
        Self::new(plan, rows, chunk_rows)
    }

    /// Returns the plan of folding `statistic` over rows of `columns` numbers, without their number.
    ///
    /// # Errors
    /// `InvalidArgument` for a setting that is there twice.
    pub fn plan_of_matrix(
        statistic: &str,
        (columns, element): (usize, Element),
        data: impl Into<Setting>,
        settings: &[(&str, Setting)],
    ) -> Result<Plan> {
        let mut plan = Plan::new();
        plan.add("statistic", statistic)?;
        plan.add("columns", columns as u64)?;
        plan.add("element", element.name())?;
        plan.add("data", data)?;
        for (name, value) in settings {
            plan.add(*name, value.clone())?;
        }
        Ok(plan)
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
