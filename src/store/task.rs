//! `Task`: seeds (rows with their observation times) and targets.

use std::ops::Range;
use std::sync::Arc;

use super::groups::Groups;
use super::metadata::{ColumnStats, TargetMetadata, TaskMetadata};
use super::semantic::SemanticType;
use super::table::{Cell, Table};
use super::time::{ALWAYS_VISIBLE, NEVER_VISIBLE, SEES_EVERYTHING};
use crate::container::{Container, Section};
use crate::error::{Error, Result};
use crate::plan::{Split, SplitRatios};

/// A task of an open store.
pub struct Task {
    metadata: TaskMetadata,
    semantic: SemanticType,
    derived: Option<Derived>,
    groups: Arc<Groups>,
}

struct Derived {
    anchors: Section,
    obs_times: Section,
    targets: Section,
    nulls: Section,
    splits: Option<Section>,
}

/// One seed of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seed {
    /// The row of the anchor table.
    pub row: u32,
    /// The observation time; [`SEES_EVERYTHING`] for a seed without one.
    pub obs_time: i64,
    /// The target: the value to predict.
    pub target: Cell,
    /// The recorded split of the seed, if the task records splits.
    pub split: Option<Split>,
}

impl Task {
    pub(super) fn open(
        container: &Container,
        metadata: &TaskMetadata,
        semantic: SemanticType,
    ) -> Result<Self> {
        let seeds = u64::from(metadata.seed_count);
        let derived = match &metadata.target {
            TargetMetadata::Cell { .. } => None,
            TargetMetadata::Derived { column, recorded_split, .. } => {
                let width = u64::from(target_bytes(&column.stats));
                Some(Derived {
                    anchors: container.section("anchors", seeds * 4)?,
                    obs_times: container.section("obs_times", seeds * 8)?,
                    targets: container.section("targets", seeds * width)?,
                    nulls: container.section("nulls", seeds)?,
                    splits: match recorded_split {
                        true => Some(container.section("splits", seeds)?),
                        false => None,
                    },
                })
            }
        };
        let records_split = derived.as_ref().is_some_and(|derived| derived.splits.is_some());
        let groups = Arc::new(Groups::open(container, metadata.seed_count, records_split)?);
        Ok(Self { metadata: metadata.clone(), semantic, derived, groups })
    }

    /// Returns the metadata of the task.
    #[must_use]
    pub fn metadata(&self) -> &TaskMetadata {
        &self.metadata
    }

    /// Returns the semantic type of the target.
    #[must_use]
    pub fn semantic(&self) -> SemanticType {
        self.semantic
    }

    /// Returns the rows of some seeds that follow each other; none where seed i is row i.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub(crate) fn anchors(&self, seeds: Range<u32>) -> Result<Option<&[u32]>> {
        let Some(derived) = &self.derived else { return Ok(None) };
        derived.anchors.slice(seeds.start as usize, seeds.len()).map(Some)
    }

    /// Whether the task records the split of each seed.
    pub(crate) fn records_split(&self) -> bool {
        self.derived.as_ref().is_some_and(|derived| derived.splits.is_some())
    }

    /// Returns the number of seeds of each split, in the order of [`Split::ALL`]; of a task that records no
    /// split, by these ratios and the default split seed.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub fn split_sizes(&self, ratios: SplitRatios) -> Result<[u64; 3]> {
        self.groups.check_counts()?;
        let mut sizes = [0; 3];
        for (size, split) in sizes.iter_mut().zip(Split::ALL) {
            let wanted = self.groups.of_split(split, ratios, false);
            for run in 0..self.groups.run_count() {
                *size += u64::from(self.groups.count(run, &wanted)?);
            }
        }
        Ok(sizes)
    }

    /// Returns the groups of its seeds.
    pub(crate) fn groups(&self) -> &Arc<Groups> {
        &self.groups
    }

    /// Returns one seed; `anchor` is the task's table.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such seed, `Corrupt` when damaged.
    pub fn seed(&self, anchor: &Table, seed_index: u32) -> Result<Seed> {
        self.check_index(seed_index)?;
        match (&self.metadata.target, &self.derived) {
            (TargetMetadata::Derived { column, .. }, Some(derived)) => {
                let seed = derived.seed(seed_index as usize, &column.stats)?;
                match seed.row < anchor.row_count() {
                    true => Ok(seed),
                    false => Err(derived.anchors.corrupt(format!(
                        "seed {seed_index}: expected a row below {}, found row {}",
                        anchor.row_count(),
                        seed.row
                    ))),
                }
            }
            (TargetMetadata::Cell { column, .. }, _) => {
                let row = anchor.row(seed_index)?;
                let obs_time = match row.time() {
                    ALWAYS_VISIBLE | NEVER_VISIBLE => SEES_EVERYTHING,
                    time => time,
                };
                let target = row.cell(*column as usize);
                Ok(Seed { row: seed_index, obs_time, target, split: None })
            }
            _ => Err(Error::corrupt(format!(
                "internal error: the file of task {:?} is not open",
                self.metadata.name
            ))),
        }
    }

    /// Returns the last time of which rows are visible to a seed that is observed at `obs_time`.
    #[must_use]
    pub fn sees_until(&self, obs_time: i64) -> i64 {
        if self.metadata.strict && obs_time != SEES_EVERYTHING {
            // The least time has a meaning of its own.
            obs_time.saturating_sub(1).max(ALWAYS_VISIBLE + 1)
        } else {
            obs_time
        }
    }

    fn check_index(&self, seed_index: u32) -> Result<()> {
        let TaskMetadata { name, seed_count, .. } = &self.metadata;
        if seed_index < *seed_count {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "task {name:?}: expected a seed_index below {seed_count}, found {seed_index}"
        )))
    }
}

/// Returns the number of bytes of a derived target: as in a record, except that a boolean is a byte.
pub(crate) fn target_bytes(stats: &ColumnStats) -> u32 {
    match stats {
        ColumnStats::Boolean { .. } => 1,
        ColumnStats::Categorical { .. } => 4,
        stats => stats.value_bytes(),
    }
}

impl Derived {
    fn seed(&self, index: usize, stats: &ColumnStats) -> Result<Seed> {
        let target = if self.nulls.value::<u8>(index)? != 0 {
            Cell::Null
        } else {
            match stats {
                ColumnStats::Numerical { .. } => Cell::Numerical(self.targets.value(index)?),
                ColumnStats::Timestamp { .. } => Cell::Timestamp(self.targets.value(index)?),
                ColumnStats::Boolean { .. } => Cell::Boolean(self.targets.value::<u8>(index)? != 0),
                ColumnStats::Categorical { cat_emb_start, .. } => Cell::Categorical(
                    cat_emb_start.saturating_add(self.targets.value::<u32>(index)?),
                ),
                ColumnStats::Identifier | ColumnStats::Text | ColumnStats::Count { .. } => {
                    return Err(self.targets.corrupt(
                        "expected a target that can be predicted, found an identifier, a text or a \
                         count",
                    ));
                }
            }
        };
        Ok(Seed {
            row: self.anchors.value(index)?,
            obs_time: self.obs_times.value(index)?,
            target,
            split: self.split(index)?,
        })
    }

    fn split(&self, index: usize) -> Result<Option<Split>> {
        let Some(splits) = &self.splits else { return Ok(None) };
        let tag = splits.value::<u8>(index)?;
        let split = Split::ALL.get(usize::from(tag)).copied();
        Ok(Some(
            split
                .ok_or_else(|| splits.corrupt(format!("expected split 0, 1 or 2, found {tag}")))?,
        ))
    }
}
