//! `EventSampler`: endless streams of token rows, one for each split.

use std::path::Path;
use std::sync::Arc;

use super::batch::{EventBatch, Segments};
use super::rows::{RowScratch, RowSource, Rows, past_the_end};
use super::settings::EventSettings;
use super::store::EventStore;
use crate::durable;
use crate::error::{Error, Result};
use crate::handoff::{Maker, Pass, Speed, Streams};
use crate::plan::{Assignment, Cursor, CursorKind, Plan, Position, Split};

/// Endless streams of token rows from an event store, one stream for each split.
///
/// # Determinism
/// A row of a stream is a function of its index, of the store and of the settings. Ranks divide the
/// rows; threads and prefetching change only the speed.
///
/// # Example
/// ```
/// use std::sync::Arc;
///
/// use headwater::events::{EventSampler, EventSettings, EventStore, Speed};
/// use headwater::plan::{Assignment, Split};
///
/// let store = Arc::new(EventStore::open("checkpoints/events-v1-small".as_ref())?);
/// let rank = Assignment::new(0, 1)?; // rank 0 of 1
/// let sampler = EventSampler::new(store, EventSettings::default(), rank, Speed::default())?;
/// let (batch, _) = sampler.next(Split::Train)?;
/// let inputs = batch.get::<i32>("inputs").unwrap_or_default();
/// assert_eq!(inputs.len(), 128 * 1024);
/// # Ok::<(), headwater::Error>(())
/// ```
pub struct EventSampler {
    batches: Arc<Batches>,
    plan: Plan,
    streams: Streams<Batches>,
}

/// Makes the batches of one rank.
struct Batches {
    rows: Rows,
    assignment: Assignment,
}

impl Batches {
    /// Returns the indices of this rank's rows of the global batch that begins at row `base`.
    fn indices(&self, base: u64) -> impl Iterator<Item = Result<u64>> {
        let rows = u64::from(self.rows.settings.batch_size);
        (0..rows).map(move |row| {
            let own = self.assignment.position(0, rows, row)?;
            base.checked_add(own).ok_or_else(past_the_end)
        })
    }

    /// Returns the row at which the global batch after `base` begins.
    fn after(&self, base: u64) -> Option<u64> {
        let rows = u64::from(self.rows.settings.batch_size);
        base.checked_add(rows.checked_mul(self.assignment.world())?)
    }
}

impl Maker for Batches {
    type Place = u64;
    type Work = Vec<RowSource>;
    type Item = EventBatch;

    fn check(&self, stream: usize) -> Result<()> {
        self.rows.check_count(Split::ALL[stream])
    }

    fn advance(&self, stream: usize, place: &mut u64) -> Result<Vec<RowSource>> {
        let split = Split::ALL[stream];
        let sources = self.rows.sources(split, self.indices(*place))?;
        *place = self.after(*place).ok_or_else(past_the_end)?;
        Ok(sources)
    }

    fn make(&self, work: &Vec<RowSource>) -> Result<EventBatch> {
        self.rows.make(work)
    }

    fn threads(&self) -> &rayon::ThreadPool {
        &self.rows.threads
    }
}

impl EventSampler {
    /// Returns a sampler over a store, for one rank of several.
    ///
    /// # Errors
    /// `InvalidArgument` for settings out of range.
    pub fn new(
        store: Arc<EventStore>,
        settings: EventSettings,
        assignment: Assignment,
        speed: Speed,
    ) -> Result<Self> {
        settings.check(store.codec().room())?;
        let plan = settings.plan(&store)?;
        let rows = Rows::new(store, settings, speed.threads)?;
        let batches = Arc::new(Batches { rows, assignment });
        let streams = Streams::new(Arc::clone(&batches), speed.prefetch, [0; 3]);
        Ok(Self { batches, plan, streams })
    }

    /// Returns the next batch of a split, and the numbers of rows that all ranks have taken of each split
    /// after it; waits until the batch is made.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no events, or when another thread waits for a batch of the
    /// same split; else the error of making the batch.
    pub fn next(&self, split: Split) -> Result<(EventBatch, [u64; 3])> {
        self.streams.next(split as usize)
    }

    /// Waits until the next batch of a split is made, without taking it: an interrupt while waiting
    /// consumes nothing.
    ///
    /// # Errors
    /// Those of [`EventSampler::next`].
    pub fn wait(&self, split: Split) -> Result<()> {
        self.streams.wait(split as usize)
    }

    /// Ends the producer threads and wakes waiting callers. Afterwards every call is an error, except
    /// those for the cursor. In a forked child, which has none of the threads, this does nothing.
    pub fn shutdown(&self) {
        self.streams.shutdown();
    }

    /// Returns a pass over the contexts of every item of a split, each alone in a row, exactly once over
    /// all ranks. Rows of weight 0 pad the last batch; all ranks have the same number of batches.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no events.
    pub fn evaluate(&self, split: Split) -> Result<EventEvaluation> {
        self.streams.check_alive()?;
        self.batches.rows.check_count(split)?;
        let count = self.batches.rows.count(split);
        let batches = Arc::clone(&self.batches);
        let mut base = Some(0);
        let next: NextRows = Box::new(move || {
            let Some(start) = base.filter(|&start| start < count) else { return Ok(None) };
            // Past the last item is the end, however far.
            base = batches.after(start);
            let source = |index: Result<u64>| {
                Ok(match index? {
                    item if item < count => RowSource::Alone { split, epoch: 0, item },
                    _ => RowSource::Padding,
                })
            };
            batches.indices(start).map(source).collect::<Result<_>>().map(Some)
        });
        Ok(EventEvaluation(self.streams.pass(next)))
    }

