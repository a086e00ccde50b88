//! The compiled classes of `headwater.reduce`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater::Digest;
use headwater::durable::{Disk, write_file};
use headwater::internal::{check_process, copied};
use headwater::plan::Assignment;
use headwater::reducer::{Begun, Blocks, Job, OwnRows, leaf_portion};
use headwater::{Error, Result};
use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::Whole;
use crate::arguments::{Argument, Arguments, thread_count};
use crate::errors::PyResult;
use crate::folds::{AnyReduction, AnyStream, Stop, SumJob, open, reduction};
use crate::matrix::Matrix;
use crate::objects::to_bytes;
use crate::work::{self, Calls};

/// The most operations of a push on the calling thread, which does not look for Ctrl-C meanwhile: some ten
/// milliseconds. Another thread would cost more than a push of few rows.
const QUICK_OPERATIONS: u64 = 10_000_000;

/// The compiled class behind `headwater.reduce.Worker`.
#[pyclass(frozen, module = "headwater")]
pub(super) struct WorkerCore {
    /// Outside the lock, because a forked child may find the lock held for ever.
    process: u32,
    /// The rows of the job that the worker owns; none for a part, whose rows are all its own.
    own: Option<OwnRows>,
    state: Mutex<WorkerState>,
}

struct WorkerState {
    stream: Box<dyn AnyStream>,
    /// The next row at the time of the last portion.
    shipped_row: u64,
}

/// What a worker has folded, for a pickle: a portion, the next row, the one at the time of the last portion,
/// and the rows of the unfinished chunk.
type Pickled<B> = (B, u64, u64, Vec<B>);

/// The rows of an array: their bytes, their number, and the bytes of each.
type Bytes<'a> = (&'a [u8], (usize, usize));

impl WorkerCore {
    /// Locks the state; fails in a forked child.
    fn state(&self) -> Result<MutexGuard<'_, WorkerState>> {
        check_process(self.process, "worker", "make a worker in the child")?;
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The rows that the worker owns.
    fn own(&self) -> Result<&OwnRows> {
        self.own
            .as_ref()
            .ok_or_else(|| Error::invalid("expected a worker of rows, found one of a part"))
    }

    /// Folds the rows of arrays, which the caller holds, from block to block.
    ///
    /// Another thread of Python may write to the arrays meanwhile. The fold of a Gram reads each number once,
    /// so that a sum never has two versions of it; a copy would cost a narrow matrix 85 % more time.
    fn push_bytes(&self, arrays: &[Bytes<'_>], stop: Stop<'_>) -> Result<()> {
        let WorkerState { stream, .. } = &mut *self.state()?;
        let count = arrays.first().map_or(0, |(_, (count, _))| *count);
        if let Some((_, (other, _))) = arrays.iter().find(|(_, (other, _))| *other != count) {
            return Err(Error::invalid(format!(
                "expected as many rows in each array as the {count} of the first, found {other}"
            )));
        }
        let mut push = |begin: usize, end: usize| {
            let slices = arrays.iter().map(|(bytes, (_, row_bytes))| {
                (&bytes[begin * row_bytes..end * row_bytes], (end - begin, *row_bytes))
            });
            stream.push(&slices.collect::<Vec<_>>(), stop)?;
            let Some(own) = &self.own else { return Ok(stream.next_row()) };
            let next_row = own.next_own(stream.next_row());
            if next_row != stream.next_row() {
                stream.skip_to(next_row)?;
            }
            Ok::<_, Error>(next_row)
        };
        // No row, so that the form is checked before any is taken.
        let mut next_row = push(0, 0)?;
        let Some(own) = &self.own else { return push(0, count).map(drop) };
        own.check_count(next_row, count as u64)?;
        let mut begin = 0;
        while begin < count {
            let of_run = own.left_of_run(next_row);
            let end = begin + usize::try_from(of_run).unwrap_or(usize::MAX).min(count - begin);
            next_row = push(begin, end)?;
            begin = end;
        }
        Ok(())
    }
}

/// Returns the rows that the rank in `options` owns.
fn own_rows(job: &Job, options: &Arguments<'_, '_>) -> PyResult<OwnRows> {
    let assignment = Assignment::new(options.number("rank")?, options.number("world")?)?;
    let block_chunks: u64 = options.number("block_chunks")?;
    if !block_chunks.is_power_of_two() {
        return Err(Error::invalid(format!(
            "block_chunks: expected a power of two, such as 64, found {block_chunks}"
        ))
        .into());
    }
    let blocks = Blocks::new(job.chunk_count(), block_chunks.ilog2())?;
    Ok(OwnRows::new(job, blocks, assignment))
}

#[pymethods]
impl WorkerCore {
    #[new]
    fn new(fields: &Bound<'_, PyDict>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let open = open(fields)?;
        let options = Arguments(options);
        let threads = thread_count("threads", options.get("threads")?)?;
        let process = std::process::id();
        if let Some(part) = options.optional_number("part")? {
            let stream = open.part(part, threads)?;
            let state = Mutex::new(WorkerState { stream, shipped_row: 0 });
            return Ok(Self { process, own: None, state });
        }
        let own = own_rows(open.job(), &options)?;
        let first_row = options.optional_number("first_row")?.unwrap_or_else(|| own.first());
        let stream = open.stream(first_row, threads)?;
        own.check_begin(first_row)?;
        let state = Mutex::new(WorkerState { stream, shipped_row: first_row });
        Ok(Self { process, own: Some(own), state })
    }

