//! `headwater.Sampler`'s compiled half.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::Whole;
use super::arguments::{Arguments, in_range, one_of};
use super::batch::arrays;
use super::cursor::Cursor;
use super::store::Store as PyStore;
use crate::error::{Error, Result};
use crate::plan::{Assignment, Split, SplitRatios, SplitRule};
use crate::sampler::{
    Batch, Children, Evaluation, RowOrder, Sampler, Settings, Shape, Snapshot, Speed, Texts, Walk,
    check_owner,
};
use crate::store::Store;
use crate::view::ContextPicture;

/// The compiled half of `headwater.Sampler`.
#[pyclass(frozen, module = "headwater")]
pub(super) struct SamplerCore(Sampler);

impl SamplerCore {
    /// The next batch of a split. Ctrl-C while it is waited for is raised before it is taken.
    fn take(&self, py: Python<'_>, split: Split) -> PyResult<(Batch, Snapshot)> {
        py.detach(|| self.0.wait(split))?;
        py.check_signals()?;
        Ok(py.detach(|| self.0.next(split))?)
    }
}

impl Drop for SamplerCore {
    fn drop(&mut self) {
        // Others go on while the threads end. Without an interpreter nobody is held up.
        let _ = Python::try_attach(|py| py.detach(|| self.0.shutdown()));
    }
}

/// What `headwater.Sampler` is called with, by name.
struct SamplerArguments<'a, 'py>(Arguments<'a, 'py>);

impl SamplerArguments<'_, '_> {
    fn settings(&self) -> PyResult<Settings> {
        let (train, val, test): (f64, f64, f64) = self.0.get("split_ratios")?;
        let split = SplitRule {
            seed: self.0.number("split_seed")?,
            ratios: SplitRatios::new(train, val, test)?,
        };
        let children = one_of(
            "children",
            &self.0.get::<String>("children")?,
            &[("uniform", Children::Uniform), ("latest", Children::Latest)],
        )?;
        let by_priority = [("priority", true), ("breadth", false)];
        let walk = match one_of("walk", &self.0.get::<String>("walk")?, &by_priority)? {
            true => Walk::Priority { child_width: self.0.number("bfs_child_width")?, children },
            false => Walk::Breadth {
                max_hops: self.0.number("max_hops")?,
                budget: self.0.number("neighbor_budget")?,
            },
        };
        let buckets: Option<Vec<Whole>> = self.0.get("text_buckets")?;
        let buckets = buckets.unwrap_or_default().into_iter();
        let buckets = buckets.map(|Whole(number)| in_range("text_buckets", number));
        let texts = self.0.get::<String>("texts")?;
        let texts = match one_of("texts", &texts, &[("batch", true), ("global", false)])? {
            true => Texts::Batch(buckets.collect::<Result<_>>()?),
            false => Texts::Global,
        };
        let row_order = self.0.get::<String>("row_order")?;
        Ok(Settings {
            seed: self.0.number("seed")?,
            split,
            tasks: self.0.get("tasks")?,
            task_weights: self.0.get("task_weights")?,
            walk,
            child_widths: self.child_widths()?,
            keep_future_cells: self.0.get("keep_future_cells")?,
            row_order: one_of(
                "row_order",
                &row_order,
                &[("walk", RowOrder::Walk), ("cuthill-mckee", RowOrder::CuthillMckee)],
            )?,
            shape: Shape {
                batch_size: self.0.number("default_batch_size")?,
                sequence_length: self.0.number("default_sequence_length")?,
                max_rows: self.0.number("max_rows")?,
                compact: self.0.get("compact")?,
                texts,
            },
        })
    }

    fn child_widths(&self) -> PyResult<Vec<(String, u32)>> {
        let widths: BTreeMap<String, Whole> = self.0.get("child_widths")?;
        let widths = widths.into_iter().map(|(relation, Whole(width))| {
            let width = in_range(&format!("child_widths[{relation:?}]"), width)?;
            Ok((relation, width))
        });
        widths.collect()
    }

    fn assignment(&self) -> PyResult<Assignment> {
        Ok(Assignment::new(self.0.number("rank")?, self.0.number("world_size")?)?)
    }

    fn speed(&self) -> PyResult<Speed> {
        let threads: Option<Whole> = self.0.get("num_threads")?;
        let threads = threads.map(|Whole(number)| in_range::<u16>("num_threads", number));
        let threads = threads.transpose()?.map(usize::from);
        if threads == Some(0) {
            return Err(Error::invalid("num_threads is 0; give 1 or more, or None").into());
        }
        Ok(Speed { threads, prefetch: self.0.number::<u16>("num_prefetch")?.into() })
    }
}

fn split_of(name: &str) -> Result<Split> {
    one_of("split", name, &Split::ALL.map(|split| (split.name(), split)))
}

