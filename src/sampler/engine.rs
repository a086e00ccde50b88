//! Makes batches: from seeds to tensors.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

use super::batch::Batch;
use super::database::Database;
use super::order::Orders;
use super::sequence::{Observation, Sequence, sequences};
use super::settings::{Settings, Shape, Texts};
use super::tasks::Task;
use super::tensors::Tensors;
use super::texts::{TextTable, buckets, encoding};
use super::walk::{Bounds, Start, Walker};
use crate::error::{Error, Result};
use crate::handoff::Pool;
use crate::process::{pool, pool_that_waits};
use crate::random::{Purpose, Stream};
use crate::store::{ALWAYS_VISIBLE, Cell, SEES_EVERYTHING, Seed, TextEncoding};

/// The slices of a sequence may take more memory than a short sequence itself.
const SEQUENCES_AT_A_TIME: usize = 4096;

/// The source of one sequence of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceSource {
    /// A seed of the task, in some epoch.
    Seed { seed_index: u32, epoch: u64 },
    /// A seed of the task to learn from, in some epoch.
    TrainSeed { seed_index: u32, epoch: u64 },
    /// A row of the anchor table that the caller chose, and a time.
    Chosen { row: u32, obs_time: i64 },
    /// No context: the sequence pads the batch.
    Filler,
}

/// The state that all batches of a sampler share, and the buffers that they are made in.
pub(super) struct Engine {
    pub databases: Vec<Database>,
    pub tasks: Vec<Task>,
    pub settings: Settings,
    bounds: Bounds,
    /// The layouts of batches by the length of their sequences, ascending.
    layouts: Vec<(u32, Arc<Tensors>)>,
    text_buckets: Vec<u32>,
    /// That of the vectors in batches.
    text_encoding: TextEncoding,
    pub threads: rayon::ThreadPool,
    buffers: Arc<Pool>,
    scratch: Mutex<Vec<Scratch>>,
    text_tables: Mutex<Vec<TextTable>>,
}

/// The buffers with which one thread makes a sequence.
pub(super) struct Scratch {
    pub walker: Walker,
    orders: Orders,
}

impl Engine {
    pub(super) fn new(
        databases: Vec<Database>,
        tasks: Vec<Task>,
        settings: Settings,
        threads: Option<usize>,
    ) -> Result<Self> {
        let shape = &settings.shape;
        let cell_count = u64::from(shape.batch_size) * u64::from(shape.sequence_length);
        let cell_count = u32::try_from(cell_count).map_err(|_| {
            Error::limit(format!(
                "expected a batch of at most 2^32 - 1 cells, found {} sequences of {} cells; use a \
                 smaller batch size or shorter sequences",
                shape.batch_size, shape.sequence_length
            ))
        })?;
        let references_max = databases.iter().enumerate().map(|(number, database)| {
            let own = tasks.iter().filter(|task| task.database == number);
            database.references_max(own.map(|task| task.anchor))
        });
        let references_max = references_max.max().unwrap_or(0);
        let (text_buckets, text_encoding) = match &shape.texts {
            Texts::Batch(given) => (buckets(given, cell_count)?, encoding(&databases)?),
            Texts::Global => (Vec::new(), TextEncoding::default()),
        };
        check_bytes(shape, references_max)?;
        Ok(Self {
            bounds: Bounds {
                walk: settings.walk,
                cells_max: shape.sequence_length as usize,
                rows_max: shape.max_rows as usize,
                aggregates: settings.aggregates,
            },
            layouts: (shape.sequence_lengths().into_iter())
                .map(|length| {
                    let tensors = Tensors::new(shape, length, settings.masks, references_max);
                    (length, Arc::new(tensors))
                })
                .collect(),
            text_buckets,
            text_encoding,
            threads: threads_for(&databases, threads)?,
            buffers: Arc::default(),
            scratch: Mutex::default(),
            text_tables: Mutex::default(),
            databases,
            tasks,
            settings,
        })
    }