    /// Appends rows of each array, each as the bytes of its numbers.
    fn push(&self, py: Python<'_>, arrays: Vec<PyReadonlyArray2<'_, u8>>) -> PyResult<()> {
        let bytes = arrays.iter().map(|rows| Ok((rows.as_slice()?, rows.as_array().dim())));
        let bytes: Vec<Bytes<'_>> = bytes.collect::<PyResult<_>>()?;
        let count = bytes.first().map_or(0, |(_, (count, _))| *count as u64);
        let quick = py.detach(|| {
            if self.state()?.stream.operations(count) > QUICK_OPERATIONS {
                return Ok(false);
            }
            self.push_bytes(&bytes, &|| false).map(|()| true)
        })?;
        if quick {
            return Ok(());
        }
        let calls = Calls::default();
        let done = work::run(py, &calls, || self.push_bytes(&bytes, &|| calls.stopped()))?;
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
        let cursor = py.detach(|| {
            let own = self.own()?;
            own.cursor_at(self.state()?.shipped_row).encode(own.job())
        })?;
        to_bytes(py, &cursor)
    }

    /// Continues at a cursor of this worker.
    fn resume(&self, py: Python<'_>, cursor: &[u8]) -> PyResult<()> {
        py.detach(|| {
            let row = self.own()?.resume(cursor)?;
            let WorkerState { stream, shipped_row, .. } = &mut *self.state()?;
            stream.skip_to(row)?;
            *shipped_row = row;
            Ok::<_, Error>(())
        })?;
        Ok(())
    }

