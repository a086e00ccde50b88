//! `Loader`: the stream of a sampler as Burn's data loader; `EvaluationLoader`: a finite pass.

use std::path::Path;
use std::sync::Arc;

use burn::data::dataloader::{DataLoader, DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;
use burn::tensor::Device;
use headwater::durable::Disk;
use headwater::plan::{Assignment, Cursor, Split};
use headwater::sampler::{Evaluation, Settings, Speed};
use headwater::store::Store;
use headwater::{Error, Result};

use crate::batch::GraphBatch;
use crate::feed::{Claim, Feed};
use crate::slices::{Part, RefusedOnce, or_refused, progress};

/// The endless stream of one split as a data loader of Burn.
///
/// An epoch is a number of steps. `iter` goes on where the loader stands and never goes back: the stream
/// shuffles each epoch of seeds anew by itself. Clones, and loaders on other devices, share one place in the
/// stream.
///
/// # Determinism
/// The batches are those of [`headwater::sampler::Sampler`]: neither threads nor prefetching change a bit, and
/// ranks and slices divide the same stream.
#[derive(Clone)]
pub struct Loader {
    pub(crate) feed: Arc<Feed>,
    split: Split,
    steps: u64,
    /// The seeds that an epoch has for this rank.
    items: u64,
    device: Device,
}

impl Loader {
    /// Returns the loader of the train split, for one rank, on the default device.
    ///
    /// # Errors
    /// Those of [`headwater::sampler::Sampler::new`].
    pub fn new(
        stores: Vec<Arc<Store>>,
        settings: Settings,
        assignment: Assignment,
        speed: Speed,
    ) -> Result<Self> {
        let feed = Arc::new(Feed::new(stores, settings, assignment, speed)?);
        let start =
            Self { feed, split: Split::Train, steps: 0, items: 0, device: Device::default() };
        Ok(start.split(Split::Train))
    }

    /// Sets the split. An epoch then has as many steps as its seeds fill over all ranks.
    #[must_use]
    pub fn split(self, split: Split) -> Self {
        let (all, items) = self.feed.seeds(split);
        // The step of a split without seeds is an error that says so.
        Self { split, steps: self.feed.steps(all).max(1), items, ..self }
    }

    /// Sets the number of steps of an epoch.
    #[must_use]
    pub fn steps_per_epoch(self, steps: u64) -> Self {
        let items = steps.saturating_mul(self.feed.batch_size());
        Self { steps, items, ..self }
    }

    /// Sets the device of the tensors.
    #[must_use]
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Returns the cursor after the last batch that an iterator returned. It belongs to the run: any number of
    /// ranks goes on from it.
    ///
    /// # Errors
    /// `InvalidArgument` when slices of the loader have taken batches: each of them moves by itself.
    pub fn cursor(&self) -> Result<Cursor> {
        self.feed.cursor()
    }

    /// Writes the cursor to a file, completely or not at all.
    ///
    /// # Errors
    /// Those of [`Loader::cursor`], and `Io` when the disk fails.
    pub fn save_cursor(&self, path: &Path) -> Result<()> {
        self.cursor()?.write(&Disk, path)
    }

    /// Goes to a cursor. Slices that were cut before stay where they are.
    ///
    /// # Cost
    /// The same for every cursor; nothing is replayed.
    ///
    /// # Errors
    /// `PlanMismatch`, naming every setting that differs; `InvalidArgument` while an iterator is alive.
    pub fn resume(&self, cursor: &Cursor) -> Result<()> {
        self.feed.resume(cursor)
    }

    /// Ends the threads that make batches. Afterwards iterators return an error.
    pub fn shutdown(&self) {
        self.feed.shutdown();
    }

    /// Returns the names of the tasks, as `database/task`, in the order of [`GraphBatch::task`].
    pub fn tasks(&self) -> impl Iterator<Item = &str> {
        self.feed.sampler.tasks()
    }

    /// Returns the number of the store that each task is of, to choose its [`Tables`](crate::Tables).
    #[must_use]
    pub fn stores_of_tasks(&self) -> &[usize] {
        self.feed.stores_of_tasks()
    }

    /// Returns a loader of finite passes over a split: each seed once over all ranks, task by task, with its whole
    /// context: without the masks of the settings.
    #[must_use]
    pub fn evaluation(&self, split: Split) -> EvaluationLoader {
        let (_, items) = self.feed.seeds(split);
        let (feed, device) = (Arc::clone(&self.feed), self.device.clone());
        EvaluationLoader { feed, split, items, device, is_masked: false }
    }

    /// The ends of the epochs of the loader's split: those of the others, as of a validation between two epochs,
    /// are counted apart.
    #[cfg(feature = "train")]
    pub(crate) fn ends(&self) -> &crate::train::Ends {
        &self.feed.ends[self.split as usize]
    }

    /// Returns one of several parts, which has the seeds `start..end` as Burn counts them.
    fn part(&self, start: usize, end: usize) -> Result<Self> {
        let part = Part::of_slice(self.items, start as u64, end as u64)?;
        Ok(Self {
            feed: Arc::new(self.feed.part(part)?),
            steps: self.steps.div_ceil(part.count),
            items: (end - start) as u64,
            ..self.clone()
        })
    }
}

impl DataLoader<GraphBatch> for Loader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<GraphBatch> + 'a> {
        if self.steps == 0 {
            let error = "expected at least one step in an epoch, found 0; set steps_per_epoch";
            return Box::new(RefusedOnce(Some(Error::invalid(error))));
        }
        match self.feed.claim() {
            Ok(claim) => {
                Box::new(Steps { loader: self, done: 0, has_failed: false, _claim: claim })
            }
            Err(error) => Box::new(RefusedOnce(Some(error))),
        }
    }

    fn num_items(&self) -> usize {
        self.items as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<GraphBatch>> {
        Arc::new(self.clone().device(device.clone()))
    }

    /// Returns the loader of one of several devices.
    ///
    /// Burn cuts the seeds into ranges; this loader gives them to the devices in turn, as to ranks. So all slices have the
    /// same number of steps, and together they take each seed once. A slice has a sampler of its own, which
    /// begins where this loader stands. Once a slice has taken a batch, this loader gives neither batches, slices nor
    /// a cursor until it resumes.
    ///
    /// A slice that `split_dataloader` never asks for returns an error in place of batches.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<GraphBatch>> {
        or_refused(self.part(start, end))
    }
}

