//! Folds rows that arrive in pieces and are in no file, such as activations.

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

use rayon::ThreadPool;

use crate::bytes::{append, copied, make_room};
use crate::error::{Error, Result};
use crate::fold::statistic::TryClone;
use crate::fold::{Node, Partial, Rows, Tree, Values};
use crate::matrix::{Element, Numbers};
use crate::process::{check_threads, pool};

use super::arrays::{Arrays, ChunkOfArrays, Form, OfArrays};
use super::job::Job;
use super::matrices::{FINITE_REMEDY, at_once, operations};
use super::portion::Portion;
use super::sourced::Sourced;

/// The fold of the rows of a job that arrive in order from some row, in pieces of any size.
///
/// # Determinism
/// The nodes of its portions depend on the job and its rows, not on the pieces or on the threads.
///
/// # Cost
/// It keeps the rows of one unfinished chunk, and the merged partials of the finished chunks since the
/// last portion: one for each bit of their number. Its threads start when the first chunk is finished.
pub struct Stream<S: OfArrays> {
    job: Job,
    form: Arrays,
    statistic: Arc<S>,
    thread_count: Option<usize>,
    threads: OnceCell<ThreadPool>,
    /// The finished chunks since the last portion.
    tree: Tree<Sourced<S::Partial>>,
    next_row: u64,
    /// The rows of the unfinished chunk, those of each array apart.
    begun: Vec<Vec<u8>>,
    /// The job and the part, if the rows are those of a part.
    part: Option<(Job, u64)>,
    /// The number of the first row of the part in the whole.
    part_start: u64,
}

/// What a stream has folded and not returned, to go on in another process.
pub struct Begun {
    /// A portion of the finished chunks.
    pub portion: Vec<u8>,
    /// The next row.
    pub next_row: u64,
    /// The bytes of the rows of the unfinished chunk, those of each array apart.
    pub rows: Vec<Vec<u8>>,
}

impl<S: OfArrays> Stream<S> {
    /// Returns a stream for the rows of `job`, which are in arrays of this form, from `first_row` on;
    /// `thread_count` threads fold them (default: one for each core).
    ///
    /// # Errors
    /// `InvalidArgument` when `first_row` is not the first row of a chunk, and for 0 or more than 1,024
    /// threads.
    pub fn new(
        job: Job,
        form: Arrays,
        statistic: Arc<S>,
        first_row: u64,
        thread_count: Option<usize>,
    ) -> Result<Self> {
        check_threads(thread_count)?;
        let begin = job.rows_of(job.chunk_of(first_row)).start;
        if first_row != begin && first_row != job.rows() {
            return Err(Error::invalid(format!(
                "expected a first row that begins a chunk, a multiple of {} below {}, found {first_row}",
                job.chunk_rows(),
                job.rows()
            )));
        }
        let tree = Tree::new(job.chunk_count());
        let begun = vec![Vec::new(); form.pushed().len()];
        Ok(Self {
            job,
            form,
            statistic,
            thread_count,
            threads: OnceCell::new(),
            tree,
            next_row: first_row,
            begun,
            part: None,
            part_start: 0,
        })
    }

    /// Returns a stream for the rows of a part of `job`, from its first on.
    ///
    /// # Errors
    /// `InvalidArgument` for a part that the job does not have, and those of [`Stream::new`].
    pub fn of_part(
        job: &Job,
        form: Arrays,
        statistic: Arc<S>,
        part: u64,
        thread_count: Option<usize>,
    ) -> Result<Self> {
        let (rows, part_start) = job.part(part)?;
        let stream = Self::new(rows, form, statistic, 0, thread_count)?;
        Ok(Self { part: Some((job.clone(), part)), part_start, ..stream })
    }

