//! The fold of a job: partials are inserted in any order until all chunks are covered.

use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fold::statistic::{Incoming, TryClone};
use crate::fold::tree::Inserted;
use crate::fold::{Node, Statistic, Tree};

use super::job::Job;
use super::portion::{ArrivedNode, Portion};

/// The fold of a job in progress. Does no input or output.
///
/// # Example
/// Two processes each fold a part of the chunks. Their portions may arrive in any order:
///
/// ```
/// use std::sync::Arc;
/// use headwater::fold::Gram;
/// use headwater::reducer::{Job, OfMatrix, Reduction, Source, fold_portion};
/// # use headwater::matrix::{Element, Matrix, MatrixFormat};
/// # let file = tempfile::NamedTempFile::new()?;
/// # std::fs::write(&file, (0..400).flat_map(|n| f64::from(n).sin().to_le_bytes()).collect::<Vec<u8>>())?;
/// # let format = MatrixFormat::Raw { element: Element::F64, columns: 4 };
/// # let matrix = Matrix::open(&[file.path().to_owned()], &format)?;
/// // `matrix` has 100 rows of 4 numbers.
/// let job = Job::of_matrix("gram", (4, Element::F64), "sines", (100, 8), &[])?;
/// let threads = rayon::ThreadPoolBuilder::new().build()?;
/// let source = OfMatrix::new(Gram::new(4)?, matrix, job.clone(), threads);
/// let fold = |chunks| fold_portion(&job, &source, chunks, &|| false);
///
/// let mut two = Reduction::new(job.clone(), Arc::clone(source.statistic()));
/// two.receive(&fold(6..13)?)?;
/// assert_eq!(two.missing(), [0..6]);
/// two.receive(&fold(0..6)?)?;
///
/// let mut one = Reduction::new(job.clone(), Arc::clone(source.statistic()));
/// one.receive(&fold(0..13)?)?;
/// assert_eq!(one.finish()?, two.finish()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Determinism
/// [`Reduction::finish`] depends only on the job and its rows.
pub struct Reduction<S: Statistic> {
    job: Job,
    statistic: Arc<S>,
    tree: Tree<S::Partial>,
}

impl<S: Statistic> Reduction<S> {
    /// Returns a fold without any chunks.
    pub fn new(job: Job, statistic: Arc<S>) -> Self {
        let tree = Tree::new(job.chunk_count());
        Self { job, statistic, tree }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The statistic.
    #[must_use]
    pub fn statistic(&self) -> &S {
        &self.statistic
    }

    /// Inserts the partial of a node; an equal partial that is present already changes nothing.
    ///
    /// # Errors
    /// `Corrupt` when the same node is present with other bits: one of the two ranks that computed it
    /// read other rows, or has a fault.
    pub fn insert(&mut self, node: Node, arrival: impl Incoming<S::Partial>) -> Result<Inserted> {
        self.tree.insert(node, arrival)
    }

    /// Inserts all nodes of a portion or none of them. Returns the number of new nodes.
    ///
    /// # Errors
    /// As [`Reduction::insert`]; an error changes nothing.
    pub fn insert_all(&mut self, nodes: Vec<ArrivedNode<'_, S>>) -> Result<usize> {
        self.tree.insert_all(nodes)
    }

    /// Inserts the nodes of a portion: a checkpoint, or a file of a spool. Returns the number of new
    /// nodes.
    ///
    /// A node replaces the smaller nodes that it covers, because it has their rows and the missing
    /// ones. Bits are compared only when the same node is present: not with nodes that were merged or
    /// replaced.
    ///
    /// # Errors
    /// Those of [`Portion::read`] and of [`Reduction::insert`]; an error changes nothing.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<usize> {
        let nodes = Portion::of(&self.job, &*self.statistic).read(bytes)?;
        self.insert_all(nodes)
    }

    /// Encodes all nodes as a portion, from which any number of ranks can continue later.
    ///
    /// # Errors
    /// Those of [`Portion::encode`].
    pub fn checkpoint(&self) -> Result<Vec<u8>> {
        Portion::of(&self.job, &*self.statistic).encode(self.tree.nodes())
    }

    /// The chunks that are not folded yet.
    #[must_use]
    pub fn missing(&self) -> Vec<Range<u64>> {
        self.tree.missing()
    }

    /// Whether no chunk is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.covered_count() == self.job.chunk_count()
    }

    /// The number of chunks that are folded.
    #[must_use]
    pub fn covered_count(&self) -> u64 {
        self.tree.covered().iter().map(|range| range.end - range.start).sum()
    }

    /// The number of rows that are folded.
    #[must_use]
    pub fn covered_rows(&self) -> u64 {
        let rows = |range: &Range<u64>| {
            self.job.rows_of(range.end - 1).end - self.job.rows_of(range.start).start
        };
        self.tree.covered().iter().map(rows).sum()
    }

    /// Returns the partial of all rows, and keeps the fold.
    ///
    /// # Errors
    /// As [`Reduction::finish`], and `LimitExceeded` when there is no memory for a copy.
    pub fn whole(&self) -> Result<S::Partial>
    where
        S::Partial: TryClone,
    {
        self.tree.whole()?.ok_or_else(without_rows)
    }

    /// Returns the partial of all rows.
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
