//! Batches of relational contexts: the walk, the tensors and the streams.
#![doc = include_str!("FORMAT.md")]

mod aggregates;
mod batch;
mod batches;
mod calendar;
mod choice;
mod context;
mod database;
mod division;
mod engine;
mod evaluation;
mod kept_splits;
mod masks;
mod names;
mod order;
mod pools;
mod sequence;
mod settings;
mod stream;
mod subset;
mod summaries;
mod tasks;
mod tensors;
#[cfg(test)]
mod tests;
mod texts;
mod visited;
mod walk;

use std::path::Path;
use std::sync::Arc;

use crate::durable;
use crate::error::{Error, Result};
use crate::handoff::{Streams, room_for_batch};
use crate::memory::memory_available;
use crate::plan::{Assignment, Cursor, CursorKind, Plan, Position, Split};
use crate::store::Store;

pub use crate::handoff::Speed;
pub use crate::tensor::{Dtype, Tensor};
pub use batch::Batch;
pub use context::{AggregateCell, Context, Link, Neighbours, Unseen, WhyUnseen};
pub use evaluation::Evaluation;
pub use masks::Masks;
pub use pools::Pool;
pub use settings::{Aggregates, Children, RowOrder, Settings, Shape, Texts, Walk};
#[doc(hidden)]
pub use settings::{BUDGET, CHILD_WIDTH, MAX_HOPS, STALENESS_DAYS_MAX, mask_most_beyond};
pub use walk::Visit;

use batches::Batches;
use database::{Database, set_child_widths};
use engine::{Engine, SequenceSource};
use evaluation::NextSeeds;
use stream::{Pass, Place, Steps};

/// Endless streams of batches from one or several databases, one stream for each split.
///
/// # Determinism
/// A stream is a function of the databases and the settings. Ranks divide it; threads and
/// prefetching change only its speed.
///
/// # Example
/// ```
/// # use std::{path::Path, sync::Arc};
/// # use headwater::plan::{Assignment, Split};
/// # use headwater::sampler::{Sampler, Settings, Speed};
/// # use headwater::store::Store;
/// let store = Arc::new(Store::open(Path::new("checkpoints/store-v4-small"))?);
/// let rank = Assignment::new(0, 1)?; // rank 0 of 1
/// let sampler = Sampler::new(vec![store], Settings::default(), rank, Speed::default())?;
/// let (batch, _) = sampler.next(Split::Train)?;
/// let rows = batch.get::<i32>("num_rows").unwrap_or_default();
/// assert_eq!(rows.len(), 32); // one number for each sequence
/// # Ok::<(), headwater::Error>(())
/// ```
pub struct Sampler {
    batches: Arc<Batches>,
    plan: Plan,
    assignment: Assignment,
    streams: Streams<Batches>,
}

impl Sampler {
    /// Returns a sampler over these stores, for one rank of several.
    ///
    /// # Cost
    /// For each pool, and each task that records neither its split nor the groups of the split seed: a hash for
    /// each seed, once; the splits of many seeds are kept in the folder `STORE.splits` beside the store, whose
    /// 3 bits a seed later samplers read.
    ///
    /// # Errors
    /// `InvalidArgument` for settings out of range, `LimitExceeded`, or an error of reading the
    /// stores.
    pub fn new(
        stores: Vec<Arc<Store>>,
        settings: Settings,
        assignment: Assignment,
        speed: Speed,
    ) -> Result<Self> {
        Self::new_within(stores, settings, assignment, speed, memory_available())
    }

