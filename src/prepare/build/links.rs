//! The second pass over links: references become parents, and parents' lists of children.

use std::ops::Range;

use arrow::array::StringViewArray;
use rayon::prelude::*;

use super::keys::{KeyDigest, KeyIndex, NULL_KEY, PARTIAL_KEY, write_key};
use crate::container::ContainerWriter;
use crate::error::{Error, Result};
use crate::prepare::schema::{Limits, Reference};
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, NO_PARENT, known_from};

/// What a reference leads to, as far as that is known while its table is read.
pub(super) enum Links {
    /// Rows of a table that was read before.
    Rows(Parents),
    /// The digests of keys of a table that is read later, or is the same one.
    Keys(Vec<KeyDigest>),
}

/// Stands for a parent whose key is not among its table's, or is given in part, until the store knows
/// it as [`NO_PARENT`]: a row that should inherit its time from there must not pass for one that has none.
const MISSING_PARENT: u32 = NO_PARENT - 1;

/// The rows that one reference leads to.
#[derive(Default)]
pub(super) struct Parents {
    /// The parent of each row, or [`NO_PARENT`], or [`MISSING_PARENT`].
    rows: Vec<u32>,
    /// How many rows have one.
    pub edge_count: u32,
    /// How many rows have a NULL in place of a reference.
    pub null_count: u64,
    /// How many refer to a row that is not there.
    pub unresolved_count: u64,
    /// The first of those, in words.
    first_unresolved: Option<String>,
}

impl Links {
    /// Takes in the keys of a batch, whose texts are in `columns`.
    pub(super) fn extend(
        &mut self,
        keys: &[KeyDigest],
        columns: &[&StringViewArray],
        index: Option<&KeyIndex>,
    ) {
        match (self, index) {
            (Self::Rows(parents), Some(index)) => {
                parents.extend(keys, index, |row, text| _ = write_key(columns, row, text));
            }
            (Self::Rows(_), None) => unreachable!("links are rows because there is an index"),
            (Self::Keys(all), _) => all.extend_from_slice(keys),
        }
    }

    /// The rows, now that all tables have been read.
    pub(super) fn resolve(self, index: &KeyIndex) -> Parents {
        match self {
            Self::Rows(parents) => parents,
            Self::Keys(keys) => {
                let mut parents = Parents::default();
                // The texts of these keys are gone.
                keys.chunks(8192).for_each(|keys| parents.extend(keys, index, |_, _| ()));
                parents
            }
        }
    }
}

impl Parents {
    fn extend(
        &mut self,
        keys: &[KeyDigest],
        index: &KeyIndex,
        write_text: impl Fn(usize, &mut String),
    ) {
        index.warm(keys);
        for (row, &key) in keys.iter().enumerate() {
            let parent = match (key, index.find(key)) {
                (NULL_KEY, _) => {
                    self.null_count += 1;
                    NO_PARENT
                }
                // It names a parent, and not which.
                (PARTIAL_KEY, _) => {
                    self.null_count += 1;
                    MISSING_PARENT
                }
                (_, Some(parent)) => {
                    self.edge_count += 1;
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
    }

    /// The parent of each row of `range` as the store has it.
    pub(super) fn stored(&self, range: Range<usize>) -> impl Iterator<Item = u32> {
        self.rows[range].iter().map(|&parent| if is_row(parent) { parent } else { NO_PARENT })
    }

    /// Refuses a reference that leads nowhere too often.
    pub(super) fn check(&self, reference: &Reference, limits: &Limits) -> Result<()> {
        let referring = u64::from(self.edge_count) + self.unresolved_count;
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

/// The time of each row from a column's values.
pub(super) fn column_times(mut times: Vec<i64>, delay_us: i64) -> Vec<i64> {
    for time in times.iter_mut().filter(|time| **time != ALWAYS_VISIBLE) {
        *time = known_from(*time, delay_us);
    }
    times
}

/// The time of each row from its parent: none where it has no parent, or that has no time; and
/// [`NEVER_VISIBLE`] where it has a parent that is missing.
pub(super) fn inherited_times(parents: &Parents, times: &[i64], delay_us: i64) -> Vec<i64> {
    let time_of = |&parent: &u32| match times.get(parent as usize) {
        None if parent == MISSING_PARENT => NEVER_VISIBLE,
        None | Some(&ALWAYS_VISIBLE) => ALWAYS_VISIBLE,
        Some(&time) => known_from(time, delay_us),
    };
    parents.rows.iter().map(time_of).collect()
}

/// Writes the lists of children of relation `index` to the graph.
///
/// `order` are the child table's rows by (time, row), which a counting sort by parent keeps.
pub(super) fn write_children(
    graph: &mut ContainerWriter,
    index: usize,
    parents: &Parents,
    parent_rows: u32,
    order: Option<&[u32]>,
    times: Option<&[i64]>,
) -> Result<()> {
    let mut offsets = vec![0_u32; parent_rows as usize + 1];
    for &parent in parents.rows.iter().filter(|&&parent| is_row(parent)) {
        offsets[parent as usize + 1] += 1;
    }
    for parent in 0..parent_rows as usize {
        offsets[parent + 1] += offsets[parent];
    }
    let mut children = vec![0_u32; parents.edge_count as usize];
    let mut next = offsets[..parent_rows as usize].to_vec();
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
    graph.section(&format!("{index}.offsets"), &offsets)?;
    graph.section(&format!("{index}.children"), &children)?;
    if let Some(times) = times {
        graph.begin(&format!("{index}.times"))?;
        for chunk in children.chunks(8192) {
            let chunk: Vec<i64> = chunk.iter().map(|&child| times[child as usize]).collect();
            graph.write(bytemuck::cast_slice(&chunk))?;
        }
    }
    Ok(())
}

/// The rows by (time, row); none when they are in that order already.
pub(super) fn time_order(times: &[i64]) -> Option<Vec<u32>> {
    if times.is_sorted() {
        return None;
    }
    let mut order: Vec<u32> = (0..times.len() as u32).collect();
    order.par_sort_unstable_by_key(|&row| (times[row as usize], row));
    Some(order)
}
