//! `Relation`: the links of one reference, readable in both directions.

use super::metadata::{ColumnMetadata, RelationMetadata};
use super::table::Row;
use super::time::is_visible;
use super::totals::{Total, Totals};
use crate::container::{Container, Section};
use crate::error::{Error, Result};

/// A relation of an open store.
pub struct Relation {
    metadata: RelationMetadata,
    parent_rows: u32,
    offsets: Section,
    children: Section,
    /// The time of each child; none if the child table has no time.
    times: Option<Section>,
    /// The totals of the columns whose means are aggregates.
    totals: Vec<Totals>,
}

impl Relation {
    /// Opens relation `index` in `graph.bin`; `summed` are the columns of the child table, by place,
    /// whose means are aggregates.
    pub(super) fn open<'a>(
        container: &Container,
        index: usize,
        metadata: &RelationMetadata,
        parent_rows: u32,
        timed: bool,
        summed: impl Iterator<Item = (u32, &'a ColumnMetadata)>,
    ) -> Result<Self> {
        let edges = u64::from(metadata.edge_count);
        let totals =
            summed.map(|column| Totals::open(container, (index, metadata.edge_count), column));
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
            totals: totals.collect::<Result<_>>()?,
        })
    }

    /// Returns the metadata of the relation.
    #[must_use]
    pub fn metadata(&self) -> &RelationMetadata {
        &self.metadata
    }

    /// Returns the parent of `child`, a row of the relation's child table.
    ///
    /// # Errors
    /// `Corrupt` when the parent's table has no such row.
    #[inline]
    pub fn parent(&self, child: &Row<'_>) -> Result<Option<u32>> {
        match child.parent(self.metadata.parent_offset as usize) {
            Some(parent) if parent >= self.parent_rows => Err(Error::corrupt(format!(
                "relation {:?}: expected a parent row below {}, found row {parent}; run `headwater \
                 verify`, then copy or prepare the store again",
                self.metadata.name, self.parent_rows
            ))),
            parent => Ok(parent),
        }
    }

    /// Prefetches the offsets of the children of row `parent`.
    #[inline]
    pub(crate) fn prefetch(&self, parent: u32) {
        self.offsets.prefetch(parent as usize * 4, 8);
    }

    /// Returns the children of row `parent`, the oldest first.
    ///
    /// # Cost
    /// Two cache lines for any number of children.
    ///
    /// # Errors
    /// `InvalidArgument` when the parent's table has no such row, `Corrupt` when damaged.
    #[inline]
    pub fn children(&self, parent: u32) -> Result<Children<'_>> {
        if parent >= self.parent_rows {
            return Err(Error::invalid(format!(
                "relation {:?}: expected a parent row below {}, found row {parent}",
                self.metadata.name, self.parent_rows
            )));
        }
        let bounds: &[u32] = self.offsets.slice(parent as usize, 2)?;
        let (from, to) = (bounds[0] as usize, bounds[1] as usize);
        let Some(count) = to.checked_sub(from) else {
            return Err(self
                .offsets
                .corrupt(format!("the children of row {parent} end before they begin")));
        };
        Ok(Children { relation: self, from, count })
    }
}

/// The children of one row through one relation, sorted by (time, row).
#[derive(Clone, Copy)]
pub struct Children<'a> {
    relation: &'a Relation,
    from: usize,
    count: usize,
}

impl<'a> Children<'a> {
    /// Returns the number of children.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the child at `place`, counted from the oldest.
    ///
    /// # Errors
    /// `InvalidArgument` when `place` is not below the count, `Corrupt` when damaged.
    #[inline]
    pub fn row(&self, place: usize) -> Result<u32> {
        self.check(place)?;
        self.relation.children.value(self.from + place)
    }

    fn check(&self, place: usize) -> Result<()> {
        match place < self.count {
            true => Ok(()),
            false => {
                let count = self.count;
                Err(Error::invalid(format!("expected a child below {count}, found {place}")))
            }
        }
    }

    /// Prefetches the child at `place`.
    #[inline]
    pub(crate) fn prefetch(&self, place: usize) {
        self.relation.children.prefetch((self.from + place) * 4, 4);
    }

    /// Prefetches the time of the youngest child, which [`Self::visible_count`] reads first.
    #[inline]
    pub(crate) fn prefetch_last_time(&self) {
        if let (Some(times), Some(last)) = (&self.relation.times, self.count.checked_sub(1)) {
            times.prefetch((self.from + last) * 8, 8);
        }
    }

    /// Returns all children.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub fn rows(&self) -> Result<&'a [u32]> {
        self.relation.children.slice(self.from, self.count)
    }

    /// Returns the time of each child; none if the table has no time.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    pub fn times(&self) -> Result<Option<&'a [i64]>> {
        let times = self.relation.times.as_ref();
        times.map(|times| times.slice(self.from, self.count)).transpose()
    }

    /// Returns the time of the child at `place`; none if the table has no time.
    ///
    /// # Errors
    /// `InvalidArgument` when `place` is not below the count, `Corrupt` when damaged.
    #[inline]
    pub fn time(&self, place: usize) -> Result<Option<i64>> {
        self.check(place)?;
        let times = self.relation.times.as_ref();
        times.map(|times| times.value(self.from + place)).transpose()
    }

    /// Returns the total of a column over the children from place `from` to before `to`; none if the
    /// store keeps no totals of the column.
    ///
    /// # Cost
    /// A cache line or two for any number of children.
    ///
    /// # Errors
    /// `InvalidArgument` when the places are not in order or past the count, `Corrupt` when damaged.
    pub fn total(&self, column: u32, from: usize, to: usize) -> Result<Option<Total>> {
        if from > to || to > self.count {
            return Err(Error::invalid(format!(
                "expected children of 0 to {}, found {from} to {to}",
                self.count
            )));
        }
        let totals = self.relation.totals.iter().find(|totals| totals.column == column);
        totals.map(|totals| totals.between(self.from + from, self.from + to)).transpose()
    }

    /// Returns how many children existed at `obs_time`; they come first.
    ///
    /// # Cost
    /// A binary search among the times.
    ///
    /// # Errors
    /// `Corrupt` when damaged.
    #[inline]
    pub fn visible_count(&self, obs_time: i64) -> Result<usize> {
        let Some(times) = &self.relation.times else { return Ok(self.count) };
        let is_visible = |place| Ok(is_visible(times.value(self.from + place)?, obs_time));
        // Often a seed is observed after all of its children.
        if self.count == 0 || is_visible(self.count - 1)? {
            return Ok(self.count);
        }
        let (mut visible, mut hidden) = (0, self.count - 1);
        while visible < hidden {
            let middle = visible.midpoint(hidden);
            if is_visible(middle)? {
                visible = middle + 1;
            } else {
                hidden = middle;
            }
        }
        Ok(visible)
    }
}