/// The steps of one epoch.
struct Steps<'a> {
    loader: &'a Loader,
    done: u64,
    has_failed: bool,
    _claim: Claim<'a>,
}

impl Iterator for Steps<'_> {
    type Item = Result<GraphBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Loader { feed, split, steps, device, .. } = self.loader;
        if self.has_failed || self.done == *steps {
            return None;
        }
        let taken = feed.next(*split).and_then(|(batch, snapshot)| {
            self.done += 1;
            #[cfg(feature = "train")]
            if self.done == *steps {
                self.loader.ends().note(feed.sampler.cursor_at(&snapshot));
            }
            #[cfg(not(feature = "train"))]
            drop(snapshot);
            feed.on_device(&batch, device)
        });
        self.has_failed = taken.is_err();
        Some(taken.map_err(DatasetError::new))
    }
}

impl DataLoaderIterator<GraphBatch> for Steps<'_> {
    fn progress(&self) -> Progress {
        let Loader { feed, steps, items, .. } = self.loader;
        done_of(self.done, *steps, *items, feed.batch_size())
    }
}

/// Returns the progress after `done` of `steps` batches: complete after the last step, and no earlier.
fn done_of(done: u64, steps: u64, items: u64, batch_size: u64) -> Progress {
    let seeds = done.saturating_mul(batch_size).min(items.saturating_sub(1));
    progress(if done == steps { items } else { seeds }, items)
}

/// Finite passes over a split: each seed once over all ranks, task by task. `iter` begins a new pass.
///
/// Sequences of weight 0 pad the last batch of a task, so that all ranks have the same number of batches.
#[derive(Clone)]
pub struct EvaluationLoader {
    feed: Arc<Feed>,
    split: Split,
    items: u64,
    device: Device,
    is_masked: bool,
}

impl EvaluationLoader {
    /// Masks the cells that the settings of the loader mask, for the losses of masked cells.
    #[must_use]
    pub fn with_masks(self) -> Self {
        Self { is_masked: true, ..self }
    }

    /// Sets the device of the tensors.
    #[must_use]
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    fn part(&self, start: usize, end: usize) -> Result<Self> {
        let part = Part::of_slice(self.items, start as u64, end as u64)?;
        let feed = Arc::new(self.feed.part(part)?);
        let (_, items) = feed.seeds(self.split);
        Ok(Self { feed, items, ..self.clone() })
    }
}

impl DataLoader<GraphBatch> for EvaluationLoader {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<GraphBatch> + 'a> {
        match self.feed.of_passes(self.is_masked).evaluate(self.split, None) {
            Ok(pass) => {
                let steps = pass.remaining();
                Box::new(Batches { loader: self, pass, done: 0, steps })
            }
            Err(error) => Box::new(RefusedOnce(Some(error))),
        }
    }

    fn num_items(&self) -> usize {
        self.items as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<GraphBatch>> {
        Arc::new(self.clone().device(device.clone()))
    }

    /// Returns the loader of one of several devices, as [`Loader::slice`] does.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<GraphBatch>> {
        or_refused(self.part(start, end))
    }
}

/// The batches of one pass.
struct Batches<'a> {
    loader: &'a EvaluationLoader,
    pass: Evaluation,
    done: u64,
    steps: u64,
}

impl Iterator for Batches<'_> {
    type Item = Result<GraphBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.pass.next()?;
        self.done += 1;
        let EvaluationLoader { feed, device, .. } = self.loader;
        Some(batch.and_then(|batch| feed.on_device(&batch, device)).map_err(DatasetError::new))
    }
}

impl DataLoaderIterator<GraphBatch> for Batches<'_> {
    fn progress(&self) -> Progress {
        let EvaluationLoader { feed, items, .. } = self.loader;
        done_of(self.done, self.steps, *items, feed.batch_size())
    }
}
