//! The rows of one rank, when ranks own the blocks of a job in turn.

use super::cursor::WorkerCursor;
use super::job::{Blocks, Job};
use crate::error::{Error, Result};
use crate::plan::Assignment;

/// The rows that a rank owns: those of the blocks b with b mod W = r, in order.
///
/// # Example
/// ```
/// use headwater::plan::{Assignment, Plan};
/// use headwater::reducer::{Blocks, Job, OwnRows};
///
/// let job = Job::new(Plan::new(), 65, 10)?;
/// let rows = OwnRows::new(&job, Blocks::new(job.chunk_count(), 0)?, Assignment::new(1, 3)?);
/// // Chunks 1 and 4 of 7.
/// assert_eq!((rows.first(), rows.count()), (10, 20));
/// assert_eq!((rows.next_own(15), rows.next_own(20), rows.next_own(50)), (15, 40, 65));
/// # Ok::<(), headwater::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OwnRows {
    job: Job,
    blocks: Blocks,
    assignment: Assignment,
}

impl OwnRows {
    /// Returns the rows of a rank.
    #[must_use]
    pub fn new(job: &Job, blocks: Blocks, assignment: Assignment) -> Self {
        Self { job: job.clone(), blocks, assignment }
    }

    /// The first row, or the number of rows of the job without any.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.next_own(0)
    }

    /// The number of rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.left(0)
    }

    /// The first row from `row` on that the rank owns, or the number of rows of the job.
    #[must_use]
    pub fn next_own(&self, row: u64) -> u64 {
        let block = self.block_of(row);
        let (rank, world) = (self.assignment.rank(), self.assignment.world());
        let turn = block % world;
        let behind = if rank >= turn { rank - turn } else { world - turn + rank };
        match behind {
            0 => row.min(self.job.rows()),
            _ => self.start_of(block.saturating_add(behind)),
        }
    }

    /// The number of consecutive own rows from `row` on: to the end of its block, or of the job if one
    /// rank owns all; 0 if another rank owns the row.
    #[must_use]
    pub fn left_of_run(&self, row: u64) -> u64 {
        match self.assignment.world() {
            1 => self.job.rows().saturating_sub(row),
            _ => self.left_of_block(row),
        }
    }

    fn left_of_block(&self, row: u64) -> u64 {
        let block = self.block_of(row);
        match self.assignment.owns(block) {
            true => self.start_of(block.saturating_add(1)).saturating_sub(row),
            false => 0,
        }
    }

    /// The number of own rows from `row` on.
    #[must_use]
    pub fn left(&self, row: u64) -> u64 {
        let block = self.block_of(row);
        let owned_before = |block: u64| self.assignment.owned_count(block);
        let later =
            owned_before(self.blocks.count()).saturating_sub(owned_before(block.saturating_add(1)));
        // Each later block is as long as the first, except the last of the job.
        let last = self.blocks.count().saturating_sub(1);
        let (full, last_rows) = (self.start_of(1), self.job.rows() - self.start_of(last));
        let shorter = if last > block && self.assignment.owns(last) { full - last_rows } else { 0 };
        self.left_of_block(row) + later.saturating_mul(full).saturating_sub(shorter)
    }

    /// Checks that a worker of the rank can begin at `row`.
    ///
    /// # Errors
    /// `InvalidArgument` with the next row that it owns.
    pub fn check_begin(&self, row: u64) -> Result<()> {
        match self.next_own(row) {
            own if own == row => Ok(()),
            own => Err(Error::invalid(format!(
                "expected a first row that rank {} of {} owns, such as {own}, found {row}",
                self.assignment.rank(),
                self.assignment.world()
            ))),
        }
    }

    /// Checks that the rank owns `count` rows from `row` on.
    ///
    /// # Errors
    /// `InvalidArgument` with the number of rows that are left.
    pub fn check_count(&self, row: u64, count: u64) -> Result<()> {
        let left = self.left(row);
        if count <= left {
            return Ok(());
        }
        let (rank, world) = (self.assignment.rank(), self.assignment.world());
        let of = match world {
            1 => "the job".to_owned(),
            _ => format!("rank {rank} of {world}"),
        };
        Err(Error::invalid(format!(
            "expected at most {left} more of the {} rows of {of}, found {count}; set the number of rows \
             of the job to the total of all pieces",
            self.count()
        )))
    }

    /// The cursor of the rank when it has folded its rows before `row`.
    #[must_use]
    pub fn cursor_at(&self, row: u64) -> WorkerCursor {
        let begin = WorkerCursor::new(self.assignment, &self.blocks);
        begin.after(self.assignment.owned_count(self.block_of(row).min(self.blocks.count())))
    }

    /// Reads a cursor of this rank; returns the row at which it continues.
    ///
    /// # Errors
    /// Those of [`WorkerCursor::resume`].
    pub fn resume(&self, bytes: &[u8]) -> Result<u64> {
        let begin = WorkerCursor::new(self.assignment, &self.blocks);
        let cursor = begin.resume(&self.job, &self.blocks, bytes)?;
        Ok(self.assignment.owned(cursor.ordinal()).map_or(self.job.rows(), |b| self.start_of(b)))
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The block of a row; beyond the last for the row after the last.
    fn block_of(&self, row: u64) -> u64 {
        match row < self.job.rows() {
            true => self.blocks.block_with(self.job.chunk_of(row)),
            false => self.blocks.count(),
        }
    }

    /// The first row of a block, or the number of rows.
    fn start_of(&self, block: u64) -> u64 {
        self.job.rows_of(self.blocks.chunks(block).start).start
    }
}
