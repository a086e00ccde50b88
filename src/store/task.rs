//! One task: seed rows, the times at which they are observed, and what is to be predicted.

use super::metadata::{ColumnStats, TargetMetadata, TaskMetadata};
use super::semantic::SemanticType;
use super::table::{Cell, Table};
use super::time::{ALWAYS_VISIBLE, NEVER_VISIBLE, SEES_EVERYTHING};
use crate::container::{Container, Section};
use crate::error::{Error, Result};
use crate::plan::Split;

/// A task of an open store.
pub struct Task {
    metadata: TaskMetadata,
    semantic: SemanticType,
    derived: Option<Derived>,
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
    /// When it is observed; [`SEES_EVERYTHING`] for a seed that no time limits.
    pub obs_time: i64,
    /// What is to be predicted.
    pub target: Cell,
    /// The split that the task records for this seed, where it records one.
    pub split: Option<Split>,
}

impl Task {
    pub(super) fn open(
        container: Option<&Container>,
        metadata: &TaskMetadata,
        semantic: SemanticType,
    ) -> Result<Self> {
        let seeds = u64::from(metadata.seed_count);
        let derived = match (&metadata.target, container) {
            (TargetMetadata::Derived { column, recorded_split }, Some(container)) => {
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
            _ => None,
        };
        Ok(Self { metadata: metadata.clone(), semantic, derived })
    }

    /// What the task is.
    #[must_use]
    pub fn metadata(&self) -> &TaskMetadata {
        &self.metadata
    }

    /// The semantic type of its target.
    #[must_use]
    pub fn semantic(&self) -> SemanticType {
        self.semantic
    }

    /// The row of seed `index` and the split that is recorded for it, of which only these are read.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such seed, `Corrupt` when damaged.
    pub(crate) fn anchor_and_split(&self, index: u32) -> Result<(u32, Option<Split>)> {
        self.check_index(index)?;
        match &self.derived {
            Some(derived) => {
                let index = index as usize;
                Ok((derived.anchors.value(index)?, derived.split(index)?))
            }
            None => Ok((index, None)),
        }
    }

    /// Seed `index`, a row of `anchor`, the task's table.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such seed, `Corrupt` when damaged.
    pub fn seed(&self, anchor: &Table, index: u32) -> Result<Seed> {
        self.check_index(index)?;
        match (&self.metadata.target, &self.derived) {
            (TargetMetadata::Derived { column, .. }, Some(derived)) => {
                let seed = derived.seed(index as usize, &column.stats)?;
                match seed.row < anchor.row_count() {
                    true => Ok(seed),
                    false => Err(derived.anchors.corrupt(format!(
                        "seed {index} is row {} of a table of {} rows",
                        seed.row,
                        anchor.row_count()
                    ))),
                }
            }
            (TargetMetadata::Cell { column }, _) => {
                let row = anchor.row(index)?;
                let obs_time = match row.time() {
                    ALWAYS_VISIBLE | NEVER_VISIBLE => SEES_EVERYTHING,
                    time => time,
                };
                let target = row.cell(*column as usize);
                Ok(Seed { row: index, obs_time, target, split: None })
            }
            _ => Err(Error::corrupt(format!(
                "the file of task {:?} is not open",
                self.metadata.name
            ))),
        }
    }

    fn check_index(&self, index: u32) -> Result<()> {
        let TaskMetadata { name, seed_count, .. } = &self.metadata;
        if index < *seed_count {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "there is no seed {index} of task {name:?}, which has {seed_count}"
        )))
    }
}

/// How many bytes a derived target takes: as in a record, but a boolean is a byte.
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
                ColumnStats::Identifier | ColumnStats::Text => {
                    return Err(self.targets.corrupt("a target is an identifier or a text"));
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
        Ok(Some(split.ok_or_else(|| splits.corrupt(format!("{tag} is no split")))?))
    }
}
