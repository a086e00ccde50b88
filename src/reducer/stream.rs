//! Folds rows that arrive in pieces and are in no file, such as activations.

use rayon::ThreadPool;

use crate::bytes::append;
use crate::error::{Error, Result};
use crate::fold::columns::NumberedRows;
use crate::fold::gram::Triangle;
use crate::fold::{Gram, Node, Tree, Values};
use crate::matrix::{Element, Numbers};

use super::job::Job;
use super::matrices::{OfRows, at_once};
use super::portion::Portion;
use super::sourced::Sourced;

/// The Gram of the rows of a job that arrive in order from some row, in pieces of any size.
///
/// # Determinism
/// The nodes of its portions depend on the job and its rows, not on the pieces or on the threads.
///
/// # Cost
/// It keeps the rows of one unfinished chunk, and the merged partials of the finished chunks since the
/// last portion: one for each bit of their number.
pub struct GramStream {
    job: Job,
    element: Element,
    gram: Gram,
    threads: ThreadPool,
    /// The finished chunks since the last portion.
    tree: Tree<Sourced<Triangle>>,
    next_row: u64,
    /// The rows of the unfinished chunk.
    begun: Vec<u8>,
}

impl GramStream {
    /// Returns a stream for the rows of `job`, of `columns` numbers each, from `first_row` on.
    ///
    /// # Errors
    /// Those of [`Gram::new`]; `InvalidArgument` when `first_row` is not the first row of a chunk.
    pub fn new(
        job: Job,
        (columns, element): (usize, Element),
        first_row: u64,
        threads: ThreadPool,
    ) -> Result<Self> {
        let begin = job.rows_of(job.chunk_of(first_row)).start;
        if first_row != begin && first_row != job.rows() {
            return Err(Error::invalid(format!(
                "expected a first row that begins a chunk, a multiple of {} below {}, found {first_row}",
                job.chunk_rows(),
                job.rows()
            )));
        }
        let tree = Tree::new(job.chunk_count());
        let gram = Gram::new(columns)?;
        Ok(Self { job, element, gram, threads, tree, next_row: first_row, begun: Vec::new() })
    }

    /// Continues at a later row, which begins a chunk: another worker folds the rows between.
    ///
    /// # Errors
    /// `InvalidArgument` amid a chunk, and when `row` is before the next row or within a chunk.
    pub fn skip_to(&mut self, row: u64) -> Result<()> {
        let begins_chunk = row == self.job.rows() || row.is_multiple_of(self.job.chunk_rows());
        if !self.begun.is_empty() || row < self.next_row || row > self.job.rows() || !begins_chunk {
            return Err(Error::invalid(format!(
                "expected to continue at the first row of a later chunk, found row {row} after the \
                 rows before {}; continue in a new worker",
                self.next_row
            )));
        }
        self.next_row = row;
        Ok(())
    }

    /// The next row that the stream expects.
    #[must_use]
    pub fn next_row(&self) -> u64 {
        self.next_row
    }

    /// Appends rows of `columns` numbers each, and folds the chunks that they finish; calls `stop`
    /// between chunks.
    ///
    /// # Errors
    /// `InvalidArgument` for rows of another type or number of columns, and for more rows than the job
    /// has; then none is appended. `LimitExceeded` when there is no memory for a chunk or its sums, and
    /// `Interrupted` when `stop` returns true; then the rows before [`GramStream::next_row`] are.
    pub fn push(
        &mut self,
        rows: Values<'_>,
        columns: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        self.check(rows, columns)?;
        let (_, mut left) = in_bytes(rows);
        while !left.is_empty() {
            if stop() {
                return Err(Error::interrupted(format!("stopped before row {}", self.next_row)));
            }
            left = self.take_some(left)?;
        }
        Ok(())
    }

    fn check(&self, rows: Values<'_>, columns: usize) -> Result<()> {
        let (element, _) = in_bytes(rows);
        if (columns, element) != (self.gram.columns(), self.element) {
            return Err(Error::invalid(format!(
                "expected rows of {} columns of {} as in the job, found {columns} of {}",
                self.gram.columns(),
                self.element.name(),
                element.name()
            )));
        }
        let (count, over) = ((rows.len() / columns) as u64, rows.len() % columns);
        if over != 0 {
            return Err(Error::invalid(format!(
                "expected whole rows of {columns} columns, found {over} numbers after row {count}"
            )));
        }
        let missing = self.job.rows() - self.next_row;
        if count > missing {
            return Err(Error::invalid(format!(
                "expected at most {missing} more of the {} rows of the job, found {count}; set the \
                 number of rows of the job to the total of all pieces",
                self.job.rows()
            )));
        }
        Ok(())
    }

    /// Folds the chunks that `rows` finishes, at most as many as are folded at a time, or keeps the rows
    /// when it finishes none; returns the rows after them.
    fn take_some<'a>(&mut self, rows: &'a [u8]) -> Result<&'a [u8]> {
        let row_bytes = self.gram.columns() * self.element.bytes();
        let first = self.job.chunk_of(self.next_row);
        let last =
            self.job.chunk_count().min(first + at_once(&self.gram, &self.job, &self.threads));
        let (mut next_row, mut left) = (self.next_row, rows);
        let mut finished = Vec::new();
        for chunk in first..last {
            let chunk_rows = self.job.rows_of(chunk);
            let wanted = chunk_rows.end - next_row;
            if wanted > (left.len() / row_bytes) as u64 {
                break;
            }
            let (own, after) = left.split_at(wanted as usize * row_bytes);
            let begun = if chunk == first { self.begun.as_slice() } else { &[] };
            let form = ((chunk_rows.end - chunk_rows.start) as usize, self.gram.columns());
            finished.push(Numbers::of_bytes([begun, own], self.element, form)?);
            (next_row, left) = (chunk_rows.end, after);
        }
        if finished.is_empty() {
            append(&mut self.begun, rows)?;
            self.next_row += (rows.len() / row_bytes) as u64;
            return Ok(&[]);
        }
        let chunks = (first..).zip(&finished).map(|(chunk, numbers)| {
            numbers.rows().map(|rows| NumberedRows { first: self.job.rows_of(chunk).start, rows })
        });
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let read: Vec<_> = finished.iter().collect();
        let leaves = self.gram.sourced_leaves(&chunks, &read, &self.threads)?;
        for (chunk, leaf) in (first..).zip(leaves) {
            self.tree.insert(Node::leaf(chunk)?, leaf)?;
        }
        self.begun.clear();
        self.next_row = next_row;
        Ok(left)
    }

    /// Returns a portion of the chunks that were finished since the last portion.
    ///
    /// # Errors
    /// Those of [`Portion::encode`].
    pub fn portion(&mut self) -> Result<Vec<u8>> {
        let portion = Portion::of(&self.job, &self.gram).encode(self.tree.nodes(), &[])?;
        self.tree = Tree::new(self.job.chunk_count());
        Ok(portion)
    }
}

/// The type of the numbers, and their bytes.
fn in_bytes(values: Values<'_>) -> (Element, &[u8]) {
    match values {
        Values::F64(values) => (Element::F64, bytemuck::cast_slice(values)),
        Values::F32(values) => (Element::F32, bytemuck::cast_slice(values)),
        Values::F16(values) => (Element::F16, bytemuck::cast_slice(values)),
        Values::Bf16(values) => (Element::Bf16, bytemuck::cast_slice(values)),
    }
}
