//! What a loader and those on other devices share: the sampler.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use headwater::plan::{Assignment, Cursor, Split};
use headwater::sampler::{Batch, Sampler, Settings, Snapshot, Speed};
use headwater::store::{Metadata, Store};
use headwater::{Error, Result};

use crate::batch::GraphBatch;
use crate::compact::TimeScales;
use crate::slices::Part;

/// A sampler, and what makes its batches tensors.
pub(crate) struct Feed {
    pub sampler: Sampler,
    /// The same without masks, where the settings have some.
    whole: Option<Sampler>,
    assignment: Assignment,
    speed: Speed,
    /// The store of each task.
    stores: Vec<usize>,
    /// The scales of each store, where batches are compact.
    scales: Vec<TimeScales>,
    /// Whether an iterator takes the batches of the stream, or a cursor moves it.
    in_use: AtomicBool,
    slices: Arc<Slices>,
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
        let whole = match settings.masks {
            None => None,
            Some(_) => {
                let settings = Settings { masks: None, ..settings.clone() };
                Some(Sampler::new(stores.clone(), settings, assignment, speed)?)
            }
        };
        let sampler = Sampler::new(stores, settings, assignment, speed)?;
        Ok(Self {
            stores: stores_of_tasks(&sampler)?,
            scales,
            sampler,
            whole,
            assignment,
            speed,
            in_use: AtomicBool::new(false),
            slices: Arc::default(),
            #[cfg(feature = "train")]
            ends: Arc::default(),
        })
    }

    /// Returns the sampler of finite passes: of whole contexts, or with the masks of the settings.
    pub(crate) fn of_passes(&self, is_masked: bool) -> &Sampler {
        match &self.whole {
            Some(whole) if !is_masked => whole,
            _ => &self.sampler,
        }
    }

    /// Ends the threads that make batches.
    pub(crate) fn shutdown(&self) {
        iter::once(&self.sampler).chain(&self.whole).for_each(Sampler::shutdown);
    }

    /// Returns the cursor after the last batch that was taken.
    pub(crate) fn cursor(&self) -> Result<Cursor> {
        self.slices.check_unmoved()?;
        Ok(self.sampler.cursor())
    }

    /// Goes to a cursor, when no iterator takes batches.
    pub(crate) fn resume(&self, cursor: &Cursor) -> Result<()> {
        let _claim = self.claim_or(
            "expected a loader without an iterator to resume, found one that takes its batches; drop the iterator \
             first",
        )?;
        self.sampler.resume(cursor)?;
        self.slices.has_moved.store(false, Ordering::Release);
        Ok(())
    }

    /// Returns the feed of a part of this rank, at the same place of the stream.
    pub(crate) fn part(&self, part: Part) -> Result<Self> {
        self.slices.check_unmoved()?;
        let stores = self.sampler.stores().cloned().collect();
        let assignment = part.of_rank(self.assignment)?;
        let own = Self::new(stores, self.sampler.settings().clone(), assignment, self.speed)?;
        own.sampler.resume(&self.sampler.cursor())?;
        let slices = Slices { cut_from: Some(Arc::clone(&self.slices)), ..Slices::default() };
        let own = Self { slices: Arc::new(slices), ..own };
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
        self.slices.check_unmoved()?;
        self.claim_or(
            "expected one iterator of the loader at a time, found a second one, which would take batches from the \
             first; drop that one first",
        )
    }

    fn claim_or(&self, refusal: &str) -> Result<Claim<'_>> {
        match self.in_use.swap(true, Ordering::Acquire) {
            false => Ok(Claim(&self.in_use)),
            true => Err(Error::invalid(refusal)),
        }
    }

    /// Takes the next batch of a split.
    pub(crate) fn next(&self, split: Split) -> Result<(Batch, Snapshot)> {
        let taken = self.sampler.next(split)?;
        let above = |slices: &Arc<Slices>| slices.cut_from.clone();
        for slices in iter::successors(above(&self.slices), above) {
            slices.has_moved.store(true, Ordering::Release);
        }
        Ok(taken)
    }
}

/// Whether the slices of a loader have taken batches, of which the loader itself knows nothing.
#[derive(Default)]
struct Slices {
    has_moved: AtomicBool,
    /// Those of the loader that this one is a slice of.
    cut_from: Option<Arc<Slices>>,
}

impl Slices {
    /// Rejects a loader whose slices are ahead of it.
    fn check_unmoved(&self) -> Result<()> {
        if self.has_moved.load(Ordering::Acquire) {
            return Err(Error::invalid(
                "expected a loader that stands where its batches end, found one whose slices have taken \
                 batches; keep the cursor of each epoch with Beside, or give each device a loader of its own, \
                 with Assignment::new(rank, devices), or let this one resume from a cursor",
            ));
        }
        Ok(())
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

/// Returns the number of the store of each task.
fn stores_of_tasks(sampler: &Sampler) -> Result<Vec<usize>> {
    let own = || sampler.stores().map(|store| store.metadata().database.clone()).collect();
    let names: Vec<String> = sampler.settings().aliases.clone().unwrap_or_else(own);
    sampler.tasks().map(|task| store_of_task(task, &names)).collect()
}

/// Returns the number of the one store whose name a task's name begins with.
fn store_of_task(task: &str, names: &[String]) -> Result<usize> {
    let is_of =
        |name: &String| task.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('/'));
    let mut found = (0..).zip(names).filter(|(_, name)| is_of(name));
    match (found.next(), found.next()) {
        (Some((store, _)), None) => Ok(store),
        (first, _) => Err(Error::invalid(format!(
            "expected the task {task:?} to begin with the name of one store, found {} of {names:?}; give the \
             stores aliases",
            if first.is_some() { "several" } else { "none" }
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_of_the_one_store_that_its_name_begins_with() {
        let names = ["shop", "shop2", "a", "a/b"].map(str::to_owned);
        for (task, store) in [("shop/churn", 0), ("shop2/churn", 1), ("a/pool:b", 2)] {
            assert_eq!(store_of_task(task, &names).unwrap(), store);
        }
        for (task, found) in [("other/churn", "found none"), ("a/b/churn", "found several")] {
            let error = store_of_task(task, &names).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains("aliases"), "{error}");
        }
    }
}
