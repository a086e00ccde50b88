//! The second pass over links: references become parents, and parents' lists of children.

use rayon::prelude::*;

use super::keys::{KeyDigest, KeyIndex, NULL_KEY};
use super::schema::{Limits, Reference};
use crate::error::{Error, Result};
use crate::store::{ALWAYS_VISIBLE, ContainerWriter, NO_PARENT, known_from};

/// What a reference leads to, as far as that is known while its table is read.
pub(super) enum Links {
    /// Rows of a table that was read before.
    Rows(Parents),
    /// The digests of keys of a table that is read later, or is the same one.
    Keys(Vec<KeyDigest>),
}

/// The rows that one reference leads to.
#[derive(Default)]
pub(super) struct Parents {
    /// The parent of each row, or [`NO_PARENT`].
    pub rows: Vec<u32>,
    /// How many rows have one.
    pub edge_count: u32,
    /// How many rows have a NULL in place of a reference.
    pub null_count: u64,
    /// How many refer to a row that is not there.
    pub unresolved_count: u64,
}

impl Links {
    /// Takes in the keys of a batch.
    pub(super) fn extend(&mut self, keys: &[KeyDigest], index: Option<&KeyIndex>) {
        match (self, index) {
            (Self::Rows(parents), Some(index)) => parents.extend(keys, index),
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
                keys.chunks(8192).for_each(|keys| parents.extend(keys, index));
                parents
            }
        }
    }
}

impl Parents {
    fn extend(&mut self, keys: &[KeyDigest], index: &KeyIndex) {
        index.warm(keys);
        for &key in keys {
            let parent = match key {
                NULL_KEY => None,
                key => index.find(key),
            };
            match (key, parent) {
                (NULL_KEY, _) => self.null_count += 1,
                (_, Some(_)) => self.edge_count += 1,
                (_, None) => self.unresolved_count += 1,
            }
            self.rows.push(parent.unwrap_or(NO_PARENT));
        }
    }

    /// Refuses a reference that leads nowhere too often.
    pub(super) fn check(&self, reference: &Reference, limits: &Limits) -> Result<()> {
        let referring = u64::from(self.edge_count) + self.unresolved_count;
        if self.unresolved_count as f64 > referring as f64 * limits.unresolved_share {
            return Err(Error::data(format!(
                "reference {:?}: {} of {referring} values are not among the keys of table {:?}; \
                 limits.unresolved_share allows a share of {}: correct the reference or the data, \
                 or raise the limit (such rows are then kept without a parent)",
                reference.name(),
                self.unresolved_count,
                reference.to,
                limits.unresolved_share
            )));
        }
        Ok(())
    }
}

/// The time of each row from a column's values.
pub(super) fn column_times(mut times: Vec<i64>, delay_us: i64) -> Vec<i64> {
    for time in times.iter_mut().filter(|time| **time != ALWAYS_VISIBLE) {
        *time = known_from(*time, delay_us);
    }
    times
}

/// The time of each row from its parent.
pub(super) fn inherited_times(parents: &[u32], times: &[i64], delay_us: i64) -> Vec<i64> {
    let time_of = |&parent: &u32| match times.get(parent as usize) {
        None | Some(&ALWAYS_VISIBLE) => ALWAYS_VISIBLE,
        Some(&time) => known_from(time, delay_us),
    };
    parents.iter().map(time_of).collect()
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
    for &parent in parents.rows.iter().filter(|&&parent| parent != NO_PARENT) {
        offsets[parent as usize + 1] += 1;
    }
    for parent in 0..parent_rows as usize {
        offsets[parent + 1] += offsets[parent];
    }
    let mut children = vec![0_u32; parents.edge_count as usize];
    let mut next = offsets[..parent_rows as usize].to_vec();
    let mut place = |row: u32| {
        let parent = parents.rows[row as usize];
        if parent != NO_PARENT {
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
