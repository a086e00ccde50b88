//! The compiled classes of `headwater.Sampler`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use headwater::internal::{
    BUDGET, CHILD_WIDTH, ContextPicture, DAY_US, MAX_HOPS, STALENESS_DAYS_MAX, mask_most_beyond,
};
use headwater::plan::{Assignment, Split, SplitRatios, SplitRule};
use headwater::sampler::{
    Aggregates, Batch, Children, Evaluation as Pass, Masks, Pool, RowOrder, Sampler, Settings,
    Shape, Snapshot, Texts, Walk,
};
use headwater::store::Store;
use headwater::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arguments::{Argument, in_range, speed_of, split_of};
use crate::batch::arrays;
use crate::cursor::Cursor;
use crate::errors::PyResult;
use crate::objects::{Drawn, drawn, to_bytes};
use crate::pass::OwnedPass;
use crate::store::Store as PyStore;
use crate::{Real, Whole};

/// The compiled class behind `headwater.Sampler`.
#[pyclass(frozen, module = "headwater")]
pub(super) struct SamplerCore(Sampler);

impl SamplerCore {
    /// Returns the next batch of a split. Ctrl-C during the wait raises, and the batch stays the next one.
    fn take(&self, py: Python<'_>, split: Split) -> PyResult<(Batch, Snapshot)> {
        py.detach(|| self.0.wait(split))?;
        py.check_signals()?;
        Ok(py.detach(|| self.0.next(split))?)
    }
}

impl Drop for SamplerCore {
    fn drop(&mut self) {
        // Releases the interpreter's lock while the threads end; at exit there may be no interpreter.
        let _ = Python::try_attach(|py| py.detach(|| self.0.shutdown()));
    }
}

/// Returns the walk of these arguments.
fn walk_of(
    walk: Argument<'_, '_>,
    child_width: Argument<'_, '_>,
    children: Argument<'_, '_>,
    max_hops: Argument<'_, '_>,
    budget: Argument<'_, '_>,
) -> PyResult<Walk> {
    const WALKS: [(&str, bool); 2] = [("priority", true), ("breadth", false)];
    const CHILDREN: [(&str, Children); 2] =
        [("uniform", Children::Uniform), ("latest", Children::Latest)];
    if walk.one_of(&WALKS)? {
        max_hops.unused_by("walk \"priority\"")?;
        budget.unused_by("walk \"priority\"")?;
        let child_width = child_width.optional_number()?.unwrap_or(CHILD_WIDTH);
        let children = children.optional_one_of(&CHILDREN)?.unwrap_or(Children::Uniform);
        return Ok(Walk::Priority { child_width, children });
    }
    child_width.unused_by("walk \"breadth\"")?;
    children.unused_by("walk \"breadth\"")?;
    Ok(Walk::Breadth {
        max_hops: max_hops.optional_number()?.unwrap_or(MAX_HOPS),
        budget: budget.optional_number()?.unwrap_or(BUDGET),
    })
}

fn texts_of(texts: Argument<'_, '_>, buckets: Argument<'_, '_>) -> PyResult<Texts> {
    if texts.one_of(&[("batch", true), ("global", false)])? {
        return Ok(Texts::Batch(buckets_of(buckets)?));
    }
    buckets.unused_by("texts \"global\"")?;
    Ok(Texts::Global)
}

fn buckets_of(buckets: Argument<'_, '_>) -> PyResult<Vec<u32>> {
    let given: Option<Vec<Whole>> = buckets.get_as("a list of whole numbers or None")?;
    let given = given.unwrap_or_default().into_iter();
    Ok(given.map(|Whole(number)| in_range(buckets.0, number)).collect::<Result<_>>()?)
}

fn masks_of(
    share: Argument<'_, '_>,
    most: Argument<'_, '_>,
    texts: Argument<'_, '_>,
    sequence_length: u32,
) -> PyResult<Option<Masks>> {
    let Real(cells) = share.get_as("a number of at least 0 and below 1")?;
    if cells == 0.0 {
        most.unused_by("a mask_share of 0")?;
        texts.unused_by("a mask_share of 0")?;
        return Ok(None);
    }
    let most: Option<Whole> = most.get_as("a whole number or None")?;
    let most = most.map(|Whole(most)| {
        u16::try_from(most).map_err(|_| mask_most_beyond(most, sequence_length))
    });
    let masks = Masks::new(cells, most.transpose()?, sequence_length)?;
    let texts: Option<bool> = texts.get_as("True, False or None")?;
    Ok(Some(Masks { texts: texts.unwrap_or(true), ..masks }))
}

