//! Token rows: each one is a function of its index.

use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;

use super::batch::{EventBatch, Place, Segments, Tensors};
use super::context::{Scratch, context};
use super::latest::latest;
use super::settings::{EventSettings, LENGTH_MAX};
use super::store::EventStore;
use crate::error::{Error, Result};
use crate::handoff::Pool;
use crate::plan::{Permutation, Split};
use crate::process::{pool, pool_that_waits};
use crate::random::{Purpose, Stream, name_identity};

/// The number in the place of a split's, for the words of the latest events.
const LATEST: u64 = 3;

/// A row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowSource {
    /// The context of an item in an epoch, and those that fill the row.
    Packed { split: Split, epoch: u64, item: u64 },
    /// The context of an item in an epoch, alone.
    Alone { split: Split, epoch: u64, item: u64 },
    /// No context: the row pads the batch.
    Padding,
}

impl RowSource {
    /// Returns the item; 0 for padding.
    pub(super) fn item(self) -> u64 {
        match self {
            Self::Packed { item, .. } | Self::Alone { item, .. } => item,
            Self::Padding => 0,
        }
    }
}

/// Makes token rows, and the batches of them.
pub(super) struct Rows {
    pub store: Arc<EventStore>,
    pub settings: EventSettings,
    identity: u64,
    tensors: Arc<Tensors>,
    pub threads: rayon::ThreadPool,
    buffers: Arc<Pool>,
    scratch: Mutex<Vec<RowScratch>>,
}

/// The buffers with which one thread makes a row.
#[derive(Default)]
pub(super) struct RowScratch {
    context: Scratch,
    pub segments: Segments,
}

impl Rows {
    pub(super) fn new(
        store: Arc<EventStore>,
        settings: EventSettings,
        threads: Option<usize>,
    ) -> Result<Self> {
        let threads = match store.is_larger_than_memory() {
            true => pool_that_waits(threads)?,
            false => pool(threads)?,
        };
        Ok(Self {
            tensors: Arc::new(Tensors::new(&settings)),
            store,
            settings,
            identity: name_identity("events"),
            threads,
            buffers: Arc::default(),
            scratch: Mutex::default(),
        })
    }

    /// Returns the number of items of a split: the rows of an epoch.
    pub(super) fn count(&self, split: Split) -> u64 {
        self.store.metadata().counts(split).items
    }

    /// Rejects a split without items.
    pub(super) fn check_count(&self, split: Split) -> Result<()> {
        if self.count(split) > 0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the {} split has no events; take another split, or prepare the store with another share \
             for it",
            split.name()
        )))
    }

    /// Returns the rows at some indices of a split's stream, in ascending order.
    pub(super) fn sources(
        &self,
        split: Split,
        indices: impl Iterator<Item = Result<u64>>,
    ) -> Result<Vec<RowSource>> {
        let count = self.count(split);
        let mut shuffle: Option<(u64, Permutation)> = None;
        let mut sources = Vec::new();
        for index in indices {
            let index = index?;
            let epoch = index / count;
            let known = shuffle.take().filter(|(of, _)| *of == epoch);
            let (_, order) = shuffle.insert(match known {
                Some(known) => known,
                None => (epoch, self.shuffle(split, epoch)?),
            });
            sources.push(self.source_of(split, epoch, order.at(index % count)));
        }
        Ok(sources)
    }

    fn source_of(&self, split: Split, epoch: u64, item: u64) -> RowSource {
        match self.settings.packing {
            true => RowSource::Packed { split, epoch, item },
            false => RowSource::Alone { split, epoch, item },
        }
    }

    fn shuffle(&self, split: Split, epoch: u64) -> Result<Permutation> {
        let identity = [self.identity, split as u64, epoch];
        Permutation::new(self.count(split), self.settings.seed, Purpose::Permutation, identity)
    }

    /// Makes a batch, one row from each source.
    ///
    /// # Determinism
    /// A row depends on its source, the store and the settings, not on other rows.
    pub(super) fn make(&self, sources: &[RowSource]) -> Result<EventBatch> {
        self.store.begin_batch();
        let tensors = &self.tensors;
        let mut slab = self.buffers.take(tensors.bytes, tensors.bytes)?;
        let places = tensors.places(slab.used_mut());
        self.threads.install(|| {
            (places.into_par_iter().zip(sources)).try_for_each(|(place, &source)| {
                let mut scratch = self.lock_scratch().pop().unwrap_or_default();
                let made = self.write(source, place, &mut scratch);
                self.lock_scratch().push(scratch);
                made
            })
        })?;
        Ok(EventBatch::new(slab, Arc::clone(tensors)))
    }

    /// Returns the tokens of the latest events of an entity before a time.
    pub(super) fn latest(
        &self,
        name: &str,
        before_us: i64,
        length: Option<u32>,
    ) -> Result<Vec<u16>> {
        let Some(entity) = self.store.find_entity(name)? else {
            return Err(Error::invalid(format!(
                "entity: expected the name of an entity of the store, {}, found {name:?}",
                match &self.store.metadata().entity[..] {
                    [column] => format!("a value of {column}"),
                    columns => format!(
                        "the values of {} with | between them and \\ before a | or \\ in a value",
                        columns.join(" and ")
                    ),
                }
            )));
        };
        let length = length.unwrap_or(self.settings.sequence_length);
        if length > LENGTH_MAX {
            return Err(Error::invalid(format!(
                "length: expected at most {LENGTH_MAX} tokens, found {length}"
            )));
        }
        let identity = [LATEST, entity.into(), 0];
        let mut random = Stream::new(self.settings.seed, Purpose::EventContext, identity);
        latest(&self.store, entity, before_us, &mut random, length as usize)
    }

    fn lock_scratch(&self) -> std::sync::MutexGuard<'_, Vec<RowScratch>> {
        // A panic never leaves the list half changed.
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, source: RowSource, place: Place<'_>, scratch: &mut RowScratch) -> Result<()> {
        let entity = self.collect(source, scratch)?;
        place.write(&scratch.segments, entity);
        Ok(())
    }

    /// Collects the contexts of a row in `scratch`; returns the entity of the first one.
    pub(super) fn collect(
        &self,
        source: RowSource,
        scratch: &mut RowScratch,
    ) -> Result<Option<u32>> {
        let RowScratch { context: buffers, segments: Segments { tokens, ends } } = scratch;
        ends.clear();
        let (split, epoch, first, is_packed) = match source {
            RowSource::Packed { split, epoch, item } => (split, epoch, item, true),
            RowSource::Alone { split, epoch, item } => (split, epoch, item, false),
            RowSource::Padding => return Ok(None),
        };
        let length = self.settings.sequence_length as usize;
        tokens.resize(length, 0);
        let identity = [split as u64, epoch, first];
        let mut random = Stream::new(self.settings.seed, Purpose::EventContext, identity);
        let codec = self.store.codec();
        let (mut item, mut written, mut entity) = (first, 0, None);
        loop {
            let (row, of) = self.store.row_of_item(split, item)?;
            entity = entity.or(Some(of));
            written += context(codec, &row, &mut random, buffers, &mut tokens[written..])?;
            ends.push(written);
            if !is_packed || length - written < codec.room() {
                return Ok(entity);
            }
            item = random.below(self.count(split));
        }
    }
}

/// Returns the error of a stream at its end.
pub(super) fn past_the_end() -> Error {
    Error::limit("the stream ends at row 2^64 - 1; start a new run with another random seed")
}
