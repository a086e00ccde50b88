//! A worker's cursor: how far one rank is in the sequence of its own blocks.

use super::job::{Blocks, Job};
use crate::bytes::u64_at;
use crate::error::{Context, Error, Result};
use crate::plan::{Assignment, Cursor, CursorKind, Plan, Position};

const RANK: &str = "rank";
const WORLD: &str = "world";
const BLOCK_CHUNKS: &str = "block_chunks";
const ORDINAL: &str = "ordinal";

/// The position of a rank in its own blocks: rank r of W owns the blocks b with b mod W = r, in order.
///
/// A cursor is advice: it tells a restarted worker where to begin. Nothing needs it, because the blocks
/// that are folded are known without it, and the bits of a block do not depend on the rank.
///
/// # Example
/// ```
/// use headwater::plan::{Assignment, Plan};
/// use headwater::reducer::{Blocks, Job, WorkerCursor};
///
/// let job = Job::new(Plan::new(), 1000, 10)?;
/// let blocks = Blocks::new(job.chunk_count(), 2)?;
/// let begin = WorkerCursor::new(Assignment::new(1, 3)?, &blocks);
/// let bytes = begin.after(5).encode(&job)?;
/// assert_eq!(begin.resume(&job, &blocks, &bytes)?.ordinal(), 5);
///
/// let other = WorkerCursor::new(Assignment::new(1, 4)?, &blocks);
/// let refused = other.resume(&job, &blocks, &bytes).unwrap_err().to_string();
/// assert!(refused.contains("\"world\" was 3 and is now 4"), "{refused}");
/// # Ok::<(), headwater::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCursor {
    assignment: Assignment,
    block_chunks: u64,
    ordinal: u64,
}

impl WorkerCursor {
    /// The length of the counters in a message.
    pub(super) const BYTES: usize = 32;

    /// Returns the cursor before the first of the rank's own blocks.
    #[must_use]
    pub fn new(assignment: Assignment, blocks: &Blocks) -> Self {
        Self { assignment, block_chunks: blocks.chunks_each(), ordinal: 0 }
    }

    /// Returns the cursor after the first `ordinal` of the rank's own blocks.
    #[must_use]
    pub fn after(self, ordinal: u64) -> Self {
        Self { ordinal, ..self }
    }

    /// The rank, and the number of ranks.
    #[must_use]
    pub fn assignment(&self) -> Assignment {
        self.assignment
    }

    /// The number of the rank's own blocks before the cursor.
    #[must_use]
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// Returns the bytes of the cursor, with the plan of its job.
    ///
    /// # Errors
    /// Those of [`Cursor::encode`].
    pub fn encode(&self, job: &Job) -> Result<Vec<u8>> {
        let mut position = Position::new();
        for (name, count) in self.counters() {
            position.set(name, count);
        }
        Cursor::new(CursorKind::Reducer, job.plan().clone(), position).encode()
    }

    /// Reads the cursor in `bytes`, which must be of the same job, rank, number of ranks and size of
    /// blocks as this one.
    ///
    /// # Errors
    /// Those of [`Cursor::decode`]; `PlanMismatch` with each field that differs; `Corrupt` when the
    /// counters are not those of a worker, or the rank has fewer blocks.
    pub fn resume(&self, job: &Job, blocks: &Blocks, bytes: &[u8]) -> Result<Self> {
        let cursor = Cursor::decode(bytes)?;
        cursor.check(CursorKind::Reducer, job.plan())?;
        let position = cursor.position();
        let count = |name| position.get(name).ok_or_else(|| not_of_a_worker(position));
        let counters = [count(RANK)?, count(WORLD)?, count(BLOCK_CHUNKS)?, count(ORDINAL)?];
        if position.iter().count() != counters.len() {
            return Err(not_of_a_worker(position));
        }
        self.accept(blocks, Self::of_counters(counters)?)
    }

    /// Returns `found`, which must be of the same rank, number of ranks and size of blocks.
    ///
    /// # Errors
    /// As [`WorkerCursor::resume`].
    pub(super) fn accept(&self, blocks: &Blocks, found: Self) -> Result<Self> {
        self.worker()?.compare(&found.worker()?).context(|| "the cursor is of another worker")?;
        let owned = self.assignment.owned_count(blocks.count());
        if found.ordinal > owned {
            return Err(Error::corrupt(format!(
                "the worker's cursor is damaged: expected at most the {owned} blocks of rank {}, found \
                 {}; begin without a cursor",
                self.assignment.rank(),
                found.ordinal
            )));
        }
        Ok(found)
    }

    /// The counters that name the worker, as settings, which name their differences.
    fn worker(&self) -> Result<Plan> {
        let mut plan = Plan::new();
        let named = self.counters().into_iter().filter(|(name, _)| *name != ORDINAL);
        named.into_iter().try_for_each(|(name, count)| plan.add(name, count))?;
        Ok(plan)
    }

    /// Appends the counters to a message.
    pub(super) fn put(&self, bytes: &mut Vec<u8>) {
        self.counters().iter().for_each(|(_, count)| bytes.extend(count.to_le_bytes()));
    }

    /// Reads the counters in a message.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let count = |place: usize| u64_at(bytes, 8 * place);
        Self::of_counters([count(0)?, count(1)?, count(2)?, count(3)?]).ok()
    }

    fn of_counters([rank, world, block_chunks, ordinal]: [u64; 4]) -> Result<Self> {
        let assignment = Assignment::new(rank, world)
            .map_err(|error| Error::corrupt(format!("the worker's cursor is damaged: {error}")))?;
        Ok(Self { assignment, block_chunks, ordinal })
    }

    fn counters(&self) -> [(&'static str, u64); 4] {
        [
            (RANK, self.assignment.rank()),
            (WORLD, self.assignment.world()),
            (BLOCK_CHUNKS, self.block_chunks),
            (ORDINAL, self.ordinal),
        ]
    }
}

fn not_of_a_worker(position: &Position) -> Error {
    let names: Vec<&str> = position.iter().map(|(name, _)| name).collect();
    Error::corrupt(format!(
        "expected the counters of a worker: {RANK}, {WORLD}, {BLOCK_CHUNKS} and {ORDINAL}, found {}; \
         begin without a cursor",
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    ))
}
