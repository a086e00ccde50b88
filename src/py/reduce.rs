//! The compiled classes of `headwater.reduce`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::Whole;
use super::arguments::{Arguments, in_range, one_of, thread_count};
use super::work::{self, Calls};
use crate::bytes::{Digest, filled};
use crate::durable::{Disk, write_file};
use crate::error::{Error, Result};
use crate::fold::Gram;
use crate::matrix::{Element, Numbers};
use crate::plan::Assignment;
use crate::process::pool;
use crate::reducer::{Blocks, GramStream, Job, OwnRows, Reduction};

/// The types of numbers, by their names in NumPy.
const ELEMENTS: [(&str, Element); 4] = [
    ("float64", Element::F64),
    ("float32", Element::F32),
    ("float16", Element::F16),
    ("bfloat16", Element::Bf16),
];

/// A `headwater.reduce.GramJob`, from its fields.
struct GramJob {
    job: Job,
    columns: usize,
    element: Element,
}

impl GramJob {
    fn of(fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let fields = Arguments(fields);
        let element = one_of("dtype", &fields.get::<String>("dtype")?, &ELEMENTS)?;
        let columns = fields.number("columns")?;
        let (rows, chunk_rows) = (fields.number("rows")?, fields.number("chunk_rows")?);
        let data = fields.get::<String>("data")?;
        let job =
            Job::of_matrix("gram", (columns, element), data.as_str(), (rows, chunk_rows), &[])?;
        Ok(Self { job, columns, element })
    }
}

/// The compiled class behind `headwater.reduce.Worker`.
#[pyclass(frozen, module = "headwater")]
pub(super) struct GramWorkerCore {
    /// Outside the lock, because a forked child may find the lock held for ever.
    process: u32,
    element: Element,
    rows: OwnRows,
    state: Mutex<WorkerState>,
}

struct WorkerState {
    stream: GramStream,
    /// The next row at the time of the last portion.
    shipped_row: u64,
}

impl GramWorkerCore {
    /// Locks the state; fails in a forked child.
    fn state(&self) -> Result<MutexGuard<'_, WorkerState>> {
        if std::process::id() != self.process {
            return Err(Error::invalid(format!(
                "this worker was made in process {}, and a forked child has none of its threads; \
                 make a worker in the child",
                self.process
            )));
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Folds rows, which the caller's array holds as `bytes`, from block to block.
    ///
    /// Another thread of Python may write to the array meanwhile. The fold reads each number once, so that a
    /// sum never has two versions of it; a copy would cost a narrow matrix 85 % more time.
    fn push_bytes(
        &self,
        bytes: &[u8],
        (count, row_bytes): (usize, usize),
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let columns = row_bytes / self.element.bytes();
        let WorkerState { stream, .. } = &mut *self.state()?;
        let mut push = |rows: &[u8], count: usize| {
            let numbers = Numbers::of_bytes([rows], self.element, (count, columns))?;
            stream.push(numbers.values(), columns, stop)?;
            let next_row = self.rows.next_own(stream.next_row());
            if next_row != stream.next_row() {
                stream.skip_to(next_row)?;
            }
            Ok::<_, Error>(next_row)
        };
        // No row, so that the form is checked before any is taken.
        let mut next_row = push(&[], 0)?;
        self.rows.check_count(next_row, count as u64)?;
        let mut left = bytes;
        while !left.is_empty() {
            let of_run = self.rows.left_of_run(next_row);
            let some = usize::try_from(of_run).unwrap_or(usize::MAX).min(left.len() / row_bytes);
            let (rows, after) = left.split_at(some * row_bytes);
            next_row = push(rows, some)?;
            left = after;
        }
        Ok(())
    }
}

#[pymethods]
impl GramWorkerCore {
    #[new]
    fn new(fields: &Bound<'_, PyDict>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let GramJob { job, columns, element } = GramJob::of(fields)?;
        let options = Arguments(options);
        let assignment = Assignment::new(options.number("rank")?, options.number("world")?)?;
        let block_chunks: u64 = options.number("block_chunks")?;
        if !block_chunks.is_power_of_two() {
            return Err(Error::invalid(format!(
                "block_chunks: expected a power of two, such as 64, found {block_chunks}"
            ))
            .into());
        }
        let blocks = Blocks::new(job.chunk_count(), block_chunks.ilog2())?;
        let rows = OwnRows::new(&job, blocks, assignment);
        let first_row: Option<Whole> = options.get("first_row")?;
        let first_row = first_row.map(|row| in_range("first_row", row.0)).transpose()?;
        let first_row = first_row.unwrap_or_else(|| rows.first());
        let pool = pool(thread_count("threads", options.get("threads")?)?)?;
        let stream = GramStream::new(job, (columns, element), first_row, pool)?;
        if rows.next_own(first_row) != first_row {
            return Err(Error::invalid(format!(
                "expected a first row that rank {} of {} owns, such as {}, found {first_row}",
                assignment.rank(),
                assignment.world(),
                rows.next_own(first_row)
            ))
            .into());
        }
        let state = Mutex::new(WorkerState { stream, shipped_row: first_row });
        Ok(Self { process: std::process::id(), element, rows, state })
    }

