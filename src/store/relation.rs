//! One foreign key, walked both ways.

use super::container::{Container, Section};
use super::metadata::{ALWAYS_VISIBLE, NEVER_VISIBLE, RelationMetadata};
use super::table::Row;
use crate::error::{Error, Result};

/// A relation of an open store.
pub struct Relation {
    metadata: RelationMetadata,
    parent_rows: u32,
    offsets: Section,
    children: Section,
    /// Beside each child its time; none where the child's table has no time.
    times: Option<Section>,
}

impl Relation {
    /// Opens relation `index` in `graph.bin`.
    pub(super) fn open(
        container: &Container,
        index: usize,
        metadata: &RelationMetadata,
        parent_rows: u32,
        timed: bool,
    ) -> Result<Self> {
        let edges = u64::from(metadata.edge_count);
        let offsets = (u64::from(parent_rows) + 1) * 4;
        let times = match timed {
            true => Some(container.section(&format!("{index}.times"), edges * 8)?),
            false => None,
        };
        Ok(Self {
            metadata: metadata.clone(),
            parent_rows,
            offsets: container.section(&format!("{index}.offsets"), offsets)?,
            children: container.section(&format!("{index}.children"), edges * 4)?,
            times,
        })
    }

    /// What the relation is.
    #[must_use]
    pub fn metadata(&self) -> &RelationMetadata {
        &self.metadata
    }

    /// The parent of `child`, a row of the relation's child table.
    ///
    /// # Errors
    /// `Corrupt` when the parent's table has no such row.
    #[inline]
    pub fn parent(&self, child: &Row<'_>) -> Result<Option<u32>> {
        match child.parent(self.metadata.parent_offset as usize) {
            Some(parent) if parent >= self.parent_rows => Err(Error::corrupt(format!(
                "relation {:?}: a row refers to row {parent} of a table of {} rows; verify the \
                 store, and copy or prepare it again",
                self.metadata.name, self.parent_rows
            ))),
            parent => Ok(parent),
        }
    }

    /// The children of row `parent`, the oldest first.
    ///
    /// # Cost
    /// Two cache lines, however many children there are.
    ///
    /// # Errors
    /// `InvalidArgument` when the parent's table has no such row, `Corrupt` when damaged.
    #[inline]
    pub fn children(&self, parent: u32) -> Result<Children<'_>> {
        if parent >= self.parent_rows {
            return Err(Error::invalid(format!(
                "there is no row {parent} in the table that relation {:?} refers to, which has {} \
                 rows",
                self.metadata.name, self.parent_rows
            )));
        }
        let bounds: &[u32] = self.offsets.slice(parent as usize, 2)?;
        let (from, to) = (bounds[0] as usize, bounds[1] as usize);
        let Some(count) = to.checked_sub(from) else {
            return Err(self.offsets.corrupt(format!("row {parent} has less than no children")));
        };
        let times = match &self.times {
            Some(times) => Some(times.slice(from, count)?),
            None => None,
        };
        Ok(Children { rows: self.children.slice(from, count)?, times })
    }
}

/// The children of one row through one relation, sorted by (time, row).
#[derive(Clone, Copy, Debug)]
pub struct Children<'a> {
    rows: &'a [u32],
    times: Option<&'a [i64]>,
}

impl<'a> Children<'a> {
    /// All of them.
    #[must_use]
    pub fn rows(&self) -> &'a [u32] {
        self.rows
    }

    /// The time of each; none where the table has no time.
    #[must_use]
    pub fn times(&self) -> Option<&'a [i64]> {
        self.times
    }

    /// Those that existed at `obs_time`: a prefix.
    ///
    /// # Cost
    /// A binary search among the times.
    #[inline]
    #[must_use]
    pub fn visible(&self, obs_time: i64) -> &'a [u32] {
        match self.times {
            None => self.rows,
            Some(times) => &self.rows[..times.partition_point(|&time| is_visible(time, obs_time))],
        }
    }
}

/// Whether a row of time `time` existed at `obs_time`.
#[inline]
#[must_use]
pub fn is_visible(time: i64, obs_time: i64) -> bool {
    time == ALWAYS_VISIBLE || time <= obs_time
}

/// When a row that happened at `time` became known; at the latest when nobody but a seed that sees
/// everything can know it.
#[inline]
#[must_use]
pub(crate) fn known_from(time: i64, delay_us: i64) -> i64 {
    time.saturating_add(delay_us).min(NEVER_VISIBLE)
}
