#![doc = include_str!("FORMAT.md")]

mod batch;
mod calendar;
mod choice;
mod context;
mod database;
mod engine;
mod evaluation;
mod order;
mod sequence;
mod settings;
mod stream;
mod subset;
mod tasks;
mod tensors;
mod texts;
mod visited;
mod walk;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::durable;
use crate::error::{Error, Result};
use crate::handoff::{Gate, InFlight, Producer, shut_down_error};
use crate::plan::{Assignment, Cursor, CursorKind, Plan, Position, Split};
use crate::store::Store;

pub use batch::Batch;
pub use context::{Context, Link, Neighbours};
pub use evaluation::Evaluation;
pub(crate) use evaluation::check_owner;
pub use settings::{Children, RowOrder, Settings, Shape, Texts, Walk};
pub use tensors::{Dtype, Tensor};
pub use walk::Visit;

use database::{Database, set_child_widths};
use engine::{Engine, Subject, lock};
use stream::{Pass, Place, Steps};

/// How fast a sampler works; nothing here changes a bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// How many threads make batches; all cores where it is not said.
    pub threads: Option<usize>,
    /// How many batches of a stream wait, made, for the caller; with 0 each is made when it is
    /// asked for.
    pub prefetch: usize,
}

impl Default for Speed {
    fn default() -> Self {
        Self { threads: None, prefetch: 3 }
    }
}

/// Endless streams of batches from one or several databases, one stream for each split.
///
/// # Determinism
/// A stream is a function of the databases and the settings. Ranks share it out; threads and
/// prefetching change only its speed.
pub struct Sampler {
    engine: Arc<Engine>,
    plan: Plan,
    assignment: Assignment,
    prefetch: usize,
    streams: [Option<Mutex<Stream>>; 3],
    gate: Arc<Gate>,
    /// What the caller has consumed.
    consumed: Mutex<[Place; 3]>,
    process: u32,
}

/// One split's stream as its consumer has it.
struct Stream {
    steps: Arc<Steps>,
    /// What makes the batches ahead; started when the first is asked for.
    producer: Option<Producer<BatchAt>>,
    /// The next batch, where somebody waited for it and did not take it.
    waiting: Option<BatchAt>,
}

impl Stream {
    /// Lets go of all that was made ahead.
    fn forget(&mut self) {
        (self.producer, self.waiting) = (None, None);
    }
}

/// A batch, and where its stream stands after it.
type BatchAt = (Batch, Place);

impl Sampler {
    /// A sampler over these stores, as one rank of several.
    ///
    /// # Cost
    /// A hash for each seed of each task that does not record its split.
    ///
    /// # Errors
    /// `InvalidArgument` for settings that cannot be, `LimitExceeded`, or what reading the stores says.
    pub fn new(
        stores: Vec<Arc<Store>>,
        settings: Settings,
        assignment: Assignment,
        speed: Speed,
    ) -> Result<Self> {
        settings.check()?;
        let mut databases = stores.into_iter().map(Database::new).collect::<Result<Vec<_>>>()?;
        check_names(&databases)?;
        let tasks = tasks::tasks(&databases, &settings)?;
        let mut plan = Plan::new();
        settings.add_to(&mut plan)?;
        set_child_widths(&mut databases, &settings.child_widths, &mut plan)?;
        for (number, database) in databases.iter().enumerate() {
            let name = &database.store.metadata().database;
            plan.add(format!("database/{number}"), name.as_str())?;
            plan.add(format!("database/{number}/root"), database.store.root().0)?;
        }
        for task in &tasks {
            plan.add(format!("task/{}", task.name), task.weight.to_string().as_str())?;
        }
        let steps =
            |split| Steps::new(split, &tasks, settings.seed, settings.shape.batch_size, assignment);
        let streams =
            [steps(Split::Train)?, steps(Split::Val)?, steps(Split::Test)?].map(|steps| {
                Some(Mutex::new(Stream { steps: Arc::new(steps?), producer: None, waiting: None }))
            });
        let start = || Place::start(tasks.len());
        Ok(Self {
            consumed: Mutex::new([start(), start(), start()]),
            engine: Arc::new(Engine::new(databases, tasks, settings, speed.threads)?),
            plan,
            assignment,
            prefetch: speed.prefetch,
            streams,
            gate: Arc::default(),
            process: std::process::id(),
        })
    }

