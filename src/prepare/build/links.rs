//! The second pass over links: resolves references to parents, and lists the children of parents.

use std::ops::Range;

use arrow_array::StringViewArray;
use rayon::prelude::*;

use super::keys::{KeyDigest, KeyIndex, NULL_KEY, PARTIAL_KEY, write_key};
use crate::bytes::{append, filled, make_room, reserve};
use crate::container::ContainerWriter;
use crate::error::{Error, Result};
use crate::prepare::schema::{Limits, Reference};
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, NO_PARENT, known_from};

/// The times of children that are looked up before they are written: random reads, which threads share.
const TIMES_TOGETHER: usize = 1 << 18;

/// The links of a reference, resolved or not.
pub(super) enum Links {
    /// The rows of a parent table that has been read already.
    Rows(Parents),
    /// The digests of keys of a parent table that is read later, or is the same table.
    Keys(Vec<KeyDigest>),
}

/// A parent with a missing or a partial key. The store has [`NO_PARENT`] instead; until then the
/// difference matters, because a row that inherits the time of a missing parent must never be
/// visible.
const MISSING_PARENT: u32 = NO_PARENT - 1;

/// The parents of one reference.
#[derive(Default)]
pub(super) struct Parents {
    /// The parent of each row, or [`NO_PARENT`], or [`MISSING_PARENT`].
    rows: Vec<u32>,
    /// The number of rows with a parent.
    pub link_count: u32,
    /// The number of rows with a NULL in the reference.
    pub null_count: u64,
    /// The number of rows that refer to a missing row.
    pub unresolved_count: u64,
    /// A description of the first of these rows.
    first_unresolved: Option<String>,
}

impl Links {
    /// Adds the keys of a batch; `columns` are their texts.
    pub(super) fn extend(
        &mut self,
        keys: &[KeyDigest],
        columns: &[&StringViewArray],
        index: Option<&KeyIndex>,
    ) -> Result<()> {
        match (self, index) {
            (Self::Rows(parents), Some(index)) => {
                parents.extend(keys, index, |row, text| _ = write_key(columns, row, text))
            }
            (Self::Rows(_), None) => unreachable!("links are rows because there is an index"),
            (Self::Keys(all), _) => append(all, keys),
        }
    }

    /// Resolves the links, after all tables have been read.
    pub(super) fn resolve(self, index: &KeyIndex) -> Result<Parents> {
        match self {
            Self::Rows(parents) => Ok(parents),
            Self::Keys(keys) => {
                let mut parents = Parents::default();
                // The texts of these keys were not kept.
                keys.chunks(8192).try_for_each(|keys| parents.extend(keys, index, |_, _| ()))?;
                Ok(parents)
            }
        }
    }
}

impl Parents {
    /// Returns the links of rows that all have a parent.
    pub(super) fn of_rows(rows: Vec<u32>) -> Self {
        Self { link_count: rows.len() as u32, rows, ..Self::default() }
    }

    /// Returns the parent of a row, if it has one.
    pub(super) fn row(&self, row: usize) -> Option<u32> {
        Some(self.rows[row]).filter(|&parent| is_row(parent))
    }

    fn extend(
        &mut self,
        keys: &[KeyDigest],
        index: &KeyIndex,
        write_text: impl Fn(usize, &mut String),
    ) -> Result<()> {
        index.warm(keys);
        make_room(&mut self.rows, keys.len())?;
        for (row, &key) in keys.iter().enumerate() {
            let parent = match (key, index.find(key)) {
                (NULL_KEY, _) => {
                    self.null_count += 1;
                    NO_PARENT
                }
                // The row has a parent, but its key is incomplete.
                (PARTIAL_KEY, _) => {
                    self.null_count += 1;
                    MISSING_PARENT
                }
                (_, Some(parent)) => {
                    self.link_count += 1;
                    parent
                }
                (_, None) => {
                    self.unresolved_count += 1;
                    self.first_unresolved.get_or_insert_with(|| {
                        let mut text = String::new();
                        write_text(row, &mut text);
                        let value = if text.is_empty() { text } else { format!("{text:?} in ") };
                        format!("{value}row {}", self.rows.len() + 1)
                    });
                    MISSING_PARENT
                }
            };
            self.rows.push(parent);
        }
        Ok(())
    }

    /// Returns the parent of each row of `range` as the store keeps it.
    pub(super) fn stored(&self, range: Range<usize>) -> impl Iterator<Item = u32> {
        self.rows[range].iter().map(|&parent| if is_row(parent) { parent } else { NO_PARENT })
    }

