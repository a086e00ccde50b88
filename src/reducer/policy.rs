//! How a coordinator divides a job: the blocks, and when an order is late.

use std::collections::BTreeSet;

use super::job::{Blocks, Job};
use super::source::Source;
use crate::fold::Statistic;

/// The most operations of a block for each thread: about a second.
const BLOCK_OPERATIONS: f64 = 2e10;

/// The operations of a block for each byte of the partials: rank 0 then receives for at most a quarter
/// of its time.
const OPERATIONS_PER_BYTE: f64 = 100.0;

/// Milliseconds before which no order is assigned to a second rank, however slow the first is.
const PATIENCE: u64 = 60_000;

/// How a coordinator divides a job; it does not change a bit of the result.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The blocks; a rank sends one portion for each.
    pub blocks: Blocks,
    /// The number of ranks; rank r of W owns the blocks b with b mod W = r.
    pub ranks: u32,
    /// Chunks at which a block ends early, because other ranks can read what follows.
    pub cuts: BTreeSet<u64>,
    /// The number of blocks in 1,000 that two ranks fold, to compare their bits.
    pub audited_per_mille: u64,
    /// Milliseconds before which an order is never assigned to a second rank.
    pub patience: u64,
}

impl Policy {
    /// Returns the policy for `ranks` ranks of `threads` threads each, when a chunk takes about
    /// `chunk_operations` operations: blocks of about a second, or longer when partials are large.
    pub fn for_job<S: Source>(
        job: &Job,
        source: &S,
        (ranks, threads): (u32, usize),
        chunk_operations: f64,
    ) -> Self {
        let sent_bytes = f64::from(ranks) * source.statistic().partial_bytes() as f64;
        let of_thread = f64::max(BLOCK_OPERATIONS, OPERATIONS_PER_BYTE * sent_bytes);
        let fitting = (of_thread * threads as f64 / chunk_operations) as u64;
        Self {
            blocks: Blocks::for_ranks(job.chunk_count(), u64::from(ranks), fitting),
            ranks,
            cuts: source.cuts(),
            audited_per_mille: 0,
            patience: PATIENCE,
        }
    }
}