    /// Appends rows, each as the bytes of its numbers.
    fn push(&self, py: Python<'_>, rows: PyReadonlyArray2<'_, u8>) -> PyResult<()> {
        let (count, row_bytes) = rows.as_array().dim();
        let bytes = rows.as_slice()?;
        let calls = Calls::default();
        let done = work::run(py, &calls, || {
            self.push_bytes(bytes, (count, row_bytes), &|| calls.stopped())
        })?;
        calls.settle(py, done)
    }

    /// Returns a portion of the chunks that were finished since the last portion.
    fn portion<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let portion = py.detach(|| {
            let WorkerState { stream, shipped_row, .. } = &mut *self.state()?;
            let portion = stream.portion()?;
            *shipped_row = stream.next_row();
            Ok::<_, Error>(portion)
        })?;
        to_bytes(py, &portion)
    }

    /// Returns the cursor after the blocks whose sums were all returned in portions.
    fn cursor<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let cursor =
            py.detach(|| self.rows.cursor_at(self.state()?.shipped_row).encode(self.rows.job()))?;
        to_bytes(py, &cursor)
    }

    /// Continues at a cursor of this worker.
    fn resume(&self, py: Python<'_>, cursor: &[u8]) -> PyResult<()> {
        py.detach(|| {
            let row = self.rows.resume(cursor)?;
            let WorkerState { stream, shipped_row, .. } = &mut *self.state()?;
            stream.skip_to(row)?;
            *shipped_row = row;
            Ok::<_, Error>(())
        })?;
        Ok(())
    }

    /// The next row that the worker expects.
    #[getter]
    fn next_row(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(py.detach(|| Ok::<_, Error>(self.state()?.stream.next_row()))?)
    }
}

/// The compiled class behind `headwater.reduce.Reduction`.
#[pyclass(frozen, module = "headwater")]
pub(super) struct GramReductionCore(Mutex<Reduction<Gram>>);

impl GramReductionCore {
    /// Returns `call` of the reduction, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Reduction<Gram>) -> T + Send,
    ) -> T {
        py.detach(|| call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl GramReductionCore {
    #[new]
    fn new(fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let GramJob { job, columns, .. } = GramJob::of(fields)?;
        Ok(Self(Mutex::new(Reduction::new(job, Arc::new(Gram::new(columns)?)))))
    }

    /// Inserts the nodes of a portion; returns the number of new nodes.
    fn receive(&self, py: Python<'_>, portion: &[u8]) -> PyResult<usize> {
        Ok(self.with(py, |reduction| reduction.receive(portion))?)
    }

    /// Returns a portion of all nodes.
    fn portion<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let portion = self.with(py, |reduction| reduction.checkpoint())?;
        to_bytes(py, &portion)
    }

    /// Writes the portion to a file, completely or not at all.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(self.with(py, |reduction| write_file(&Disk, &path, &reduction.checkpoint()?))?)
    }

    /// Returns the ranges of rows that are not folded yet: for each the first row and the end.
    fn missing(&self, py: Python<'_>) -> Vec<(u64, u64)> {
        self.with(py, |reduction| {
            let job = reduction.job();
            let rows = |chunk| job.rows_of(chunk).start;
            let chunks = reduction.missing().into_iter();
            chunks.map(|chunks| (rows(chunks.start), rows(chunks.end))).collect()
        })
    }

    /// Whether all rows are folded.
    #[getter]
    fn is_complete(&self, py: Python<'_>) -> bool {
        self.with(py, |reduction| reduction.is_complete())
    }

    /// Returns the Gram matrix of all rows, both halves.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let (gram, columns) = self.with(py, |reduction| {
            let (gram, columns) = (reduction.whole()?, reduction.statistic().columns());
            let mut whole = filled(0.0, columns * columns)?;
            gram.unfold(0, &mut whole);
            Ok::<_, Error>((whole, columns))
        })?;
        PyArray1::from_vec(py, gram).reshape([columns, columns])
    }

    /// The digest of the upper half of the Gram matrix, as `headwater-reduce gram` prints it.
    #[getter]
    fn digest(&self, py: Python<'_>) -> PyResult<String> {
        let gram = self.with(py, |reduction| reduction.whole())?;
        Ok(py.detach(|| Digest::of(bytemuck::cast_slice(gram.values())).to_string()))
    }
}

/// Copies bytes to Python; raises `MemoryError` when there is no memory.
fn to_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, bytes.len(), |room| {
        room.copy_from_slice(bytes);
        Ok(())
    })
}