fn pools_of(pools: Argument<'_, '_>) -> PyResult<Vec<Pool>> {
    let pools: Vec<(String, Option<i64>)> = pools.get()?;
    Ok(pools.into_iter().map(|(table, obs_time)| Pool { table, obs_time }).collect())
}

fn child_widths_of(child_widths: Argument<'_, '_>) -> PyResult<Vec<(String, u32)>> {
    let widths: BTreeMap<String, Whole> =
        child_widths.get_as("relations with whole numbers, such as {\"orders.customer_id\": 2}")?;
    let widths = widths.into_iter().map(|(relation, Whole(width))| {
        let width = in_range(&format!("child_widths[{relation:?}]"), width)?;
        Ok((relation, width))
    });
    widths.collect()
}

/// Returns the default settings of `headwater.Sampler`, by the names of its arguments.
#[pyfunction]
pub(super) fn sampler_defaults(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let Settings { seed, split, walk, aggregates, keep_future_cells, shape, .. } =
        Settings::default();
    let ratios = Split::ALL.map(|split_| split.ratios.bucket_count(split_) as f64 / 1000.0);
    let defaults = PyDict::new(py);
    defaults.set_item("seed", seed)?;
    defaults.set_item("split_seed", split.seed)?;
    defaults.set_item("split_ratios", (ratios[0], ratios[1], ratios[2]))?;
    if let Walk::Priority { child_width, .. } = walk {
        defaults.set_item("bfs_child_width", child_width)?;
    }
    defaults.set_item("aggregates", aggregates.name())?;
    defaults.set_item("keep_future_cells", keep_future_cells)?;
    defaults.set_item("default_batch_size", shape.batch_size)?;
    defaults.set_item("default_sequence_length", shape.sequence_length)?;
    defaults.set_item("max_rows", shape.max_rows)?;
    defaults.set_item("compact", shape.compact)?;
    defaults.set_item("permutations", shape.permutations)?;
    Ok(defaults)
}

/// Returns the staleness of the settings, in microseconds.
fn staleness(days: u32) -> Result<i64> {
    if days > STALENESS_DAYS_MAX {
        return Err(Error::invalid(format!(
            "staleness_days: expected 0 to {STALENESS_DAYS_MAX}, found {days}"
        )));
    }
    Ok(i64::from(days) * DAY_US)
}