    /// Returns what was folded and not returned.
    fn begun<'py>(&self, py: Python<'py>) -> PyResult<Pickled<Bound<'py, PyBytes>>> {
        let (Begun { portion, next_row, rows }, shipped_row) = py.detach(|| {
            let state = self.state()?;
            Ok::<_, Error>((state.stream.begun()?, state.shipped_row))
        })?;
        let rows = rows.iter().map(|rows| to_bytes(py, rows)).collect::<PyResult<_>>()?;
        Ok((to_bytes(py, &portion)?, next_row, shipped_row, rows))
    }

    /// Goes on where another worker with the same options was.
    fn go_on(&self, py: Python<'_>, begun: Pickled<PyBackedBytes>) -> PyResult<()> {
        let (portion, next_row, shipped_row, rows) = begun;
        py.detach(|| {
            let rows = rows.iter().map(|rows| copied(rows)).collect::<Result<_>>()?;
            let state = &mut *self.state()?;
            state.stream.go_on(Begun { portion: copied(&portion)?, next_row, rows })?;
            state.shipped_row = shipped_row;
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
pub(super) struct ReductionCore(Mutex<Box<dyn AnyReduction>>);

impl ReductionCore {
    /// Returns `call` of the reduction, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut dyn AnyReduction) -> T + Send,
    ) -> T {
        py.detach(|| call(&mut **self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl ReductionCore {
    #[new]
    fn new(fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        Ok(Self(Mutex::new(reduction(fields)?)))
    }

    /// Inserts the nodes of a portion; returns the number of new nodes.
    fn receive(&self, py: Python<'_>, portion: &[u8]) -> PyResult<usize> {
        Ok(self.with(py, |reduction| reduction.receive(portion))?)
    }

    /// Returns a portion of all nodes.
    fn portion<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let portion = self.with(py, |reduction| reduction.portion())?;
        to_bytes(py, &portion)
    }

    /// Writes the portion to a file, completely or not at all.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(self.with(py, |reduction| write_file(&Disk, &path, &reduction.portion()?))?)
    }

    /// Returns the ranges of rows that are not folded yet: for each the first row and the end.
    fn missing(&self, py: Python<'_>) -> Vec<(u64, u64)> {
        self.with(py, |reduction| reduction.missing())
    }

    /// Whether all rows are folded.
    #[getter]
    fn is_complete(&self, py: Python<'_>) -> bool {
        self.with(py, |reduction| reduction.is_complete())
    }

    /// Returns the partial of all rows, as fold/FORMAT.md has its bytes.
    fn whole<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let whole = self.with(py, |reduction| reduction.whole())?;
        to_bytes(py, &whole)
    }

    /// Returns what the next pass over the rows begins with; none after the last.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let next = self.with(py, |reduction| reduction.next())?;
        next.map(|known| to_bytes(py, &known)).transpose()
    }

    /// Returns the numbers of the result that are not in the bytes of the partial.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let figures = self.with(py, |reduction| reduction.figures())?;
        Ok(PyArray1::from_vec(py, figures))
    }

    /// The digest of the partial of all rows, as `headwater-reduce` prints it.
    #[getter]
    fn digest(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.with(py, |reduction| Ok::<_, Error>(Digest::of(&reduction.whole()?).to_string()))?)
    }
}

/// Returns the portion of all rows of files: X, and Y where the job has it.
#[pyfunction]
pub(super) fn fold_files<'py>(
    py: Python<'py>,
    fields: &Bound<'py, PyDict>,
    files: Vec<PyRef<'py, Matrix>>,
    threads: Option<Whole>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (open, threads) = (open(fields)?, thread_count("threads", threads)?);
    let files = files.iter().map(|matrix| matrix.files()).collect();
    let calls = Calls::default();
    let done = work::run(py, &calls, || open.fold_files(files, threads, &|| calls.stopped()))?;
    to_bytes(py, &calls.settle(py, done)?)
}

/// Returns the portion of one leaf of a job of sums, from the bytes of each array.
#[pyfunction]
pub(super) fn sum_leaf<'py>(
    py: Python<'py>,
    fields: &Bound<'py, PyDict>,
    leaf: &Bound<'py, PyAny>,
    arrays: Vec<PyReadonlyArray1<'py, u8>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let SumJob { job, sums } = SumJob::open(fields)?;
    let leaf = Argument("leaf", leaf).number()?;
    let bytes = arrays.iter().map(|array| Ok(array.as_slice()?));
    let bytes: Vec<&[u8]> = bytes.collect::<PyResult<_>>()?;
    let portion = py.detach(|| leaf_portion(&job, &sums, leaf, &bytes))?;
    to_bytes(py, &portion)
}
