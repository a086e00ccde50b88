//! The fold of a job: partials are inserted in any order until all chunks are covered.

use std::ops::Range;
use std::sync::Arc;

use crate::bytes::Digest;
use crate::error::{Context, Error, Result};
use crate::fold::statistic::{Incoming, TryClone};
use crate::fold::tree::Inserted;
use crate::fold::{Node, Statistic, Tree};
use crate::progress::Progress;

use super::job::Job;
use super::portion::{Arrived, Portion};
use super::source::Source;
use super::sourced::{Sourced, of_siblings, rows_of_node};
use super::versions::{FileVersion, Versions, differ};

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
    tree: Tree<Sourced<S::Partial>>,
    versions: Versions,
    /// Nodes whose rows are of other versions of the files, and are to be compared; `None` where other
    /// versions are refused.
    unverified: Option<Vec<(Node, Digest)>>,
}

impl<S: Statistic> Reduction<S> {
    /// Returns a fold without any chunks.
    pub fn new(job: Job, statistic: Arc<S>) -> Self {
        let tree = job.tree();
        Self { job, statistic, tree, versions: Versions::default(), unverified: None }
    }

    /// Tells the fold which versions of the files this process finds. Portions of other versions are
    /// refused; or, if `same_data` is set, [`Reduction::verify_same_data`] compares their rows.
    #[must_use]
    pub fn of_files(mut self, own: Vec<FileVersion>, same_data: bool) -> Self {
        self.versions = Versions::of(own);
        self.unverified = same_data.then(Vec::new);
        self
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The statistic.
    #[must_use]
    pub fn statistic(&self) -> &Arc<S> {
        &self.statistic
    }

    /// Inserts the partial of a node; an equal partial that is present already changes nothing.
    ///
    /// # Errors
    /// `Corrupt` when the same node is present with other bits: one of the two ranks that computed it
    /// read other rows, or has a fault.
    pub fn insert(
        &mut self,
        node: Node,
        arrival: impl Incoming<Sourced<S::Partial>>,
    ) -> Result<Inserted> {
        self.tree.insert(node, arrival)
    }

    /// Checks that the rows of a portion are of the same versions of the files as all rows before.
    ///
    /// # Errors
    /// `PlanMismatch` with the file, unless other versions are to be compared.
    pub fn check_versions(&self, arrived: &Arrived<'_, S>) -> Result<()> {
        match self.versions.other(&arrived.versions) {
            Some((known, found)) if self.unverified.is_none() => {
                Err(differ(known, found, &self.rows_named(arrived)))
            }
            _ => Ok(()),
        }
    }

    /// Inserts all nodes of a portion or none of them. Returns the number of new nodes.
    ///
    /// # Errors
    /// Those of [`Reduction::check_versions`] and of [`Reduction::insert`]; an error changes nothing.
    pub fn insert_all(&mut self, arrived: Arrived<'_, S>) -> Result<usize> {
        self.check_versions(&arrived)?;
        let is_other = self.versions.other(&arrived.versions).is_some();
        let nodes = arrived.nodes.iter().map(|(node, arriving)| (*node, arriving.0.rows));
        let others: Vec<_> = nodes.filter(|_| is_other).collect();
        let inserted = self.tree.insert_all(arrived.nodes)?;
        self.versions.add(arrived.versions);
        if let Some(unverified) = &mut self.unverified {
            unverified.extend(others);
        }
        Ok(inserted)
    }

    /// Reads the rows of other versions of the files again, and compares them with those that were
    /// folded. Returns the number of rows that were read.
    ///
    /// # Errors
    /// `PlanMismatch` for rows that differ, and those of reading them and of `progress`.
    pub fn verify_same_data<T: Source>(
        &mut self,
        source: &T,
        progress: &dyn Progress,
    ) -> Result<u64> {
        let Some(unverified) = self.unverified.as_mut().map(std::mem::take) else { return Ok(0) };
        let mut read = 0;
        if !unverified.is_empty() {
            let chunks = unverified.iter().map(|(node, _)| node.chunks().end - node.chunks().start);
            progress.begin("comparing chunks", Some(chunks.sum()));
        }
        for (node, folded) in unverified {
            let chunks = node.chunks();
            let rows = self.job.rows_of(chunks.start).start..self.job.rows_of(chunks.end - 1).end;
            let digests = chunks.map(|chunk| {
                progress.advance(1)?;
                source.rows_digest(chunk)
            });
            let found = rows_of_node(node, self.job.chunk_count(), digests)
                .context(|| "comparing the rows of two versions of a file, as --same-data asks")?;
            if found != Some(folded) {
                return Err(Error::mismatch(format!(
                    "rows {} to {} of {} are not those that were folded before: their digests differ; \
                     fold all rows of one version of the file",
                    rows.start,
                    rows.end - 1,
                    source.files_of(rows.clone())
                )));
            }
            read += rows.end - rows.start;
        }
        self.versions.replace_others();
        Ok(read)
    }

    /// Names the rows of a portion in messages.
    fn rows_named(&self, arrived: &Arrived<'_, S>) -> String {
        let ends = arrived.nodes.first().zip(arrived.nodes.last());
        let Some(((first, _), (last, _))) = ends else { return "no rows".to_owned() };
        let (first, last) = (first.chunks().start, last.chunks().end - 1);
        let (start, end) = (self.job.rows_of(first).start, self.job.rows_of(last).end - 1);
        format!("rows {start} to {end} (chunks {first} to {last})")
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
        let arrived = Portion::of(&self.job, &*self.statistic).read(bytes)?;
        self.insert_all(arrived)
    }

    /// Encodes all nodes as a portion, from which any number of ranks can continue later.
    ///
    /// # Errors
    /// Those of [`Portion::encode`].
    pub fn checkpoint(&self) -> Result<Vec<u8>> {
        Portion::of(&self.job, &*self.statistic).encode(self.tree.nodes(), self.versions.folded())
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
        self.tree.covered_count()
    }

    /// The number of rows that are folded.
    #[must_use]
    pub fn covered_rows(&self) -> u64 {
        // Only the last chunk can have fewer rows than the others.
        let rows = |chunk| self.job.rows_of(chunk).end - self.job.rows_of(chunk).start;
        let last = self.job.chunk_count().saturating_sub(1);
        let of_last = if self.tree.covers(last) { rows(last) } else { 0 };
        let others = self.covered_count() - u64::from(self.tree.covers(last));
        others * rows(0) + of_last
    }

    /// Returns the digest of all rows as they were folded; `None` while chunks are missing.
    #[must_use]
    pub fn rows_digest(&self) -> Option<Digest> {
        let from_the_right: Vec<_> = self.tree.nodes().map(|(_, node)| node.rows).collect();
        let whole =
            || from_the_right.into_iter().rev().reduce(|right, left| of_siblings(left, right));
        if self.is_complete() { whole() } else { None }
    }

    /// Returns the partial of all rows, and keeps the fold.
    ///
    /// # Errors
    /// As [`Reduction::finish`], and `LimitExceeded` when there is no memory for a copy.
    pub fn whole(&self) -> Result<S::Partial>
    where
        S::Partial: TryClone,
    {
        self.tree.whole()?.map(|whole| whole.partial).ok_or_else(without_rows)
    }

    /// Returns the partial of all rows.
    ///
    /// # Errors
    /// `InvalidArgument` when chunks are missing, or there are no rows.
    pub fn finish(self) -> Result<S::Partial> {
        self.tree.finish()?.map(|whole| whole.partial).ok_or_else(without_rows)
    }
}

fn without_rows() -> Error {
    Error::invalid("expected at least one row, found none")
}
