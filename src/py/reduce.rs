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
use crate::process::pool;
use crate::reducer::{GramStream, Job, Reduction};

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
    stream: Mutex<GramStream>,
}

impl GramWorkerCore {
    /// Locks the stream; fails in a forked child.
    fn stream(&self) -> Result<MutexGuard<'_, GramStream>> {
        if std::process::id() != self.process {
            return Err(Error::invalid(format!(
                "this worker was made in process {}, and a forked child has none of its threads; \
                 make a worker in the child",
                self.process
            )));
        }
        Ok(self.stream.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[pymethods]
impl GramWorkerCore {
    #[new]
    fn new(fields: &Bound<'_, PyDict>, first_row: Whole, threads: Option<Whole>) -> PyResult<Self> {
        let GramJob { job, columns, element } = GramJob::of(fields)?;
        let first_row = in_range("first_row", first_row.0)?;
        let pool = pool(thread_count("threads", threads)?)?;
        let stream = GramStream::new(job, (columns, element), first_row, pool)?;
        Ok(Self { process: std::process::id(), element, stream: Mutex::new(stream) })
    }

    /// Appends rows, each as the bytes of its numbers.
    fn push(&self, py: Python<'_>, rows: PyReadonlyArray2<'_, u8>) -> PyResult<()> {
        let (count, row_bytes) = rows.as_array().dim();
        let columns = row_bytes / self.element.bytes();
        let bytes = rows.as_slice()?;
        let calls = Calls::default();
        let done = work::run(py, &calls, || {
            let numbers = Numbers::of_bytes([bytes], self.element, (count, columns))?;
            self.stream()?.push(numbers.values(), columns, &|| calls.stopped())
        })?;
        calls.settle(py, done)
    }

    /// Returns a portion of the chunks that were finished since the last portion.
    fn portion<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let portion = py.detach(|| self.stream()?.portion())?;
        to_bytes(py, &portion)
    }

    /// The next row that the worker expects.
    #[getter]
    fn next_row(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(py.detach(|| Ok::<_, Error>(self.stream()?.next_row()))?)
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