    /// Continues at a later row, which begins a chunk: another worker folds the rows between.
    ///
    /// # Errors
    /// `InvalidArgument` amid a chunk, and when `row` is before the next row or within a chunk.
    pub fn skip_to(&mut self, row: u64) -> Result<()> {
        let begins_chunk = row == self.job.rows() || row.is_multiple_of(self.job.chunk_rows());
        let is_amid = self.begun.iter().any(|rows| !rows.is_empty());
        if is_amid || row < self.next_row || row > self.job.rows() || !begins_chunk {
            return Err(Error::invalid(format!(
                "expected to continue at the first row of a later chunk, found row {row} after the \
                 rows before {}; continue in a new worker",
                self.next_row
            )));
        }
        self.next_row = row;
        Ok(())
    }

    /// The form of the arrays.
    #[must_use]
    pub fn form(&self) -> &Arrays {
        &self.form
    }

    /// The next row that the stream expects.
    #[must_use]
    pub fn next_row(&self) -> u64 {
        self.next_row
    }

    /// Whether `count` rows more finish a chunk.
    fn finishes(&self, count: u64) -> bool {
        let chunk = self.job.rows_of(self.job.chunk_of(self.next_row));
        count > 0 && self.next_row.saturating_add(count) >= chunk.end
    }

    /// About how many operations it takes to push `count` rows more: none if they finish no chunk.
    #[must_use]
    pub fn operations(&self, count: u64) -> u64 {
        let begun = self.next_row % self.job.chunk_rows();
        match self.finishes(count) {
            true => operations(&*self.statistic, count.saturating_add(begun)),
            false => 0,
        }
    }