    /// Makes a batch, one sequence from each source.
    ///
    /// # Determinism
    /// A sequence depends on its source, the databases and the settings, not on other sequences.
    /// Only the texts are numbered in the order of the sequences, and the longest sequence decides how
    /// many cells of padding follow the others.
    pub(super) fn make(&self, task: usize, sources: &[SequenceSource]) -> Result<Batch> {
        let task = &self.tasks[task];
        let database = &self.databases[task.database];
        database.store.begin_batch();
        let (_, whole) = self.layouts.last().expect("there is a layout of whole sequences");
        let slab = self.buffers.take(whole.bytes, whole.bytes);
        let mut slab = slab.map_err(|error| error.followed_by(", or a smaller max_rows"))?;
        let mut places = sequences(whole, slab.used_mut(), &self.settings, task.heading);
        let mut longest = 0;
        for sources in sources.chunks(SEQUENCES_AT_A_TIME) {
            let places: Vec<_> = places.by_ref().take(sources.len()).collect();
            let lengths = self.threads.install(|| {
                (places.into_par_iter().zip(sources))
                    .map(|(place, &source)| {
                        let mut scratch = self.take_scratch();
                        let made = self.make_sequence(task, source, place, &mut scratch);
                        lock(&self.scratch).push(scratch);
                        made
                    })
                    .try_reduce(|| 0, |one, other| Ok(one.max(other)))
            });
            longest = longest.max(lengths?);
        }
        drop(places);
        let mut fitting = self.layouts.iter().filter(|(length, _)| *length as usize >= longest);
        let (_, tensors) = fitting.next().expect("no sequence is longer than the longest layout");
        if !Arc::ptr_eq(tensors, whole) {
            whole.shorten(tensors, slab.used_mut());
        }
        let texts = tensors.all.iter().find(|tensor| tensor.name == "text_embed_ids");
        let texts = texts.expect("every batch has texts");
        let bytes = &mut slab.used_mut()[texts.offset..][..texts.bytes()];
        let cells: &mut [u32] = bytemuck::cast_slice_mut(bytes);
        let vectors = match self.settings.shape.texts {
            Texts::Global => {
                cells.iter_mut().for_each(|cell| *cell = cell.saturating_sub(1));
                Vec::new()
            }
            Texts::Batch(_) => {
                let mut table = lock(&self.text_tables).pop().unwrap_or_default();
                table.number(cells)?;
                let (encoding, buckets) = (self.text_encoding, &self.text_buckets);
                let gathered = self
                    .threads
                    .install(|| table.gather(&database.store, encoding, buckets, &self.buffers));
                lock(&self.text_tables).push(table);
                gathered?
            }
        };
        Ok(Batch { slab, tensors: Arc::clone(tensors), texts: vectors })
    }

    pub(super) fn take_scratch(&self) -> Scratch {
        let waiting = lock(&self.scratch).pop();
        waiting.unwrap_or_else(|| {
            let columns = self.databases.iter().map(|database| database.column_count);
            Scratch {
                walker: Walker::new(self.settings.shape.max_rows),
                orders: Orders::new(self.settings.row_order, columns.max().unwrap_or(0)),
            }
        })
    }

    /// Makes a sequence in its place; returns the number of its cells.
    fn make_sequence(
        &self,
        task: &Task,
        source: SequenceSource,
        place: Sequence<'_>,
        scratch: &mut Scratch,
    ) -> Result<usize> {
        if source == SequenceSource::Filler {
            place.fill();
            return Ok(0);
        }
        let (Seed { target, .. }, observation) = self.collect(task, source, scratch)?;
        let database = &self.databases[task.database];
        let target = task.target(&self.databases, target);
        let keep_future = self.settings.keep_future_cells;
        let (walker, orders) = (&scratch.walker, &mut scratch.orders);
        let masked = self.settings.masks.zip(self.mask_words(task, source));
        place.write(database, walker, target, (observation, keep_future), masked, orders)
    }