    /// The next batch of a split, and the cursor that follows it.
    ///
    /// Waits until it is made.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no seeds, or when another thread waits for a batch of
    /// the same split; what made the batch impossible.
    pub fn next(&self, split: Split) -> Result<(Batch, Snapshot)> {
        self.check_alive()?;
        let mut stream = self.stream(split)?;
        let (batch, after) = self.made(split, &mut stream)?;
        let mut consumed = lock(&self.consumed);
        consumed[split as usize] = after;
        Ok((batch, Snapshot(consumed.clone())))
    }

    /// Waits until the next batch of a split is made, and does not take it: who is interrupted
    /// meanwhile has consumed nothing.
    ///
    /// # Errors
    /// Those of [`Sampler::next`].
    pub fn wait(&self, split: Split) -> Result<()> {
        self.check_alive()?;
        let mut stream = self.stream(split)?;
        stream.waiting = Some(self.made(split, &mut stream)?);
        Ok(())
    }

    fn made(&self, split: Split, stream: &mut Stream) -> Result<BatchAt> {
        if let Some(made) = stream.waiting.take() {
            return Ok(made);
        }
        let place = || lock(&self.consumed)[split as usize].clone();
        if self.prefetch == 0 {
            let mut place = place();
            let (task, subjects) = stream.steps.advance(&mut place, &self.engine.tasks)?;
            return Ok((self.engine.make(task, &subjects)?, place));
        }
        let producer = match stream.producer.take() {
            Some(producer) => producer,
            None => self.produce(Arc::clone(&stream.steps), place())?,
        };
        stream.producer.insert(producer).next()
    }

    /// Starts to make the batches of a stream from `place` on.
    fn produce(&self, steps: Arc<Steps>, mut place: Place) -> Result<Producer<BatchAt>> {
        let (engine, gate) = (Arc::clone(&self.engine), Arc::clone(&self.gate));
        let mut in_flight = InFlight::default();
        let split = steps.split;
        Producer::start(split as usize, split.name(), self.prefetch, gate, move || {
            let made = in_flight.next(|| {
                let (task, subjects) = steps.advance(&mut place, &engine.tasks)?;
                Ok(Some((engine.begin(task, subjects), place.clone())))
            })?;
            Ok(made.expect("a stream has no end"))
        })
    }

