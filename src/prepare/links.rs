//! The second pass over links: references become parents, and parents' lists of children.

use std::path::Path;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Decimal128Type, Int64Type};
use rayon::prelude::*;

use super::keys::KeyIndex;
use super::rows::staged;
use super::schema::{Limits, Reference};
use crate::error::{Error, Result};
use crate::store::{ALWAYS_VISIBLE, ContainerWriter, NO_PARENT};

/// The rows that one reference leads to.
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

/// Looks up what the references that are staged in column `place` refer to.
pub(super) fn resolve(
    staged_path: &Path,
    place: usize,
    index: &KeyIndex,
    row_count: u32,
) -> Result<Parents> {
    let mut rows = Vec::with_capacity(row_count as usize);
    let mut null_count = 0;
    for batch in staged(staged_path)? {
        let batch = batch?;
        let digests = batch.column(place).as_primitive::<Decimal128Type>();
        null_count += digests.null_count() as u64;
        let found: Vec<u32> = (0..digests.len())
            .into_par_iter()
            .with_min_len(1024)
            .map(|row| match digests.is_null(row) {
                true => NO_PARENT,
                false => index.find(digests.value(row) as u128).unwrap_or(NO_PARENT),
            })
            .collect();
        rows.extend_from_slice(&found);
    }
    let edge_count = rows.iter().filter(|&&parent| parent != NO_PARENT).count();
    let unresolved_count = rows.len() as u64 - null_count - edge_count as u64;
    Ok(Parents { rows, edge_count: edge_count as u32, null_count, unresolved_count })
}

impl Parents {
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

/// The time of each row from a timestamp column.
pub(super) fn column_times(staged_path: &Path, place: usize, delay_us: i64) -> Result<Vec<i64>> {
    let mut times = Vec::new();
    for batch in staged(staged_path)? {
        let batch = batch?;
        let column = batch.column(place).as_primitive::<Int64Type>();
        times.extend(column.iter().map(|time| match time {
            None => ALWAYS_VISIBLE,
            Some(time) => time.saturating_add(delay_us),
        }));
    }
    Ok(times)
}

/// The time of each row from its parent.
pub(super) fn inherited_times(parents: &[u32], times: &[i64], delay_us: i64) -> Vec<i64> {
    let time_of = |&parent: &u32| match times.get(parent as usize) {
        None | Some(&ALWAYS_VISIBLE) => ALWAYS_VISIBLE,
        Some(time) => time.saturating_add(delay_us),
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