#[pymethods]
impl SamplerCore {
    #[new]
    #[pyo3(signature = (paths, *, rank, world_size, split_ratios, split_seed, seed, num_prefetch, default_batch_size, default_sequence_length, sequence_buckets, bfs_child_width, max_rows, tasks, pools, task_weights, require_label, num_threads, compact, walk, child_widths, children, max_hops, neighbor_budget, row_order, aggregates, visible_until, staleness_days, keep_future_cells, texts, text_buckets, permutations, mask_share, mask_most, mask_texts, aliases))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of headwater.Sampler")]
    fn new(
        py: Python<'_>,
        paths: Vec<PathBuf>,
        rank: &Bound<'_, PyAny>,
        world_size: &Bound<'_, PyAny>,
        split_ratios: &Bound<'_, PyAny>,
        split_seed: &Bound<'_, PyAny>,
        seed: &Bound<'_, PyAny>,
        num_prefetch: &Bound<'_, PyAny>,
        default_batch_size: &Bound<'_, PyAny>,
        default_sequence_length: &Bound<'_, PyAny>,
        sequence_buckets: &Bound<'_, PyAny>,
        bfs_child_width: &Bound<'_, PyAny>,
        max_rows: &Bound<'_, PyAny>,
        tasks: &Bound<'_, PyAny>,
        pools: &Bound<'_, PyAny>,
        task_weights: &Bound<'_, PyAny>,
        require_label: &Bound<'_, PyAny>,
        num_threads: &Bound<'_, PyAny>,
        compact: &Bound<'_, PyAny>,
        walk: &Bound<'_, PyAny>,
        child_widths: &Bound<'_, PyAny>,
        children: &Bound<'_, PyAny>,
        max_hops: &Bound<'_, PyAny>,
        neighbor_budget: &Bound<'_, PyAny>,
        row_order: &Bound<'_, PyAny>,
        aggregates: &Bound<'_, PyAny>,
        visible_until: &Bound<'_, PyAny>,
        staleness_days: &Bound<'_, PyAny>,
        keep_future_cells: &Bound<'_, PyAny>,
        texts: &Bound<'_, PyAny>,
        text_buckets: &Bound<'_, PyAny>,
        permutations: &Bound<'_, PyAny>,
        mask_share: &Bound<'_, PyAny>,
        mask_most: &Bound<'_, PyAny>,
        mask_texts: &Bound<'_, PyAny>,
        aliases: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (Real(train), Real(val), Real(test)) = Argument("split_ratios", split_ratios)
            .get_as("three numbers in a tuple, the shares of train, val and test")?;
        let task_weights: Option<Vec<Real>> =
            Argument("task_weights", task_weights).get_as("a list of numbers or None")?;
        let sequence_length =
            Argument("default_sequence_length", default_sequence_length).number()?;
        let settings = Settings {
            seed: Argument("seed", seed).number()?,
            split: SplitRule {
                seed: Argument("split_seed", split_seed).number()?,
                ratios: SplitRatios::new(train, val, test)?,
            },
            aliases: Argument("aliases", aliases).get()?,
            tasks: Argument("tasks", tasks).get()?,
            pools: pools_of(Argument("pools", pools))?,
            task_weights: task_weights.map(|all| all.into_iter().map(|Real(of)| of).collect()),
            require_label: Argument("require_label", require_label).flag()?,
            walk: walk_of(
                Argument("walk", walk),
                Argument("bfs_child_width", bfs_child_width),
                Argument("children", children),
                Argument("max_hops", max_hops),
                Argument("neighbor_budget", neighbor_budget),
            )?,
            child_widths: child_widths_of(Argument("child_widths", child_widths))?,
            aggregates: Argument("aggregates", aggregates)
                .one_of(&Aggregates::ALL.map(|choice| (choice.name(), choice)))?,
            visible_until: Argument("visible_until", visible_until).get()?,
            staleness: staleness(Argument("staleness_days", staleness_days).number()?)?,
            keep_future_cells: Argument("keep_future_cells", keep_future_cells).flag()?,
            row_order: Argument("row_order", row_order)
                .one_of(&[("walk", RowOrder::Walk), ("cuthill-mckee", RowOrder::CuthillMckee)])?,
            masks: masks_of(
                Argument("mask_share", mask_share),
                Argument("mask_most", mask_most),
                Argument("mask_texts", mask_texts),
                sequence_length,
            )?,
            shape: Shape {
                batch_size: Argument("default_batch_size", default_batch_size).number()?,
                sequence_length,
                sequence_buckets: buckets_of(Argument("sequence_buckets", sequence_buckets))?,
                max_rows: Argument("max_rows", max_rows).number()?,
                compact: Argument("compact", compact).flag()?,
                permutations: Argument("permutations", permutations).flag()?,
                texts: texts_of(Argument("texts", texts), Argument("text_buckets", text_buckets))?,
            },
        };
        let rank = Argument("rank", rank).number()?;
        let assignment = Assignment::new(rank, Argument("world_size", world_size).number()?)?;
        let speed =
            speed_of(Argument("num_threads", num_threads), Argument("num_prefetch", num_prefetch))?;
        let sampler = py.detach(|| {
            let open = |path: &PathBuf| Ok(Arc::new(Store::open(path)?));
            let stores = paths.iter().map(open).collect::<Result<_>>()?;
            Sampler::new(stores, settings, assignment, speed)
        })?;
        Ok(Self(sampler))
    }