    /// Returns a sampler that has so many bytes of memory for its stores, if that is known.
    fn new_within(
        stores: Vec<Arc<Store>>,
        settings: Settings,
        assignment: Assignment,
        speed: Speed,
        memory: Option<u64>,
    ) -> Result<Self> {
        settings.check()?;
        Store::expect_together(&stores, memory);
        let named = names(&stores, settings.aliases.as_deref())?.into_iter().zip(stores);
        let databases = named.map(|(name, store)| Database::new(name, store));
        let mut databases = databases.collect::<Result<Vec<_>>>()?;
        let tasks = tasks::tasks(&databases, &settings)?;
        if settings.staleness > 0 {
            tasks.iter().try_for_each(|task| task.check_staleness(&databases))?;
        }
        let mut plan = Plan::new();
        settings.add_to(&mut plan)?;
        set_child_widths(&mut databases, &settings.child_widths, &mut plan)?;
        for (number, database) in databases.iter().enumerate() {
            plan.add(format!("database/{number}"), database.name.as_str())?;
            plan.add(format!("database/{number}/root"), database.store.root().0)?;
        }
        tasks.iter().try_for_each(|task| task.add_to(&mut plan))?;
        let steps =
            |split| Steps::new(split, &tasks, settings.seed, settings.shape.batch_size, assignment);
        let steps = [steps(Split::Train)?, steps(Split::Val)?, steps(Split::Test)?];
        let start = || Place::start(tasks.len());
        let places = [start(), start(), start()];
        let engine = Engine::new(databases, tasks, settings, speed.threads)?;
        let batches = Arc::new(Batches { engine, steps });
        let streams = Streams::new(Arc::clone(&batches), speed.prefetch, places);
        Ok(Self { batches, plan, assignment, streams })
    }

    /// Returns the next batch of a split, and the snapshot after it; waits until the batch is made.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no seeds, or when another thread waits for a batch of
    /// the same split; else the error of making the batch.
    pub fn next(&self, split: Split) -> Result<(Batch, Snapshot)> {
        let (batch, places) = self.streams.next(split as usize)?;
        Ok((batch, Snapshot(places)))
    }

    /// Waits until the next batch of a split is made, without taking it: an interrupt while waiting
    /// consumes nothing.
    ///
    /// # Errors
    /// Those of [`Sampler::next`].
    pub fn wait(&self, split: Split) -> Result<()> {
        self.streams.wait(split as usize)
    }

    /// Ends the producer threads and wakes waiting callers, once the batches in flight are made.
    ///
    /// Afterwards every call is an error, except those for the cursor. In a forked child, which has
    /// none of the threads, this does nothing.
    pub fn shutdown(&self) {
        self.streams.shutdown();
    }

    fn engine(&self) -> &Engine {
        &self.batches.engine
    }

    /// Returns a pass over every seed of a split, exactly once over all ranks, task by task.
    ///
    /// Sequences of weight 0 pad the last batch of a task. All ranks have the same number of
    /// batches.
    ///
    /// # Errors
    /// `InvalidArgument` when a task is not served by this sampler.
    pub fn evaluate(&self, split: Split, tasks: Option<&[String]>) -> Result<Evaluation> {
        let pass = self.pass(split, tasks)?;
        let plan = pass.plan(&self.plan, &self.engine().tasks)?;
        self.start(pass, plan)
    }

    /// Returns the rest of a pass, from a cursor of [`Evaluation::cursor`] on, also of one on another
    /// number of ranks or with another batch size.
    ///
    /// # Cost
    /// The same for every position.
    ///
    /// # Errors
    /// Those of [`Sampler::evaluate`], and `PlanMismatch`, naming every setting that differs.
    pub fn evaluate_from(
        &self,
        split: Split,
        tasks: Option<&[String]>,
        cursor: &Cursor,
    ) -> Result<Evaluation> {
        let mut pass = self.pass(split, tasks)?;
        let plan = pass.plan(&self.plan, &self.engine().tasks)?;
        cursor.check(CursorKind::Evaluation, &plan)?;
        pass.move_to(cursor.position(), &self.engine().tasks)?;
        self.start(pass, plan)
    }

    /// Starts a pass.
    fn start(&self, pass: Pass, plan: Plan) -> Result<Evaluation> {
        self.streams.check_alive()?;
        let (batches, mut ahead) = (Arc::clone(&self.batches), pass.clone());
        let next: NextSeeds = Box::new(move || ahead.advance(&batches.engine.tasks));
        let made = self.streams.pass(next);
        Ok(Evaluation::new(made, Arc::clone(&self.batches), pass, plan))
    }