    fn stream(&self, split: Split) -> Result<MutexGuard<'_, Stream>> {
        let Some(stream) = &self.streams[split as usize] else {
            return Err(Error::invalid(format!(
                "no task has a seed in the {} split; change the split ratios, or serve other tasks",
                split.name()
            )));
        };
        match stream.try_lock() {
            Ok(stream) => Ok(stream),
            Err(TryLockError::Poisoned(stream)) => Ok(stream.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Error::invalid(format!(
                "another thread is waiting for a {} batch of this sampler; one thread consumes a \
                 stream, so that its order means something",
                split.name()
            ))),
        }
    }

    /// Ends the threads and wakes who waits; takes no longer than the batches under way.
    ///
    /// What is asked of the sampler afterwards is an error, but for its cursor. In a forked child,
    /// which has none of the threads, it does nothing.
    pub fn shutdown(&self) {
        if check_owner(self.process).is_err() {
            return;
        }
        self.gate.close();
        for stream in self.streams.iter().flatten() {
            lock(stream).forget();
        }
    }

    /// Refuses a sampler that was shut down, or belongs to another process.
    fn check_alive(&self) -> Result<()> {
        check_owner(self.process)?;
        if self.gate.is_closed() { Err(shut_down_error()) } else { Ok(()) }
    }

    /// Every seed of a split exactly once over all ranks, one task after the other.
    ///
    /// The last batch of a task is filled up with sequences of weight 0. All ranks have the same
    /// number of batches.
    ///
    /// # Errors
    /// `InvalidArgument` when a task is not served by this sampler.
    pub fn evaluate(&self, split: Split, tasks: Option<&[String]>) -> Result<Evaluation> {
        self.check_alive()?;
        let served = &self.engine.tasks;
        let mut chosen: Vec<usize> = match tasks {
            None => (0..served.len()).collect(),
            Some(names) => {
                names.iter().map(|name| self.task_number(name)).collect::<Result<_>>()?
            }
        };
        if let Some(twice) = (1..chosen.len()).find(|&at| chosen[..at].contains(&chosen[at])) {
            let name = &served[chosen[twice]].name;
            return Err(Error::invalid(format!("task {name:?} is named twice")));
        }
        chosen.retain(|&task| served[task].count(split) > 0);
        chosen.reverse();
        let batch_size = u64::from(self.engine.settings.shape.batch_size);
        let assignment = self.assignment;
        let pass = Pass { split, tasks: chosen, taken: 0, batch_size, assignment };
        Ok(Evaluation {
            engine: Arc::clone(&self.engine),
            pass,
            in_flight: InFlight::default(),
            is_ahead: self.prefetch > 0,
            gate: Arc::clone(&self.gate),
            process: self.process,
        })
    }

    /// The contexts of chosen rows of a task's anchor table at chosen times, as one batch, filled up
    /// with sequences of weight 0.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown task, more rows than a batch has, or a row that is not there.
    pub fn sample(&self, task: &str, anchors: &[(u32, i64)]) -> Result<Batch> {
        self.check_alive()?;
        let task = self.task_number(task)?;
        let batch_size = self.engine.settings.shape.batch_size as usize;
        if anchors.len() > batch_size {
            return Err(Error::invalid(format!(
                "found {} anchors, and a batch has {batch_size} sequences; ask for fewer at a time",
                anchors.len()
            )));
        }
        let chosen = anchors.iter().map(|&(row, obs_time)| Subject::Chosen { row, obs_time });
        let subjects: Vec<_> =
            chosen.chain(std::iter::repeat(Subject::Filler)).take(batch_size).collect();
        self.engine.make(task, &subjects)
    }

    /// The sequence of seed `index` of a task as the first epoch has it, alone in a batch filled up
    /// with sequences of weight 0.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such task or seed.
    pub fn batch_of_seed(&self, task: &str, index: u32) -> Result<Batch> {
        self.check_alive()?;
        let task = self.task_number(task)?;
        let batch_size = self.engine.settings.shape.batch_size as usize;
        let seed = std::iter::once(Subject::Seed { index, epoch: 0 });
        let subjects: Vec<_> =
            seed.chain(std::iter::repeat(Subject::Filler)).take(batch_size).collect();
        self.engine.make(task, &subjects)
    }

    /// What a sampler was told.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.engine.settings
    }

    /// The rows of a task's anchor table that have these keys.
    ///
    /// # Errors
    /// `InvalidArgument` for an unknown task or key.
    pub fn find_anchors(&self, task: &str, keys: &[String]) -> Result<Vec<u32>> {
        let task = &self.engine.tasks[self.task_number(task)?];
        let store = &self.engine.databases[task.database].store;
        let anchor = &store.tables()[store.tasks()[task.place].metadata().anchor as usize];
        let find = |key: &String| {
            anchor.find(key)?.ok_or_else(|| {
                Error::invalid(format!(
                    "no row of table {:?} has the key {key:?}; a key looks like {:?}",
                    anchor.metadata().name,
                    anchor.key(0).unwrap_or_default()
                ))
            })
        };
        keys.iter().map(find).collect()
    }

    /// The number of the task of this name, which may be short (`churn`) or full (`shop/churn`).
    ///
    /// # Errors
    /// `InvalidArgument` when no task has the name, or several have.
    pub fn task_number(&self, wanted: &str) -> Result<usize> {
        let tasks = &self.engine.tasks;
        let fits =
            |name: &str| name == wanted || name.split_once('/').is_some_and(|n| n.1 == wanted);
        let mut found = (0..tasks.len()).filter(|&number| fits(&tasks[number].name));
        let (what, names) = match (found.next(), found.next()) {
            (Some(number), None) => return Ok(number),
            (Some(one), Some(two)) => {
                ("several tasks", [one, two].into_iter().chain(found).collect())
            }
            (None, _) => ("no task", (0..tasks.len()).collect::<Vec<_>>()),
        };
        let names: Vec<&str> = names.into_iter().map(|number| &*tasks[number].name).collect();
        Err(Error::invalid(format!(
            "this sampler serves {what} {wanted:?}; name one of {}",
            names.join(", ")
        )))
    }

    /// Where the caller stands in all streams: what was consumed, not what was made ahead.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor_at(&Snapshot(lock(&self.consumed).clone()))
    }

    /// The cursor of the moment at which a batch was handed out.
    #[must_use]
    pub fn cursor_at(&self, snapshot: &Snapshot) -> Cursor {
        let mut position = Position::new();
        for (split, place) in Split::ALL.into_iter().zip(&snapshot.0) {
            place.record(split, &self.engine.tasks, &mut position);
        }
        Cursor::new(CursorKind::Sampler, self.plan.clone(), position)
    }

    /// Writes the cursor to a file, wholly or not at all.
    ///
    /// # Errors
    /// `Io` when the disk refuses.
    pub fn save_cursor(&self, path: &Path) -> Result<()> {
        self.cursor().write(&durable::Disk, path)
    }

    /// Goes on from where a cursor stands, also from one of another number of ranks or another
    /// batch size.
    ///
    /// # Cost
    /// The same whatever the position.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every field that differs.
    pub fn resume(&self, cursor: &Cursor) -> Result<()> {
        self.check_alive()?;
        cursor.check(&self.plan)?;
        let place = |split| Place::recorded(split, &self.engine.tasks, cursor.position());
        let places = [place(Split::Train)?, place(Split::Val)?, place(Split::Test)?];
        let streams =
            Split::ALL.into_iter().filter(|&split| self.streams[split as usize].is_some());
        let mut streams = streams.map(|s| self.stream(s)).collect::<Result<Vec<_>>>()?;
        // What was made ahead is of another place.
        streams.iter_mut().for_each(|stream| stream.forget());
        *lock(&self.consumed) = places;
        Ok(())
    }

    /// The names of the tasks that are served, as `database/task`, by their number in a batch.
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.engine.tasks.iter().map(|task| task.name.as_str())
    }

    /// How many seeds the task of this number has in a split.
    ///
    /// # Panics
    /// When there is no such task.
    #[must_use]
    pub fn seed_count(&self, task: usize, split: Split) -> u64 {
        self.engine.tasks[task].count(split)
    }

    /// How many of the task's seeds in a split a pass gives to this rank.
    ///
    /// # Panics
    /// When there is no such task.
    #[must_use]
    pub fn own_seed_count(&self, task: usize, split: Split) -> u64 {
        self.assignment.owned_count(self.seed_count(task, split))
    }

    /// The stores, in their order.
    pub fn stores(&self) -> impl Iterator<Item = &Arc<Store>> {
        self.engine.databases.iter().map(|database| &database.store)
    }

    /// What determines the sequence.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// What the caller had consumed of every stream at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot([Place; 3]);

fn check_names(databases: &[Database]) -> Result<()> {
    if databases.is_empty() {
        return Err(Error::invalid("expected at least one store to sample from, found none"));
    }
    let name = |database: &Database| database.store.metadata().database.clone();
    for (place, database) in databases.iter().enumerate() {
        let other = databases[..place].iter().find(|other| name(other) == name(database));
        if let Some(other) = other {
            return Err(Error::invalid(format!(
                "two stores have the name {:?}; their tasks could not be told apart: prepare one \
                 with another name",
                name(other)
            )));
        }
    }
    Ok(())
}

impl Drop for Sampler {
    fn drop(&mut self) {
        if check_owner(self.process).is_ok() {
            return self.shutdown();
        }
        // The threads are in another process: here nobody could be joined, or woken, or would ever
        // give a lock back.
        for stream in self.streams.iter_mut().flatten() {
            let stream = stream.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(stream.producer.take());
        }
        std::mem::forget(Arc::clone(&self.engine));
    }
}
