//! Leaves that the caller has computed: sums of any arrays.

use crate::error::{Error, Result};
use crate::fold::{ArraySums, Node, Statistic};
use crate::matrix::RowsHasher;

use super::job::Job;
use super::portion::Portion;
use super::sourced::Sourced;

/// Returns the portion of one leaf of a job of arrays, from the bytes of each array.
///
/// # Errors
/// `InvalidArgument` for a leaf that the job does not have, and those of [`Statistic::leaf`] and of
/// [`Portion::encode`].
pub fn leaf_portion(job: &Job, sums: &ArraySums, leaf: u64, arrays: &[&[u8]]) -> Result<Vec<u8>> {
    if leaf >= job.chunk_count() {
        return Err(Error::invalid(format!(
            "expected a leaf below {}, found {leaf}; set the number of leaves of the job to that of all \
             leaves",
            job.chunk_count()
        )));
    }
    let partial = sums.leaf(&arrays.to_vec())?;
    let hasher = RowsHasher::default();
    arrays.iter().for_each(|bytes| hasher.add(bytes));
    let node = (Node::leaf(leaf)?, &Sourced { partial, rows: hasher.finish() });
    Portion::of(job, sums).encode([node].into_iter(), &[])
}