    /// Returns the number of batches in which each seed of a split comes once over all ranks, task by task:
    /// those of [`Sampler::evaluate`].
    ///
    /// # Errors
    /// Those of [`Sampler::evaluate`].
    pub fn batches_per_epoch(&self, split: Split, tasks: Option<&[String]>) -> Result<u64> {
        Ok(self.pass(split, tasks)?.remaining(&self.engine().tasks))
    }

    /// Goes to a step of a split's stream, without a cursor: the next batch is that of this step, counted
    /// from 0, of a run that had this batch size and number of ranks from its beginning.
    ///
    /// # Cost
    /// The same for every step.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no seeds, `LimitExceeded` for a step past the end.
    pub fn seek(&self, split: Split, step: u64) -> Result<()> {
        self.streams.check_alive()?;
        let steps = self.batches.steps(split as usize)?;
        self.streams.move_one(split as usize, steps.place_at(step, self.engine().tasks.len())?)
    }

    /// Returns a pass over the seeds of a split, from its first.
    fn pass(&self, split: Split, tasks: Option<&[String]>) -> Result<Pass> {
        let served = &self.engine().tasks;
        let mut chosen: Vec<usize> = match tasks {
            None => (0..served.len()).collect(),
            Some([]) => {
                return Err(Error::invalid(
                    "expected at least one task for a pass, found none; name one, or leave them out for \
                     all",
                ));
            }
            Some(names) => {
                names.iter().map(|name| self.task_number(name)).collect::<Result<_>>()?
            }
        };
        if let Some(twice) = (1..chosen.len()).find(|&at| chosen[..at].contains(&chosen[at])) {
            let name = &served[chosen[twice]].name;
            return Err(Error::invalid(format!(
                "task {name:?} is named twice; name each task once"
            )));
        }
        chosen.retain(|&task| served[task].count(split) > 0);
        let batch_size = u64::from(self.engine().settings.shape.batch_size);
        Ok(Pass::new(split, chosen, batch_size, self.assignment))
    }

    /// Returns the contexts of chosen rows of a task's anchor table at chosen times, as one batch
    /// padded with sequences of weight 0.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown task or row, or for more rows than a batch has sequences.
    pub fn sample(&self, task: &str, anchors: &[(u32, i64)]) -> Result<Batch> {
        self.streams.check_alive()?;
        let task = self.task_number(task)?;
        let batch_size = self.engine().settings.shape.batch_size as usize;
        if anchors.len() > batch_size {
            return Err(Error::invalid(format!(
                "expected at most {batch_size} anchors (the batch size), found {}; sample fewer at a time",
                anchors.len()
            )));
        }
        let chosen =
            anchors.iter().map(|&(row, obs_time)| SequenceSource::Chosen { row, obs_time });
        self.engine().make(task, &padded(chosen, batch_size)?)
    }

    /// Returns the sequence of one seed of a task as the first epoch has it, in a batch padded with
    /// sequences of weight 0.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such task or seed.
    pub fn batch_of_seed(&self, task: &str, seed_index: u32) -> Result<Batch> {
        self.batch_of_seeds(task, &[seed_index])
    }

    /// Returns the sequences of some seeds of a task, at most as many as a batch has.
    pub(crate) fn batch_of_seeds(&self, task: &str, seeds: &[u32]) -> Result<Batch> {
        self.streams.check_alive()?;
        let task = self.task_number(task)?;
        let batch_size = self.engine().settings.shape.batch_size as usize;
        let seed = |&seed_index: &u32| SequenceSource::Seed { seed_index, epoch: 0 };
        self.engine().make(task, &padded(seeds.iter().map(seed), batch_size)?)
    }