    /// Returns the words that decide which cells of a seed's sequence are masked; those of a row that the
    /// caller chose are all seen.
    fn mask_words(&self, task: &Task, source: SequenceSource) -> Option<Stream> {
        match source {
            SequenceSource::Seed { seed_index, epoch }
            | SequenceSource::TrainSeed { seed_index, epoch } => Some(Stream::new(
                self.settings.seed,
                Purpose::MaskedCell,
                [task.identity, epoch, u64::from(seed_index)],
            )),
            SequenceSource::Chosen { .. } | SequenceSource::Filler => None,
        }
    }

    /// Collects the context of a source that is not a filler; returns its seed and its observation.
    pub(super) fn collect(
        &self,
        task: &Task,
        source: SequenceSource,
        scratch: &mut Scratch,
    ) -> Result<(Seed, Observation)> {
        let database = &self.databases[task.database];
        let stream = |purpose, [a, b]: [u64; 2]| {
            Stream::new(self.settings.seed, purpose, [task.identity, a, b])
        };
        let until = self.settings.visible_until.unwrap_or(i64::MAX);
        let (seed, mut random) = match source {
            SequenceSource::Seed { seed_index, epoch }
            | SequenceSource::TrainSeed { seed_index, epoch } => {
                let seed = task.seed(&self.databases, seed_index)?;
                let identity = [epoch, u64::from(seed_index)];
                let obs_time = match source {
                    SequenceSource::TrainSeed { .. } => {
                        let mut random = stream(Purpose::Staleness, identity);
                        earlier(seed.obs_time, self.settings.staleness, &mut random)
                    }
                    _ => seed.obs_time,
                };
                let seed = Seed { obs_time: obs_time.min(until), ..seed };
                (seed, stream(Purpose::Walk, identity))
            }
            SequenceSource::Chosen { row, obs_time } => {
                let obs_time = obs_time.min(until);
                let seed = Seed { row, obs_time, target: Cell::Null, split: None };
                (seed, stream(Purpose::ChosenWalk, [obs_time as u64, u64::from(row)]))
            }
            SequenceSource::Filler => unreachable!("a filler has no context"),
        };
        let sees_until = task.sees_until(&self.databases, seed.obs_time);
        let observation = Observation { at: seed.obs_time, sees_until };
        let target = task.target(&self.databases, seed.target);
        let start = Start {
            table: task.anchor,
            row: seed.row,
            obs_time: observation.sees_until,
            extra_cells: usize::from(target.own.is_some()),
            hidden: target.hidden,
        };
        scratch.walker.walk(database, start, &self.bounds, &mut random)?;
        Ok((seed, observation))
    }
}

/// Starts the threads that make batches.
fn threads_for(databases: &[Database], threads: Option<usize>) -> Result<rayon::ThreadPool> {
    match databases.iter().any(|database| database.store.is_larger_than_memory()) {
        true => pool_that_waits(threads),
        false => pool(threads),
    }
}

/// Returns a time up to `staleness` microseconds earlier, each one equally likely. A seed that sees
/// everything still does.
fn earlier(obs_time: i64, staleness: i64, random: &mut Stream) -> i64 {
    if staleness == 0 || obs_time == SEES_EVERYTHING {
        return obs_time;
    }
    let step = random.below(staleness.cast_unsigned() + 1).cast_signed();
    // The two least times have meanings of their own.
    obs_time.saturating_sub(step).max(ALWAYS_VISIBLE + 2)
}

/// Rejects batches of more than 2^47 bytes. For smaller ones, the allocation tells whether they fit.
fn check_bytes(shape: &Shape, references_max: usize) -> Result<()> {
    const BYTES_MAX: u128 = 1 << 47;
    let [b, s, r] = [shape.batch_size, shape.sequence_length, shape.max_rows].map(u128::from);
    // All tensors of a cell together are shorter. A row has 15 bytes of its own, r of the adjacency
    // and 8 for each edge.
    let bytes = b * (s * 128 + r * (15 + r + 8 * references_max as u128));
    if bytes <= BYTES_MAX {
        return Ok(());
    }
    Err(Error::limit(format!(
        "expected batches of at most 2^47 bytes, found {b} sequences of {s} cells and {r} rows; use \
         smaller numbers"
    )))
}

/// Locks a value that a panic never leaves half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
