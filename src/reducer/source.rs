//! The rows of a job as a process can read them, and how blocks of them become portions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Context, Error, Result};
use crate::fold::{Node, Statistic, Tree};

use super::job::Job;
use super::portion::Portion;

/// What turns the chunks of a job into partials.
pub trait Source: Sync {
    /// What is folded.
    type Statistic: Statistic;

    /// The statistic.
    fn statistic(&self) -> &Arc<Self::Statistic>;

    /// The partials of some chunks, in their order.
    ///
    /// # Errors
    /// Those of reading the rows and of [`Statistic::leaf`].
    fn leaves(&self, chunks: Range<u64>) -> Result<Vec<<Self::Statistic as Statistic>::Partial>>;

    /// How many chunks are folded at a time, so that all threads have work and memory suffices.
    fn at_once(&self) -> u64;

    /// The chunks that this process can read.
    fn readable(&self) -> Vec<Range<u64>>;

    /// Names the files that some rows lie in.
    fn files_of(&self, rows: Range<u64>) -> String;

    /// The chunks at which others may begin, or cease, to be able to read.
    fn cuts(&self) -> BTreeSet<u64>;
}

/// Folds some chunks of a job, and yields their portion; between the chunks it asks whether to stop.
///
/// # Errors
/// Those of the source, with the chunks; `Interrupted` when it was to stop.
pub fn fold_portion<S: Source>(
    job: &Job,
    source: &S,
    chunks: Range<u64>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<u8>> {
    let mut tree = Tree::new(job.chunk_count());
    let mut first = chunks.start;
    while first < chunks.end {
        if stop() {
            return Err(Error::interrupted("stopped"));
        }
        let some = first..chunks.end.min(first.saturating_add(source.at_once().max(1)));
        let leaves = source
            .leaves(some.clone())
            .context(|| format!("chunks {} to {}", some.start, some.end - 1))?;
        for (chunk, leaf) in some.clone().zip(leaves) {
            tree.insert(Node::leaf(chunk)?, leaf)?;
        }
        first = some.end;
    }
    Portion::of(job, &**source.statistic()).encode(tree.nodes())
}