    /// Appends the rows of each array, and folds the chunks that they finish; calls `stop` between
    /// chunks. Of each array it takes the numbers, row by row, and the number of columns.
    ///
    /// # Errors
    /// `InvalidArgument` for rows of another type or number of columns, for arrays with different numbers
    /// of rows, and for more rows than the job has; then none is appended. `LimitExceeded` when there is
    /// no memory for a chunk or its sums, or no thread, and `Interrupted` when `stop` returns true; then
    /// the rows before [`Stream::next_row`] are.
    pub fn push(&mut self, arrays: &[(Values<'_>, usize)], stop: &dyn Fn() -> bool) -> Result<()> {
        self.check(arrays)?;
        let mut left: Vec<&[u8]> = arrays.iter().map(|(values, _)| in_bytes(*values).1).collect();
        while left.iter().any(|rows| !rows.is_empty()) {
            if stop() {
                return Err(Error::interrupted(format!("stopped before row {}", self.next_row)));
            }
            self.take_some(&mut left)?;
        }
        Ok(())
    }

    fn check(&self, arrays: &[(Values<'_>, usize)]) -> Result<()> {
        let pushed = self.form.pushed();
        if arrays.len() != pushed.len() {
            let names: Vec<_> = pushed.iter().map(|(name, _)| *name).collect();
            return Err(Error::invalid(format!(
                "expected {} as in the job, found {} arrays",
                names.join(", "),
                arrays.len()
            )));
        }
        let mut counts = Vec::new();
        for ((name, form), (values, columns)) in pushed.iter().zip(arrays) {
            counts.push(check_form(name, *form, *values, *columns)?);
        }
        let count = counts[0];
        if let Some(other) = counts.iter().position(|found| *found != count) {
            return Err(Error::invalid(format!(
                "expected as many rows in {} as the {count} of X, found {}",
                pushed[other].0, counts[other]
            )));
        }
        if self.form.finite_only {
            for ((name, _), (values, columns)) in pushed.iter().zip(arrays) {
                self.check_finite(name, *values, *columns)?;
            }
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

    /// Rejects NaN and infinities in the next rows.
    fn check_finite(&self, name: &str, values: Values<'_>, columns: usize) -> Result<()> {
        let rows = Rows::new(values, values.len() / columns, columns, columns)?;
        let Some((row, column, value)) = rows.first_nonfinite() else { return Ok(()) };
        Err(Error::data(format!(
            "{name}: row {}, column {column}: expected a finite number, found {value} (rows and columns \
             count from 0); {FINITE_REMEDY}",
            self.next_row + row as u64
        )))
    }

    /// Folds the chunks that `rows` finishes, at most as many as are folded at a time, or keeps the rows
    /// when it finishes none; leaves the rows after them.
    fn take_some(&mut self, rows: &mut [&[u8]]) -> Result<()> {
        let row_bytes: Vec<usize> =
            self.form.pushed().iter().map(|(_, (columns, of))| columns * of.bytes()).collect();
        let count = (rows[0].len() / row_bytes[0]) as u64;
        if !self.finishes(count) {
            return self.keep(rows, count);
        }
        let threads = self.threads()?;
        let first = self.job.chunk_of(self.next_row);
        let last =
            self.job.chunk_count().min(first + at_once(&*self.statistic, &self.job, threads));
        let (mut next_row, mut left) = (self.next_row, rows.to_vec());
        let mut finished = Vec::new();
        for chunk in first..last {
            let chunk_rows = self.job.rows_of(chunk);
            let wanted = chunk_rows.end - next_row;
            if wanted > (left[0].len() / row_bytes[0]) as u64 {
                break;
            }
            let mut own = Vec::with_capacity(left.len());
            for (left, row_bytes) in left.iter_mut().zip(&row_bytes) {
                let (of_chunk, after) = left.split_at(wanted as usize * row_bytes);
                own.push(of_chunk);
                *left = after;
            }
            finished.push(self.chunk(chunk_rows.clone(), (chunk == first, &own))?);
            next_row = chunk_rows.end;
        }
        let leaves = self.statistic.leaves_of_arrays(&self.form, &finished, threads)?;
        for (chunk, leaf) in (first..).zip(leaves) {
            self.tree.insert(Node::leaf(chunk)?, leaf)?;
        }
        self.begun.iter_mut().for_each(Vec::clear);
        self.next_row = next_row;
        rows.copy_from_slice(&left);
        Ok(())
    }

    /// The threads, which start when they are first needed.
    fn threads(&self) -> Result<&ThreadPool> {
        match self.threads.get() {
            Some(threads) => Ok(threads),
            None => {
                let started = pool(self.thread_count)?;
                Ok(self.threads.get_or_init(|| started))
            }
        }
    }

    /// Returns a chunk of `own` rows, after those of the unfinished chunk if it continues it.
    fn chunk<'a>(
        &'a self,
        rows: Range<u64>,
        (continues, own): (bool, &[&'a [u8]]),
    ) -> Result<ChunkOfArrays<'a>> {
        let count = (rows.end - rows.start) as usize;
        let pushed = self.form.pushed().into_iter().zip(&self.begun).zip(own);
        let arrays = pushed.map(|(((_, (columns, element)), begun), own)| {
            let begun: &[u8] = if continues { begun } else { &[] };
            Numbers::of_bytes([begun, *own], element, (count, columns))
        });
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        ChunkOfArrays::of(&self.form, self.part_start + rows.start, arrays)
            .ok_or_else(|| Error::invalid("expected rows of X, found none"))
    }

    /// Keeps `count` rows of an unfinished chunk.
    fn keep(&mut self, rows: &mut [&[u8]], count: u64) -> Result<()> {
        // All of them or none: rows of one array without those of another could not be told.
        for (begun, rows) in self.begun.iter_mut().zip(&*rows) {
            make_room(begun, rows.len())?;
        }
        for (begun, rows) in self.begun.iter_mut().zip(rows) {
            append(begun, std::mem::take(rows))?;
        }
        self.next_row += count;
        Ok(())
    }

    /// Returns a portion of the chunks that were finished since the last portion; of a part, that of all
    /// its rows so far.
    ///
    /// # Errors
    /// Those of [`Portion::encode`], and of folding the unfinished chunk of a part.
    pub fn portion(&mut self) -> Result<Vec<u8>> {
        if let Some((job, part)) = &self.part {
            let whole = self.whole()?;
            let node = (Node::leaf(*part)?, &whole);
            return Portion::of(job, &*self.statistic).encode([node].into_iter(), &[]);
        }
        let portion = self.unreturned()?;
        self.tree = Tree::new(self.job.chunk_count());
        Ok(portion)
    }

    /// Returns the partial of all rows, as the tree of their chunks gives it.
    fn whole(&self) -> Result<Sourced<S::Partial>> {
        let begun = self.next_row % self.job.chunk_rows();
        let mut nodes = Vec::new();
        for (_, node) in self.tree.nodes() {
            nodes.push(node.try_clone()?);
        }
        // A part without rows has the partial of a chunk without rows.
        if begun > 0 || nodes.is_empty() {
            let none = vec![&[][..]; self.begun.len()];
            let last = self.chunk(self.next_row - begun..self.next_row, (true, &none))?;
            nodes.extend(self.statistic.leaves_of_arrays(&self.form, &[last], self.threads()?)?);
        }
        let from_the_right = nodes.into_iter().rev().reduce(|right, mut left| {
            left.merge(&right);
            left
        });
        from_the_right.ok_or_else(|| Error::invalid("expected a chunk, found none"))
    }

    fn unreturned(&self) -> Result<Vec<u8>> {
        Portion::of(&self.job, &*self.statistic).encode(self.tree.nodes(), &[])
    }

    /// Returns what was folded and not returned, and keeps it.
    ///
    /// # Errors
    /// `LimitExceeded` when there is no memory.
    pub fn begun(&self) -> Result<Begun> {
        let rows = self.begun.iter().map(|rows| copied(rows)).collect::<Result<_>>()?;
        Ok(Begun { portion: self.unreturned()?, next_row: self.next_row, rows })
    }

    /// Goes on where another stream of the job was.
    ///
    /// # Errors
    /// Those of [`Portion::read`]; `Corrupt` for rows that are not those between the beginning of a chunk
    /// and the next row. Then the stream is unchanged.
    pub fn go_on(&mut self, begun: Begun) -> Result<()> {
        let chunk = self.job.rows_of(self.job.chunk_of(begun.next_row));
        // The row after the last begins no chunk.
        let amid = if begun.next_row == self.job.rows() { 0 } else { begun.next_row - chunk.start };
        let lengths =
            self.form.pushed().into_iter().map(|(_, (columns, element))| {
                amid.checked_mul((columns * element.bytes()) as u64)
            });
        let found = begun.rows.iter().map(|rows| Some(rows.len() as u64));
        if begun.next_row > self.job.rows() || !found.eq(lengths) {
            return Err(Error::corrupt(format!(
                "expected the rows of an unfinished chunk before row {}, found other bytes; fold the \
                 rows again in a new worker",
                begun.next_row
            )));
        }
        let arrived = Portion::of(&self.job, &*self.statistic).read(&begun.portion)?;
        let mut tree = Tree::new(self.job.chunk_count());
        tree.insert_all(arrived.nodes)?;
        (self.tree, self.next_row, self.begun) = (tree, begun.next_row, begun.rows);
        Ok(())
    }
}

/// Checks the rows of one array; returns their number.
fn check_form(name: &str, form: Form, values: Values<'_>, columns: usize) -> Result<u64> {
    let (element, _) = in_bytes(values);
    if (columns, element) != form {
        return Err(Error::invalid(format!(
            "expected {name} of {} columns of {} as in the job, found {columns} of {}",
            form.0,
            form.1.name(),
            element.name()
        )));
    }
    let (count, over) = ((values.len() / columns) as u64, values.len() % columns);
    if over != 0 {
        return Err(Error::invalid(format!(
            "expected whole rows of {columns} columns, found {over} numbers after row {count}"
        )));
    }
    Ok(count)
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
