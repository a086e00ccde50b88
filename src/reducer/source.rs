//! The rows of a job that a process can read, and how it folds them to portions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::bytes::Digest;
use crate::error::{Context, Error, Result};
use crate::fold::{Node, Statistic, Tree};

use super::job::Job;
use super::portion::Portion;
use super::sourced::Sourced;
use super::versions::FileVersion;

/// Computes the partials of the chunks of a job.
pub trait Source: Sync {
    /// The statistic that is folded.
    type Statistic: Statistic;

    /// The statistic.
    fn statistic(&self) -> &Arc<Self::Statistic>;

    /// Returns the partials of some chunks, in their order, and the digests of their rows.
    ///
    /// # Errors
    /// Those of reading the rows and of [`Statistic::leaf`].
    fn leaves(
        &self,
        chunks: Range<u64>,
    ) -> Result<Vec<Sourced<<Self::Statistic as Statistic>::Partial>>>;

    /// Returns the digest of the rows of a chunk, as [`Source::leaves`] does.
    ///
    /// # Errors
    /// Those of reading the rows.
    fn rows_digest(&self, chunk: u64) -> Result<Digest>;

    /// Returns the versions of all files that this process reads, when they were opened.
    fn opened_versions(&self) -> Vec<FileVersion>;

    /// Checks that the files of these rows, which were read, are as they were opened; returns their
    /// versions, in order.
    ///
    /// # Errors
    /// `Data` for a file that was changed or replaced, `Io` for one that is gone.
    fn versions_of(&self, rows: Range<u64>) -> Result<Vec<FileVersion>>;

    /// The number of chunks to fold at a time, so that all threads have work and memory suffices.
    fn at_once(&self) -> u64;

    /// The chunks that this process can read.
    fn readable(&self) -> Vec<Range<u64>>;

    /// The names of the files that have these rows, for messages.
    fn files_of(&self, rows: Range<u64>) -> String;

    /// The chunks at which files begin, so that other ranks may be able to read what follows.
    fn cuts(&self) -> BTreeSet<u64>;
}

/// Folds some chunks of a job, and returns their portion; calls `stop` between chunks.
///
/// # Errors
/// Those of the source, with the chunks; `Interrupted` when `stop` returns true.
pub fn fold_portion<S: Source + ?Sized>(
    job: &Job,
    source: &S,
    chunks: Range<u64>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<u8>> {
    let mut tree = Tree::new(job.chunk_count());
    let mut first = chunks.start;
    let rows = job.rows_of(chunks.start).start..job.rows_of(chunks.end).start;
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
    // Looked at after the last row was read, so that no change in between goes unseen.
    let versions = source.versions_of(rows)?;
    Portion::of(job, &**source.statistic()).encode(tree.nodes(), &versions)
}
