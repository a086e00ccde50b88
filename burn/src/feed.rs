//! What a loader and those on other devices share: the sampler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use headwater::plan::{Assignment, Split};
use headwater::sampler::{Batch, Sampler, Settings, Speed};
use headwater::store::{Metadata, Store};
use headwater::{Error, Result};

use crate::batch::GraphBatch;
use crate::compact::TimeScales;
use crate::slices::Part;

/// A sampler, and what makes its batches tensors.
pub(crate) struct Feed {
    pub sampler: Sampler,
    assignment: Assignment,
    speed: Speed,
    /// The store of each task.
    stores: Vec<usize>,
    /// The scales of each store, where batches are compact.
    scales: Vec<TimeScales>,
    /// Whether an iterator takes the batches of the stream.
    in_use: AtomicBool,
    #[cfg(feature = "train")]
    pub ends: Arc<[crate::train::Ends; 3]>,
}

impl Feed {
    pub(crate) fn new(
        stores: Vec<Arc<Store>>,
        settings: Settings,
        assignment: Assignment,
        speed: Speed,
    ) -> Result<Self> {
        stores.iter().try_for_each(|store| check_indexes(store.metadata()))?;
        let scales = match settings.shape.compact {
            true => stores.iter().map(|store| TimeScales::new(store)).collect(),
            false => Vec::new(),
        };
        let sampler = Sampler::new(stores, settings, assignment, speed)?;
        Ok(Self {
            stores: stores_of_tasks(&sampler),
            scales,
            sampler,
            assignment,
            speed,
            in_use: AtomicBool::new(false),
            #[cfg(feature = "train")]
            ends: Arc::default(),
        })
    }

    /// Returns the feed of a part of this rank, at the same place of the stream.
    pub(crate) fn part(&self, part: Part) -> Result<Self> {
        let stores = self.sampler.stores().cloned().collect();
        let assignment = part.of_rank(self.assignment)?;
        let own = Self::new(stores, self.sampler.settings().clone(), assignment, self.speed)?;
        own.sampler.resume(&self.sampler.cursor())?;
        // The parts end their epochs together, at one cursor: the first tells it.
        #[cfg(feature = "train")]
        let own = if part.number == 0 { Self { ends: Arc::clone(&self.ends), ..own } } else { own };
        Ok(own)
    }

    /// Returns the number of the store that each task is of.
    pub(crate) fn stores_of_tasks(&self) -> &[usize] {
        &self.stores
    }

    /// Returns the number of sequences of a batch.
    pub(crate) fn batch_size(&self) -> u64 {
        u64::from(self.sampler.settings().shape.batch_size)
    }

    /// Returns the seeds of a split: of all ranks, and of this one.
    pub(crate) fn seeds(&self, split: Split) -> (u64, u64) {
        let tasks = 0..self.stores.len();
        let all = tasks.clone().map(|task| self.sampler.seed_count(task, split)).sum();
        (all, tasks.map(|task| self.sampler.own_seed_count(task, split)).sum())
    }

    /// Returns the number of steps in which the ranks take `seeds` together.
    pub(crate) fn steps(&self, seeds: u64) -> u64 {
        seeds.div_ceil(self.batch_size().saturating_mul(self.assignment.world()))
    }

    /// Returns a batch as tensors.
    pub(crate) fn on_device(&self, batch: &Batch, device: &Device) -> Result<GraphBatch> {
        let task = batch.get::<u32>("task_idx").and_then(|task| task.first());
        let store = task.and_then(|&task| self.stores.get(task as usize));
        match store.and_then(|&store| self.scales.get(store)) {
            Some(scales) => GraphBatch::from_compact(batch, scales, device),
            None => GraphBatch::new(batch, device),
        }
    }

    /// Claims the stream for one iterator.
    pub(crate) fn claim(&self) -> Result<Claim<'_>> {
        if self.in_use.swap(true, Ordering::Acquire) {
            return Err(Error::invalid(
                "expected one iterator of the loader at a time, found a second one, which would take \
                 batches from the first; drop that one first",
            ));
        }
        Ok(Claim(&self.in_use))
    }
}

/// The right to take the batches of a feed; it ends when it is dropped.
pub(crate) struct Claim<'a>(&'a AtomicBool);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Rejects a store with more vectors than Burn's whole numbers can name.
fn check_indexes(metadata: &Metadata) -> Result<()> {
    let embedding = &metadata.embedding;
    for (name, count) in [("texts", embedding.text_count), ("categories", embedding.category_count)]
    {
        if i32::try_from(count).is_err() {
            return Err(Error::limit(format!(
                "expected at most {} {name} in a store, found {count}: tensors number them in 31 bits",
                i32::MAX
            )));
        }
    }
    Ok(())
}

/// Returns the number of the store of each task, which its name begins with.
fn stores_of_tasks(sampler: &Sampler) -> Vec<usize> {
    let own = || sampler.stores().map(|store| store.metadata().database.clone()).collect();
    let names: Vec<String> = sampler.settings().aliases.clone().unwrap_or_else(own);
    let is_of =
        |task: &str, name: &str| task.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    let store = |task: &str| names.iter().position(|name| is_of(task, name)).unwrap_or(0);
    sampler.tasks().map(store).collect()
}
