//! A task with the sizes of its splits.

use serde::Serialize;

use crate::error::Result;
use crate::plan::{Split, SplitRule};
use crate::random::name_identity;
use crate::store::{LinkMetadata, Seed, Store, Table, Task};

/// The split of each seed of a task: the recorded one, or else that of the sampler's default rule.
pub struct Splits {
    rule: SplitRule,
    identity: u64,
}

impl Splits {
    /// Returns the splits of a task's seeds.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        Self { rule: SplitRule::default(), identity: name_identity(&task.metadata().name) }
    }

    /// Returns the split of a seed.
    ///
    /// # Errors
    /// `Corrupt` when the anchor table is damaged.
    pub fn split_of(&self, anchor: &Table, seed: &Seed) -> Result<Split> {
        match seed.split {
            Some(split) => Ok(split),
            None => Ok(self.rule.split_of(self.identity, anchor.identity(seed.row)?)),
        }
    }
}

/// A task, with the number of seeds of each split.
#[derive(Serialize)]
pub struct TaskView {
    pub(crate) name: String,
    pub(crate) anchor: String,
    pub(crate) semantic: String,
    pub(crate) seeds: u32,
    pub(crate) train: u64,
    pub(crate) val: u64,
    pub(crate) test: u64,
    pub(crate) recorded_split: bool,
    /// The tables of a task whose seeds are pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<LinkView>,
}

/// The tables whose rows the pairs of a task name.
#[derive(Serialize)]
pub(crate) struct LinkView {
    pub anchor: String,
    pub candidate: String,
    /// How many candidates of each group were drawn, beside the linked ones.
    pub drawn: u32,
}

impl LinkView {
    fn of(store: &Store, link: &LinkMetadata) -> Self {
        let parent = |relation: u32| {
            let parent = store.relations()[relation as usize].metadata().parent;
            store.tables()[parent as usize].metadata().name.clone()
        };
        Self {
            anchor: parent(link.anchor),
            candidate: parent(link.candidate),
            drawn: link.negatives,
        }
    }
}

impl TaskView {
    /// Describes a task.
    ///
    /// # Errors
    /// `Corrupt` when the store is damaged.
    pub fn of(store: &Store, task: &Task) -> Result<Self> {
        let metadata = task.metadata();
        let anchor = &store.tables()[metadata.anchor as usize];
        let sizes = task.split_sizes(SplitRule::default().ratios)?;
        let [train, val, test] = sizes;
        Ok(Self {
            name: metadata.name.clone(),
            anchor: anchor.metadata().name.clone(),
            semantic: task.semantic().to_string(),
            seeds: metadata.seed_count,
            train,
            val,
            test,
            recorded_split: task.records_split(),
            link: metadata.link().map(|link| LinkView::of(store, link)),
        })
    }
}