    /// Checks that unresolved values are within the limit.
    pub(super) fn check(&self, reference: &Reference, limits: &Limits) -> Result<()> {
        let referring = u64::from(self.link_count) + self.unresolved_count;
        if self.unresolved_count as f64 > referring as f64 * limits.unresolved_share {
            return Err(Error::data(format!(
                "reference {:?}: {} of {referring} values are not among the keys of table {:?}, \
                 the first is {}; limits.unresolved_share allows a share of {}: correct the \
                 reference or the data, or raise the limit (these rows then have no parent)",
                reference.name(),
                self.unresolved_count,
                reference.to,
                self.first_unresolved.as_deref().unwrap_or_default(),
                limits.unresolved_share
            )));
        }
        Ok(())
    }
}

fn is_row(parent: u32) -> bool {
    parent < MISSING_PARENT
}

/// Returns the time of each row from a column's values.
pub(super) fn column_times(mut times: Vec<i64>, delay_us: i64) -> Vec<i64> {
    for time in times.iter_mut().filter(|time| **time != ALWAYS_VISIBLE) {
        *time = known_from(*time, delay_us);
    }
    times
}

/// Returns the time of each row from its parent: [`ALWAYS_VISIBLE`] without a parent or without a
/// time of the parent, and [`NEVER_VISIBLE`] if the parent is missing.
pub(super) fn inherited_times(parents: &Parents, times: &[i64], delay_us: i64) -> Result<Vec<i64>> {
    let time_of = |&parent: &u32| match times.get(parent as usize) {
        None if parent == MISSING_PARENT => NEVER_VISIBLE,
        None | Some(&ALWAYS_VISIBLE) => ALWAYS_VISIBLE,
        Some(&time) => known_from(time, delay_us),
    };
    let mut inherited = reserve(parents.rows.len())?;
    inherited.extend(parents.rows.iter().map(time_of));
    Ok(inherited)
}

/// The lists of children of a relation, one after the other.
pub(super) struct Children {
    /// Where the list of each parent begins, and where the last ends.
    offsets: Vec<u32>,
    pub rows: Vec<u32>,
}

/// Returns the lists of children of a relation.
///
/// `order` is the child table's rows by (time, row); a counting sort by parent keeps this order.
pub(super) fn children_of(
    parents: &Parents,
    parent_rows: u32,
    order: Option<&[u32]>,
) -> Result<Children> {
    let mut offsets = filled(0_u32, parent_rows as usize + 1)?;
    for &parent in parents.rows.iter().filter(|&&parent| is_row(parent)) {
        offsets[parent as usize + 1] += 1;
    }
    for parent in 0..parent_rows as usize {
        offsets[parent + 1] += offsets[parent];
    }
    let mut children = filled(0_u32, parents.link_count as usize)?;
    let mut next = Vec::new();
    append(&mut next, &offsets[..parent_rows as usize])?;
    let mut place = |row: u32| {
        let parent = parents.rows[row as usize];
        if is_row(parent) {
            let slot = &mut next[parent as usize];
            children[*slot as usize] = row;
            *slot += 1;
        }
    };
    match order {
        Some(order) => order.iter().for_each(|&row| place(row)),
        None => (0..parents.rows.len() as u32).for_each(&mut place),
    }
    Ok(Children { offsets, rows: children })
}

impl Children {
    /// Returns empty lists: those of pairs, which only their own seeds see.
    pub(super) fn none(parent_rows: u32) -> Result<Self> {
        Ok(Self { offsets: filled(0, parent_rows as usize + 1)?, rows: Vec::new() })
    }

    /// Writes the lists of relation `index` to the graph, with the times of the children if they have some.
    pub(super) fn write(
        &self,
        graph: &mut ContainerWriter,
        index: usize,
        times: Option<&[i64]>,
    ) -> Result<()> {
        graph.section(&format!("{index}.offsets"), &self.offsets)?;
        graph.section(&format!("{index}.children"), &self.rows)?;
        let Some(times) = times else { return Ok(()) };
        graph.begin(&format!("{index}.times"))?;
        for chunk in self.rows.chunks(TIMES_TOGETHER) {
            let chunk: Vec<i64> = chunk.par_iter().map(|&child| times[child as usize]).collect();
            graph.write(bytemuck::cast_slice(&chunk))?;
        }
        Ok(())
    }
}

/// Returns the rows by (time, row); `None` if they are in that order already.
pub(super) fn time_order(times: &[i64]) -> Result<Option<Vec<u32>>> {
    if times.is_sorted() {
        return Ok(None);
    }
    let mut order: Vec<u32> = reserve(times.len())?;
    order.extend(0..times.len() as u32);
    order.par_sort_unstable_by_key(|&row| (times[row as usize], row));
    Ok(Some(order))
}