    /// Returns rows of a split's stream by their indices, whatever the rank, as one batch padded with rows
    /// of weight 0. It moves no stream.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no events, or for more rows than a batch has.
    pub fn rows(&self, split: Split, indices: &[u64]) -> Result<EventBatch> {
        self.streams.check_alive()?;
        let rows = &self.batches.rows;
        rows.check_count(split)?;
        let batch_size = rows.settings.batch_size as usize;
        if indices.len() > batch_size {
            return Err(Error::invalid(format!(
                "expected at most {batch_size} indices (the batch size), found {}; take fewer rows at \
                 a time",
                indices.len()
            )));
        }
        let mut sources = rows.sources(split, indices.iter().map(|&index| Ok(index)))?;
        sources.resize(batch_size, RowSource::Padding);
        rows.make(&sources)
    }

    /// Returns the contexts of one row of a split's stream.
    ///
    /// # Errors
    /// `InvalidArgument` when the split has no events.
    pub fn token_row(&self, split: Split, index: u64) -> Result<TokenRow> {
        self.streams.check_alive()?;
        let rows = &self.batches.rows;
        rows.check_count(split)?;
        let count = rows.count(split);
        let mut scratch = RowScratch::default();
        let mut entity = None;
        let mut item = 0;
        for source in rows.sources(split, std::iter::once(Ok(index)))? {
            entity = rows.collect(source, &mut scratch)?;
            item = source.item();
        }
        let Segments { tokens, ends } = &scratch.segments;
        let starts = std::iter::once(&0).chain(ends);
        Ok(TokenRow {
            split,
            index,
            epoch: index / count,
            item,
            entity: rows.store.entity(entity.unwrap_or_default())?.to_owned(),
            segments: starts.zip(ends).map(|(&start, &end)| tokens[start..end].to_vec()).collect(),
        })
    }

    /// Returns the tokens of the latest events of an entity, those before `before_us`: what a model
    /// continues. They are in the order of time, each with its time, and at most `length` tokens (default:
    /// the sequence length). Without events before that time there are no tokens.
    ///
    /// # Cost
    /// That of one context, and binary searches for the entity and for the time.
    ///
    /// # Errors
    /// `InvalidArgument` when the store has no such entity, or its last event is longer than `length`;
    /// `Shutdown`.
    pub fn latest(
        &self,
        entity: &str,
        before_us: Option<i64>,
        length: Option<u32>,
    ) -> Result<Vec<u16>> {
        self.streams.check_alive()?;
        self.batches.rows.latest(entity, before_us.unwrap_or(i64::MAX), length)
    }

    /// Moves the stream of a split to the row at `index`: the next global batch begins there.
    ///
    /// # Cost
    /// The same for every index.
    ///
    /// # Errors
    /// `Shutdown`, or `InvalidArgument` when the split has no events, or another thread waits for a batch.
    pub fn seek(&self, split: Split, index: u64) -> Result<()> {
        self.batches.rows.check_count(split)?;
        self.streams.move_one(split as usize, index)
    }

    /// Returns the cursor of what the caller has consumed, without what was made ahead.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor_at(self.streams.places())
    }

    /// Returns the cursor right after the batch that came with these numbers of rows.
    #[must_use]
    pub fn cursor_at(&self, places: [u64; 3]) -> Cursor {
        let mut position = Position::new();
        for (split, rows) in Split::ALL.into_iter().zip(places) {
            position.set(counter(split), rows);
        }
        Cursor::new(CursorKind::Events, self.plan.clone(), position)
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
        cursor.check(CursorKind::Events, &self.plan)?;
        let rows = |split| {
            cursor.position().get(&counter(split)).ok_or_else(|| {
                Error::corrupt(format!(
                    "expected the counter {:?} in the cursor's position, found none; use a cursor that \
                     an event sampler saved",
                    counter(split)
                ))
            })
        };
        self.streams.move_to([rows(Split::Train)?, rows(Split::Val)?, rows(Split::Test)?])
    }

    /// Returns the settings that the sampler was made with.
    #[must_use]
    pub fn settings(&self) -> &EventSettings {
        &self.batches.rows.settings
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<EventStore> {
        &self.batches.rows.store
    }

    /// Returns the number of different tokens.
    #[must_use]
    pub fn vocabulary(&self) -> u16 {
        self.store().vocabulary()
    }

    /// Returns the number of rows of an epoch of a split's stream.
    #[must_use]
    pub fn count(&self, split: Split) -> u64 {
        self.batches.rows.count(split)
    }

    /// Returns the plan: the settings and the data that determine the sequence.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// One token row: its contexts, as tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRow {
    /// The split of the stream.
    pub split: Split,
    /// The place in the stream.
    pub index: u64,
    /// The epoch.
    pub epoch: u64,
    /// The item whose context is the first segment.
    pub item: u64,
    /// The text that names the item's entity.
    pub entity: String,
    /// The contexts.
    pub segments: Vec<Vec<u16>>,
}

fn counter(split: Split) -> String {
    format!("{}/rows", split.name())
}

/// Returns this rank's rows of the next batch.
type NextRows = Box<dyn FnMut() -> Result<Option<Vec<RowSource>>> + Send>;

/// A finite pass over the items of a split, as an iterator of batches. It ends at a batch that cannot
/// be made.
pub struct EventEvaluation(Pass<Batches, NextRows>);

impl EventEvaluation {
    /// Returns the process whose threads make the batches; another process cannot continue the pass.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.0.process()
    }

    /// Waits until the next batch is made, without taking it: an interrupt while waiting consumes
    /// nothing.
    ///
    /// # Errors
    /// That of making the batch.
    pub fn wait(&mut self) -> Result<()> {
        self.0.wait()
    }
}

impl Iterator for EventEvaluation {
    type Item = Result<EventBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}
