//! What of a job was folded: partials taken in in any order, until they are the whole.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fold::statistic::{Incoming, TryClone};
use crate::fold::tree::Inserted;
use crate::fold::{Node, Statistic, Tree};

use super::job::Job;
use super::portion::{ArrivedNode, Portion};

/// The fold of a job under way. Does no input or output of its own.
///
/// # Determinism
/// [`Reduction::finish`] depends on the job and its rows, on nothing else.
pub struct Reduction<S: Statistic> {
    job: Job,
    statistic: Arc<S>,
    tree: Tree<S::Partial>,
}

impl<S: Statistic> Reduction<S> {
    /// A fold of which nothing is done.
    pub fn new(job: Job, statistic: Arc<S>) -> Self {
        let tree = Tree::new(job.chunk_count());
        Self { job, statistic, tree }
    }

    /// What is folded.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The statistic.
    #[must_use]
    pub fn statistic(&self) -> &S {
        &self.statistic
    }

    /// Takes in the partial of a node; one that is there already changes nothing.
    ///
    /// # Errors
    /// `Corrupt` when the same node is there with other bits: one of the two who computed it read
    /// other rows, or has a fault.
    pub fn insert(&mut self, node: Node, arrival: impl Incoming<S::Partial>) -> Result<Inserted> {
        self.tree.insert(node, arrival)
    }

    /// Takes in the nodes of a portion, all of them or none. Returns how many of them are new.
    ///
    /// # Errors
    /// As [`Reduction::insert`]. What was taken in before stays as it was.
    pub fn insert_all(&mut self, nodes: Vec<ArrivedNode<'_, S>>) -> Result<usize> {
        self.tree.insert_all(nodes)
    }

    /// Takes in a portion: a checkpoint, or a file of a spool. Returns how many of its nodes are new.
    ///
    /// A node that covers smaller ones that are there takes their place: it has their rows and those
    /// that were missing. Bits are compared where the same node is there; what was merged since, and
    /// what is replaced, cannot be.
    ///
    /// # Errors
    /// Those of [`Portion::read`] and of [`Reduction::insert`]. A portion that is refused changes
    /// nothing.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize> {
        let nodes = Portion::of(&self.job, &*self.statistic).read(bytes)?;
        self.insert_all(nodes)
    }

    /// All that was taken in, to go on from later with any number of ranks.
    ///
    /// # Errors
    /// Those of [`Portion::encode`].
    pub fn checkpoint(&self) -> Result<Vec<u8>> {
        Portion::of(&self.job, &*self.statistic).encode(self.tree.nodes())
    }

    /// The chunks that are still to be folded.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.tree.missing()
    }

    /// Whether nothing is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.covered_count() == self.job.chunk_count()
    }

    /// How many chunks were taken in.
    #[must_use]
    pub fn covered_count(&self) -> u64 {
        self.tree.covered().iter().map(|range| range.end - range.start).sum()
    }

    /// How many rows they have.
    #[must_use]
    pub fn covered_rows(&self) -> u64 {
        let rows = |range: &Range<u64>| {
            self.job.rows_of(range.end - 1).end - self.job.rows_of(range.start).start
        };
        self.tree.covered().iter().map(rows).sum()
    }

    /// The partial of all rows, which stay as they are, for a caller that goes on.
    ///
    /// # Errors
    /// As [`Reduction::finish`], and `LimitExceeded` when there is no memory for it.
    pub fn whole(&self) -> Result<S::Partial>
    where
        S::Partial: TryClone,
    {
        self.tree.whole()?.ok_or_else(without_rows)
    }

    /// The partial of all rows.
    ///
    /// # Errors
    /// `InvalidArgument` when chunks are missing, or there are no rows.
    pub fn finish(self) -> Result<S::Partial> {
        self.tree.finish()?.ok_or_else(without_rows)
    }
}

fn without_rows() -> Error {
    Error::invalid("expected at least one row, found none")
}