    /// Returns the next batch of a split as arrays by name.
    fn next<'py>(&self, py: Python<'py>, split: &str) -> PyResult<Bound<'py, PyDict>> {
        let (batch, _) = self.take(py, split_of(split)?)?;
        arrays(py, batch)
    }

    /// Returns the next batch of a split as arrays by name, and the cursor after the batch.
    fn next_with_cursor<'py>(
        &self,
        py: Python<'py>,
        split: &str,
    ) -> PyResult<(Bound<'py, PyDict>, Cursor)> {
        let (batch, snapshot) = self.take(py, split_of(split)?)?;
        Ok((arrays(py, batch)?, Cursor::from(self.0.cursor_at(&snapshot))))
    }

    /// Returns a finite pass over the seeds of a split, or what is left of it after a cursor.
    #[pyo3(signature = (split, tasks=None, cursor=None))]
    fn evaluate(
        slf: &Bound<'_, Self>,
        split: &str,
        tasks: Option<Vec<String>>,
        cursor: Option<&Cursor>,
    ) -> PyResult<Evaluation> {
        let (sampler, split) = (&slf.get().0, split_of(split)?);
        let pass = match cursor {
            None => sampler.evaluate(split, tasks.as_deref())?,
            Some(cursor) => sampler.evaluate_from(split, tasks.as_deref(), cursor.as_plan())?,
        };
        let sampler = slf.clone().unbind();
        Ok(Evaluation { pass: OwnedPass::new(pass.process(), pass), _sampler: sampler })
    }

    /// Returns the number of batches of a pass over the seeds of a split.
    #[pyo3(signature = (split, tasks=None))]
    fn batches_per_epoch(&self, split: &str, tasks: Option<Vec<String>>) -> PyResult<u64> {
        Ok(self.0.batches_per_epoch(split_of(split)?, tasks.as_deref())?)
    }

    /// Goes to a step of a split's stream.
    fn seek(&self, py: Python<'_>, split: &str, step: Whole) -> PyResult<()> {
        let (split, step) = (split_of(split)?, in_range("step", step.0)?);
        Ok(py.detach(|| self.0.seek(split, step))?)
    }

    /// Returns the contexts of rows of a task's anchor table, by key, at the given times.
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

    /// Returns the context of a seed as an HTML page and as text.
    fn draw<'py>(&self, py: Python<'py>, task: &str, seed_index: Whole) -> PyResult<Drawn<'py>> {
        let seed_index = in_range("seed_index", seed_index.0)?;
        let stores = self.0.stores().map(Arc::clone).collect();
        let (page, text) = py.detach(|| {
            let settings = self.0.settings().clone();
            let picture = ContextPicture::new(stores, settings, task, seed_index)?;
            Ok::<_, Error>((picture.page()?, picture.text()))
        })?;
        drawn(py, &page, &text)
    }

    /// Returns the cursor after the last batch that was taken.
    fn cursor(&self) -> Cursor {
        Cursor::from(self.0.cursor())
    }

    /// Continues after the last batch of a cursor.
    fn resume(&self, py: Python<'_>, cursor: &Cursor) -> PyResult<()> {
        Ok(py.detach(|| self.0.resume(cursor.as_plan()))?)
    }

    /// Writes the cursor to a file, completely or not at all.
    fn save_cursor(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.0.save_cursor(&path))?)
    }

    /// Ends the threads.
    fn shutdown(&self, py: Python<'_>) {
        py.detach(|| self.0.shutdown());
    }

    /// Returns the names of the tasks, in the order of their numbers in a batch.
    fn tasks(&self) -> Vec<String> {
        self.0.tasks().map(str::to_owned).collect()
    }

    /// Returns the number of a task by its short or full name.
    fn task_number(&self, name: &str) -> PyResult<usize> {
        Ok(self.0.task_number(name)?)
    }

    /// Returns the number of seeds of each task in a split.
    fn seed_counts(&self, split: &str) -> PyResult<Vec<u64>> {
        let split = split_of(split)?;
        Ok((0..self.0.tasks().count()).map(|task| self.0.seed_count(task, split)).collect())
    }

    /// Returns the number of seeds of each task that a pass over a split gives to this rank.
    fn own_seed_counts(&self, split: &str) -> PyResult<Vec<u64>> {
        let split = split_of(split)?;
        Ok((0..self.0.tasks().count()).map(|task| self.0.own_seed_count(task, split)).collect())
    }

    /// Returns the stores, in their order.
    fn stores(&self) -> Vec<PyStore> {
        self.0.stores().map(|store| PyStore::from(Arc::clone(store))).collect()
    }
}

/// The batches of a finite pass over a split.
#[pyclass(frozen, module = "headwater")]
pub(super) struct Evaluation {
    pass: OwnedPass<Pass>,
    /// Its end would end the pass.
    _sampler: Py<SamplerCore>,
}

#[pymethods]
impl Evaluation {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// The number of batches that are left.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<u64> {
        self.pass.with(py, |pass| Ok(pass.remaining()))
    }

    /// Returns the cursor after the last batch that was taken.
    fn cursor<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        to_bytes(py, &self.pass.with(py, |pass| pass.cursor().encode())?)
    }

    /// Writes the cursor to a file, completely or not at all.
    fn save_cursor(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.pass.with(py, |pass| pass.save_cursor(&path))
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let batch = self.pass.next(py, Pass::wait)?;
        batch.map(|batch| arrays(py, batch)).transpose()
    }
}
