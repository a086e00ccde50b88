//! How the work of a job is shared out: the blocks, and when an order is late.

use std::collections::BTreeSet;

use super::job::{Blocks, Job};
use super::source::Source;
use crate::fold::Statistic;

/// Operations of a block at most, for each thread: about a second.
const BLOCK_OPERATIONS: f64 = 2e10;

/// Or so many for each byte that each rank ships, so that rank 0 is a quarter busy with receiving.
const OPERATIONS_PER_BYTE: f64 = 100.0;

/// Milliseconds for which no order is given to a second rank, however slow the first is.
const PATIENCE: u64 = 60_000;

/// How a coordinator shares out the work; none of it changes a bit of the result.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The blocks, of each of which one portion is shipped.
    pub blocks: Blocks,
    /// Chunks at which a block ends early, because other ranks can read what follows.
    pub cuts: BTreeSet<u64>,
    /// Of a thousand blocks, how many are folded by two ranks, whose bits are compared.
    pub audited_per_mille: u64,
    /// Milliseconds for which an order is never given to a second rank.
    pub patience: u64,
}

impl Policy {
    /// The policy for `ranks` ranks of `threads` threads each, where a chunk takes about
    /// `chunk_operations` operations: blocks of about a second, or longer where partials are large.
    pub fn for_job<S: Source>(
        job: &Job,
        source: &S,
        (ranks, threads): (u32, usize),
        chunk_operations: f64,
    ) -> Self {
        let shipped = f64::from(ranks) * source.statistic().partial_bytes() as f64;
        let of_thread = f64::max(BLOCK_OPERATIONS, OPERATIONS_PER_BYTE * shipped);
        let fitting = (of_thread * threads as f64 / chunk_operations) as u64;
        Self {
            blocks: Blocks::for_ranks(job.chunk_count(), u64::from(ranks), fitting),
            cuts: source.cuts(),
            audited_per_mille: 0,
            patience: PATIENCE,
        }
    }
}