    /// Returns the settings that the sampler was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.engine().settings
    }

    /// Returns the rows of a task's anchor table that have these keys.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown task or key.
    pub fn find_anchors(&self, task: &str, keys: &[String]) -> Result<Vec<u32>> {
        let Engine { databases, tasks, .. } = self.engine();
        let anchor = tasks[self.task_number(task)?].table(databases);
        keys.iter().map(|key| anchor.require(key)).collect()
    }

    /// Returns the number of the task of this name, short (`churn`) or full (`shop/churn`).
    ///
    /// # Errors
    /// `InvalidArgument` when no task has the name, or several have.
    pub fn task_number(&self, wanted: &str) -> Result<usize> {
        names::find("task", wanted, &self.tasks().collect::<Vec<_>>())
    }

    /// Returns the cursor of what the caller has consumed, without what was made ahead.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor_at(&Snapshot(self.streams.places()))
    }

    /// Returns the cursor right after the batch that came with this snapshot.
    #[must_use]
    pub fn cursor_at(&self, snapshot: &Snapshot) -> Cursor {
        let mut position = Position::new();
        for (split, place) in Split::ALL.into_iter().zip(&snapshot.0) {
            place.record(split, &self.engine().tasks, &mut position);
        }
        Cursor::new(CursorKind::Sampler, self.plan.clone(), position)
    }

    /// Writes the cursor to a file, completely or not at all.
    ///
    /// # Errors
    /// `Io` when the disk fails.
    pub fn save_cursor(&self, path: &Path) -> Result<()> {
        self.cursor().write(&durable::Disk, path)
    }

    /// Continues at a cursor, also at one of another number of ranks or another batch size.
    ///
    /// # Cost
    /// The same for every position.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every setting that differs.
    pub fn resume(&self, cursor: &Cursor) -> Result<()> {
        self.streams.check_alive()?;
        cursor.check(CursorKind::Sampler, &self.plan)?;
        let place = |split| Place::recorded(split, &self.engine().tasks, cursor.position());
        self.streams.move_to([place(Split::Train)?, place(Split::Val)?, place(Split::Test)?])
    }

    /// Returns the names of the tasks, as `database/task`, and of the pools, as `database/pool:table`, in
    /// the order of `task_idx`.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.engine().tasks.iter().map(|task| task.name.as_str())
    }

    /// Returns the number of seeds that a task has in a split.
    ///
    /// # Panics
    /// When there is no such task.
    #[must_use]
    pub fn seed_count(&self, task: usize, split: Split) -> u64 {
        self.engine().tasks[task].count(split)
    }

    /// Returns the number of a task's seeds in a split that a pass gives to this rank.
    ///
    /// # Panics
    /// When there is no such task.
    #[must_use]
    pub fn own_seed_count(&self, task: usize, split: Split) -> u64 {
        self.assignment.owned_count(self.seed_count(task, split))
    }

    /// Returns the stores, in the order in which they were given.
    pub fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.engine().databases.iter().map(|database| &database.store)
    }

    /// Returns the plan: the settings and the data that determine the sequence.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// The places of the caller in all streams at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot([Place; 3]);

/// Pads the sources of a batch with fillers, to `batch_size`.
fn padded(
    sources: impl Iterator<Item = SequenceSource>,
    batch_size: usize,
) -> Result<Vec<SequenceSource>> {
    let mut all = room_for_batch(batch_size)?;
    all.extend(sources.chain(std::iter::repeat(SequenceSource::Filler)).take(batch_size));
    Ok(all)
}

/// Returns the names under which the stores are served: the aliases, or their own.
fn names(stores: &[Arc<Store>], aliases: Option<&[String]>) -> Result<Vec<String>> {
    if stores.is_empty() {
        return Err(Error::invalid("expected at least one store to sample from, found none"));
    }
    let own = || stores.iter().map(|store| store.metadata().database.clone()).collect();
    let names: Vec<String> = aliases.map_or_else(own, <[_]>::to_vec);
    if names.len() != stores.len() {
        return Err(Error::invalid(format!(
            "expected {} aliases, one for each store, found {}",
            stores.len(),
            names.len()
        )));
    }
    for (place, name) in names.iter().enumerate() {
        if aliases.is_some() && (name.is_empty() || name.contains('/')) {
            return Err(Error::invalid(format!(
                "expected an alias of at least one character and without \"/\", which ends it in the \
                 names of tasks, found {name:?}"
            )));
        }
        if names[..place].contains(name) {
            return Err(Error::invalid(format!(
                "two stores have the name {name:?}; give the stores aliases, so that their tasks differ"
            )));
        }
    }
    Ok(names)
}
