//! The links of a reference: the keys that its rows refer to, then the rows that have them.

use std::ops::Range;

use super::chain::{Chain, SpillWriter};
use super::key_list::{KeyList, NO_ROW};
use super::keys::{KeyDigest, NULL_KEY, PARTIAL_KEY, PARTS, part_of};
use super::row_keys::{TextOf, row_in_words};
use super::row_numbers::{RowNumbers, RowNumbersWriter};
use super::scratch::Scratch;
use crate::bytes::reserve;
use crate::error::{Error, Result};
use crate::prepare::schema::{Limits, Reference};
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, NO_PARENT, known_from};

/// What marks a row whose key is NULL, has a NULL part, or is that of the row before; another row has the
/// part of its key.
const NULL_MARK: u16 = PARTS as u16;
const PARTIAL_MARK: u16 = NULL_MARK + 1;
const SAME_MARK: u16 = NULL_MARK + 2;

/// The keys of a reference in the rows of its table, parted as the keys are that they refer to.
pub(super) struct Links {
    keys: Vec<Chain>,
    /// A mark for each row.
    marks: Chain,
    last: KeyDigest,
}

/// A parent with a missing or a partial key. The store has [`NO_PARENT`] instead; until then the
/// difference matters, because a row that inherits the time of a missing parent must never be
/// visible.
const MISSING_PARENT: u32 = NO_PARENT - 1;

/// The parents of one reference.
pub(super) struct Parents {
    /// The parent of each row, or [`NO_PARENT`], or [`MISSING_PARENT`].
    rows: RowNumbers<u32>,
    /// The number of rows with a parent.
    pub link_count: u32,
    /// The number of rows with a NULL in the reference.
    pub null_count: u64,
    /// The number of rows that refer to a missing row.
    pub unresolved_count: u64,
    /// The first of these rows.
    pub first_unresolved: Option<u64>,
}

impl Links {
    pub(super) fn new() -> Self {
        Self { keys: vec![Chain::default(); PARTS], marks: Chain::default(), last: NULL_KEY }
    }

    /// Adds the keys of rows.
    pub(super) fn add(&mut self, spill: &SpillWriter, keys: &[KeyDigest]) -> Result<()> {
        let mut marks = reserve(size_of_val(keys) / size_of::<KeyDigest>() * size_of::<u16>())?;
        for &key in keys {
            let mark = match key {
                NULL_KEY => NULL_MARK,
                PARTIAL_KEY => PARTIAL_MARK,
                // Rows with the same parent are often adjacent.
                key if key == self.last => SAME_MARK,
                key => {
                    self.last = key;
                    spill.append(&mut self.keys[part_of(key)], [&key.to_le_bytes()])?;
                    part_of(key) as u16
                }
            };
            marks.extend(mark.to_le_bytes());
        }
        spill.append_all(&mut self.marks, &marks)
    }

    /// Ends the links.
    pub(super) fn close(&mut self, spill: &SpillWriter) -> Result<()> {
        self.keys.iter_mut().chain([&mut self.marks]).try_for_each(|chain| spill.close(chain))
    }

    /// Finds the rows that have the keys, after all tables have been read.
    pub(super) fn resolve(self, keys: &KeyList, scratch: &Scratch) -> Result<Parents> {
        let spill = SpillWriter::new(scratch);
        let found = keys.rows_of(&self.keys, &spill)?;
        drop(self.keys);
        let mut found: Vec<_> = found.iter().map(|rows| rows.reader(0)).collect();
        let mut writer = RowNumbersWriter::new(scratch);
        let (mut row, mut last, mut some) = (0_u64, NO_ROW, Vec::new());
        let (mut link_count, mut null_count, mut unresolved_count) = (0, 0, 0);
        let mut first_unresolved = None;
        self.marks.for_each(|marks| {
            some.clear();
            for &mark in marks.as_chunks().0 {
                let mark = u16::from_le_bytes(mark);
                if mark < NULL_MARK {
                    last = found[usize::from(mark)].next()?;
                }
                some.push(match mark {
                    NULL_MARK => {
                        null_count += 1;
                        NO_PARENT
                    }
                    // The row has a parent, but its key is incomplete.
                    PARTIAL_MARK => {
                        null_count += 1;
                        MISSING_PARENT
                    }
                    _ if last == NO_ROW => {
                        unresolved_count += 1;
                        first_unresolved.get_or_insert(row);
                        MISSING_PARENT
                    }
                    _ => {
                        link_count += 1;
                        last
                    }
                });
                row += 1;
            }
            writer.extend(&some)
        })?;
        let rows = writer.finish()?;
        Ok(Parents { rows, link_count, null_count, unresolved_count, first_unresolved })
    }
}

impl Parents {
    /// Returns the links of rows that all have a parent.
    pub(super) fn of_rows(rows: Vec<u32>) -> Self {
        Self {
            link_count: rows.len() as u32,
            rows: rows.into(),
            null_count: 0,
            unresolved_count: 0,
            first_unresolved: None,
        }
    }

    /// Returns the parent of each row that has one, with the row.
    pub(super) fn links(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..).zip(&*self.rows).filter_map(|(row, &parent)| is_row(parent).then_some((row, parent)))
    }

    /// Returns the parent of a row, if it has one.
    pub(super) fn row(&self, row: usize) -> Option<u32> {
        Some(self.rows[row]).filter(|&parent| is_row(parent))
    }

    /// Returns the parent of each row of `range` as the store keeps it.
    pub(super) fn stored(&self, range: Range<usize>) -> impl Iterator<Item = u32> {
        self.rows[range].iter().map(|&parent| if is_row(parent) { parent } else { NO_PARENT })
    }

    /// Checks that unresolved values are within the limit.
    pub(super) fn check(
        &self,
        reference: &Reference,
        limits: &Limits,
        text_of: &TextOf<'_>,
    ) -> Result<()> {
        let referring = u64::from(self.link_count) + self.unresolved_count;
        let is_too_many = self.unresolved_count as f64 > referring as f64 * limits.unresolved_share;
        if let (Some(first), true) = (self.first_unresolved, is_too_many) {
            return Err(Error::data(format!(
                "reference {:?}: {} of {referring} values are not among the keys of table {:?}, \
                 the first is {}; limits.unresolved_share allows a share of {}: correct the \
                 reference or the data, or raise the limit (these rows then have no parent)",
                reference.name(),
                self.unresolved_count,
                reference.to,
                row_in_words(text_of, &reference.columns, first),
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
pub(super) fn column_times(
    times: RowNumbers<i64>,
    delay_us: i64,
    scratch: &Scratch,
) -> Result<RowNumbers<i64>> {
    let later = |&time: &i64| match time {
        ALWAYS_VISIBLE => ALWAYS_VISIBLE,
        time => known_from(time, delay_us),
    };
    RowNumbers::collect(scratch, times.iter().map(later))
}

/// Returns the time of each row from its parent: [`ALWAYS_VISIBLE`] without a parent or without a
/// time of the parent, and [`NEVER_VISIBLE`] if the parent is missing.
pub(super) fn inherited_times(
    parents: &Parents,
    times: &[i64],
    delay_us: i64,
    scratch: &Scratch,
) -> Result<RowNumbers<i64>> {
    let time_of = |&parent: &u32| match times.get(parent as usize) {
        None if parent == MISSING_PARENT => NEVER_VISIBLE,
        None | Some(&ALWAYS_VISIBLE) => ALWAYS_VISIBLE,
        Some(&time) => known_from(time, delay_us),
    };
    RowNumbers::collect(scratch, parents.rows.iter().map(time_of))
}