#[pymethods]
impl SamplerCore {
    #[new]
    fn new(py: Python<'_>, paths: Vec<PathBuf>, arguments: &Bound<'_, PyDict>) -> PyResult<Self> {
        let arguments = SamplerArguments(Arguments(arguments));
        let (settings, assignment) = (arguments.settings()?, arguments.assignment()?);
        let speed = arguments.speed()?;
        let sampler = py.detach(|| {
            let open = |path: &PathBuf| Ok(Arc::new(Store::open(path)?));
            let stores = paths.iter().map(open).collect::<Result<_>>()?;
            Sampler::new(stores, settings, assignment, speed)
        })?;
        Ok(Self(sampler))
    }

    /// The next batch of a split as arrays by name.
    fn next<'py>(&self, py: Python<'py>, split: &str) -> PyResult<Bound<'py, PyDict>> {
        let (batch, _) = self.take(py, split_of(split)?)?;
        arrays(py, batch)
    }

    /// The next batch of a split as arrays by name, and the cursor that follows it.
    fn next_with_cursor<'py>(
        &self,
        py: Python<'py>,
        split: &str,
    ) -> PyResult<(Bound<'py, PyDict>, Cursor)> {
        let (batch, snapshot) = self.take(py, split_of(split)?)?;
        Ok((arrays(py, batch)?, Cursor::from(self.0.cursor_at(&snapshot))))
    }

    /// A finite pass over the seeds of a split.
    #[pyo3(signature = (split, tasks=None))]
    fn evaluate(&self, split: &str, tasks: Option<Vec<String>>) -> PyResult<EvaluationCore> {
        let evaluation = self.0.evaluate(split_of(split)?, tasks.as_deref())?;
        let process = evaluation.process();
        Ok(EvaluationCore { process, evaluation: Mutex::new(evaluation) })
    }

    /// The contexts of chosen rows of a task's anchor table, given by key, at chosen times.
    fn sample<'py>(
        &self,
        py: Python<'py>,
        task: &str,
        keys: Vec<String>,
        obs_times: Vec<i64>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let batch = py.detach(|| {
            let rows = self.0.find_anchors(task, &keys)?;
            let anchors: Vec<_> = rows.into_iter().zip(obs_times).collect();
            self.0.sample(task, &anchors)
        })?;
        arrays(py, batch)
    }

    /// Draws the context of a task's seed on a page.
    fn draw(&self, py: Python<'_>, task: &str, item: Whole, path: PathBuf) -> PyResult<()> {
        let item = in_range("item", item.0)?;
        let stores = self.0.stores().map(Arc::clone).collect();
        py.detach(|| {
            ContextPicture::check_place(&path)?;
            let settings = self.0.settings().clone();
            ContextPicture::new(stores, settings, task, item)?.write_page(&path)
        })?;
        Ok(())
    }

    /// Where the caller stands.
    fn cursor(&self) -> Cursor {
        Cursor::from(self.0.cursor())
    }

    /// Goes on from where a cursor stands.
    fn resume(&self, py: Python<'_>, cursor: &Cursor) -> PyResult<()> {
        Ok(py.detach(|| self.0.resume(cursor.as_plan()))?)
    }

    /// Writes the cursor to a file, wholly or not at all.
    fn save_cursor(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.0.save_cursor(&path))?)
    }

    /// Ends the threads.
    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.0.shutdown());
    }

    /// The names of the tasks, by their number in a batch.
    fn tasks(&self) -> Vec<String> {
        self.0.tasks().map(str::to_owned).collect()
    }

    /// How many seeds each task has in a split.
    fn seed_counts(&self, split: &str) -> PyResult<Vec<u64>> {
        let split = split_of(split)?;
        Ok((0..self.0.tasks().count()).map(|task| self.0.seed_count(task, split)).collect())
    }

    /// How many seeds of each task a pass over a split gives to this rank.
    fn own_seed_counts(&self, split: &str) -> PyResult<Vec<u64>> {
        let split = split_of(split)?;
        Ok((0..self.0.tasks().count()).map(|task| self.0.own_seed_count(task, split)).collect())
    }

    /// The stores, in their order.
    fn stores(&self) -> Vec<PyStore> {
        self.0.stores().map(|store| PyStore::from(Arc::clone(store))).collect()
    }
}

/// The compiled half of an evaluation.
#[pyclass(frozen, module = "headwater")]
pub(super) struct EvaluationCore {
    /// Beside the lock, which another process may never give back.
    process: u32,
    evaluation: Mutex<Evaluation>,
}

#[pymethods]
impl EvaluationCore {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let batch = py.detach(|| {
            check_owner(self.process)?;
            let mut evaluation = self.evaluation.lock().unwrap_or_else(PoisonError::into_inner);
            evaluation.next().transpose()
        })?;
        batch.map(|batch| arrays(py, batch)).transpose()
    }
}
