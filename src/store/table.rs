//! `Table`: rows as records, their keys and their identities.

use std::cmp::Ordering;
use std::ops::Range;

use super::cells::{Cells, spread};
use super::metadata::{ColumnStats, KnownMetadata, TableMetadata, TimeMetadata};
use super::time::{ALWAYS_VISIBLE, is_visible, known_from};
use crate::bytes::{identity_of, u32_at, u64_at};
use crate::container::{Container, Section, Strings};
use crate::error::{Error, Result};

/// The row number in a record that has no parent.
pub const NO_PARENT: u32 = u32::MAX;

/// One value of a row, encoded as in a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// No value.
    Null,
    /// An identifier, which has no value of its own.
    Identifier,
    /// A z-score.
    Numerical(f32),
    /// Microseconds since 1970.
    Timestamp(i64),
    /// True or false.
    Boolean(bool),
    /// An index into the categorical embeddings.
    Categorical(u32),
    /// An index into the texts.
    Text(u32),
}

/// A table of an open store.
pub struct Table {
    metadata: TableMetadata,
    cells: Cells,
    rows: Section,
    identities: Section,
    keys: Option<Keys>,
    time: Option<RowTime>,
}

struct Keys {
    texts: Strings,
    by_identity: Section,
}

#[derive(Clone, Copy)]
struct RowTime {
    offset: usize,
    delay_us: i64,
    null_bit: Option<usize>,
}

impl Table {
    pub(crate) fn open(container: &Container, metadata: &TableMetadata) -> Result<Self> {
        let rows = u64::from(metadata.row_count);
        let keys = if metadata.key.is_empty() {
            None
        } else {
            Some(Keys {
                texts: Strings::open(container, "keys", metadata.row_count as usize)?,
                by_identity: container.section("by_identity", rows * 4)?,
            })
        };
        Ok(Self {
            time: row_time(metadata)?,
            rows: container.section("rows", rows * u64::from(metadata.stride))?,
            identities: container.section("identities", rows * 8)?,
            keys,
            cells: Cells::of(metadata),
            metadata: metadata.clone(),
        })
    }

    /// Returns the metadata of the table.
    #[must_use]
    pub fn metadata(&self) -> &TableMetadata {
        &self.metadata
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn row_count(&self) -> u32 {
        self.metadata.row_count
    }

    /// Returns the record of row `row`.
    ///
    /// # Cost
    /// One or two cache lines, and no copy.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such row, `Corrupt` when its block is damaged.
    #[inline]
    pub fn row(&self, row: u32) -> Result<Row<'_>> {
        if row >= self.metadata.row_count {
            return Err(self.no_such_row(row));
        }
        let stride = self.metadata.stride as usize;
        Ok(Row { table: self, record: self.rows.get(row as usize * stride, stride)? })
    }

    /// Prefetches the record of row `row`.
    #[inline]
    pub(crate) fn prefetch(&self, row: u32) {
        let stride = self.metadata.stride as usize;
        self.rows.prefetch((row as usize).saturating_mul(stride), stride);
    }

    /// Returns the key of row `row` as text: its columns' values, joined by `|`.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such row, or the table has no key; `Corrupt` when damaged.
    pub fn key(&self, row: u32) -> Result<&str> {
        if row >= self.metadata.row_count {
            return Err(self.no_such_row(row));
        }
        match &self.keys {
            Some(keys) => keys.texts.get(row as usize),
            None => Err(Error::invalid(format!("table {:?} has no key", self.metadata.name))),
        }
    }

    /// Returns the identity of a row, by which splits go: the digest of its key, or of the whole row in
    /// a table without a key.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such row, `Corrupt` when damaged.
    #[inline]
    pub fn identity(&self, row: u32) -> Result<u64> {
        if row >= self.metadata.row_count {
            return Err(self.no_such_row(row));
        }
        self.identities.value(row as usize)
    }

    /// Returns the identities of some rows that follow each other.
    ///
    /// # Errors
    /// `InvalidArgument` when there are no such rows, `Corrupt` when damaged.
    pub(crate) fn identities(&self, rows: Range<u32>) -> Result<&[u64]> {
        if rows.end > self.metadata.row_count {
            return Err(self.no_such_row(rows.end - 1));
        }
        self.identities.slice(rows.start as usize, rows.len())
    }

    /// Returns the row whose key has the text `key`; none when no row has it.
    ///
    /// # Cost
    /// A binary search.
    ///
    /// # Errors
    /// `InvalidArgument` when the table has no key, `Corrupt` when damaged.
    pub fn find(&self, key: &str) -> Result<Option<u32>> {
        let Some(keys) = &self.keys else {
            return Err(Error::invalid(format!(
                "expected a table with a key, found {:?}, which has none; set `key` of the table in \
                 the schema, or name rows by their numbers",
                self.metadata.name
            )));
        };
        let wanted = identity_of(key.as_bytes());
        let (mut low, mut high) = (0, self.metadata.row_count as usize);
        while low < high {
            let middle = low.midpoint(high);
            let row: u32 = keys.by_identity.value(middle)?;
            match self.identity(row)?.cmp(&wanted) {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        // Two keys can share an identity, about once in billions of rows.
        for place in low..self.metadata.row_count as usize {
            let row: u32 = keys.by_identity.value(place)?;
            if self.identity(row)? != wanted {
                break;
            }
            if keys.texts.get(row as usize)? == key {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    /// Returns the row whose key has the text `key`.
    ///
    /// # Cost
    /// A binary search.
    ///
    /// # Errors
    /// `InvalidArgument` when no row has the key, or the table has no key; `Corrupt` when damaged.
    pub fn require(&self, key: &str) -> Result<u32> {
        self.find(key)?.ok_or_else(|| {
            Error::invalid(format!(
                "no row of table {:?} has the key {key:?}; a key looks like {:?}",
                self.metadata.name,
                self.key(0).unwrap_or_default()
            ))
        })
    }

    #[cold]
    fn no_such_row(&self, row: u32) -> Error {
        let TableMetadata { name, row_count, .. } = &self.metadata;
        Error::invalid(format!("table {name:?}: expected a row below {row_count}, found row {row}"))
    }
}

/// Returns the place of a row's time; checks that it is inside the record.
fn row_time(metadata: &TableMetadata) -> Result<Option<RowTime>> {
    let time = match &metadata.time {
        None => return Ok(None),
        Some(
            TimeMetadata::Inherited { offset, .. }
            | TimeMetadata::Ignored { offset, .. }
            | TimeMetadata::Period { offset },
        ) => RowTime { offset: *offset as usize, delay_us: 0, null_bit: None },
        &Some(TimeMetadata::Column { column, delay_us }) => {
            let place = column as usize;
            match metadata.columns.get(place) {
                Some(c) if matches!(c.stats, ColumnStats::Timestamp { .. }) => {
                    RowTime { offset: c.offset as usize, delay_us, null_bit: Some(place) }
                }
                _ => return Err(wrong(metadata, "its time is not a timestamp column")),
            }
        }
    };
    if time.offset + 8 > metadata.stride as usize {
        return Err(wrong(metadata, "its time lies outside the record"));
    }
    Ok(Some(time))
}

/// Checks that every cell of a table, and the time of a row, lies inside its records.
pub(super) fn check_layout(metadata: &TableMetadata) -> Result<()> {
    let stride = u64::from(metadata.stride);
    let mut boolean_bits = metadata.columns.len() as u64;
    for column in &metadata.columns {
        let offset = u64::from(column.offset);
        let inside = match column.stats {
            ColumnStats::Boolean { .. } => {
                boolean_bits = boolean_bits.max(offset + 1);
                true
            }
            ref stats => offset + u64::from(stats.value_bytes()) <= stride,
        };
        let known_inside = match column.known {
            Some(KnownMetadata::At { offset, .. }) => u64::from(offset) + 8 <= stride,
            _ => true,
        };
        if !inside || !known_inside {
            return Err(wrong(
                metadata,
                &format!("column {:?} lies outside the record", column.name),
            ));
        }
    }
    if u64::from(metadata.null_offset) + boolean_bits.div_ceil(8) > stride {
        return Err(wrong(metadata, "its null bits lie outside the record"));
    }
    row_time(metadata).map(|_| ())
}

fn wrong(metadata: &TableMetadata, what: &str) -> Error {
    Error::corrupt(format!(
        "the layout of table {:?} is wrong: {what}; prepare the store again",
        metadata.name
    ))
}

/// One row's record.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    table: &'a Table,
    record: &'a [u8],
}

impl<'a> Row<'a> {
    /// Returns the columns of its table by type.
    #[inline]
    pub(crate) fn cells(&self) -> &'a Cells {
        &self.table.cells
    }
}

impl Row<'_> {
    /// Returns the time at which the row came to exist; [`ALWAYS_VISIBLE`] if it is not known.
    #[inline]
    #[must_use]
    pub fn time(&self) -> i64 {
        match self.table.time {
            None => ALWAYS_VISIBLE,
            Some(time) if time.null_bit.is_some_and(|bit| self.bit(bit)) => ALWAYS_VISIBLE,
            Some(time) => match self.time_at(time.offset) {
                ALWAYS_VISIBLE => ALWAYS_VISIBLE,
                at => known_from(at, time.delay_us),
            },
        }
    }

    /// Returns the parent whose number is at `offset`, which a relation's metadata give.
    #[inline]
    #[must_use]
    pub(super) fn parent(&self, offset: usize) -> Option<u32> {
        u32_at(self.record, offset).filter(|&parent| parent != NO_PARENT)
    }

    /// Whether column `column` is NULL.
    ///
    /// # Panics
    /// When the table has no such column.
    #[inline]
    #[must_use]
    pub fn is_null(&self, column: usize) -> bool {
        assert!(column < self.table.metadata.columns.len());
        self.bit(column)
    }

    /// Returns the value of column `column`.
    ///
    /// # Panics
    /// When the table has no such column.
    #[inline]
    #[must_use]
    pub fn cell(&self, column: usize) -> Cell {
        let metadata = &self.table.metadata.columns[column];
        let offset = metadata.offset as usize;
        if self.bit(column) {
            return Cell::Null;
        }
        match metadata.stats {
            ColumnStats::Identifier => Cell::Identifier,
            ColumnStats::Numerical { .. } | ColumnStats::Count { .. } => {
                Cell::Numerical(self.number_at(offset))
            }
            ColumnStats::Timestamp { .. } => Cell::Timestamp(self.time_at(offset)),
            ColumnStats::Boolean { .. } => Cell::Boolean(self.bit(offset)),
            ColumnStats::Text => Cell::Text(self.index_at(offset, 4)),
            ColumnStats::Categorical { cat_emb_start, .. } => {
                let local = self.index_at(offset, metadata.stats.value_bytes() as usize);
                Cell::Categorical(cat_emb_start.saturating_add(local))
            }
        }
    }

    /// Writes for each of the first columns whether it is NULL: 1 or 0.
    #[inline]
    pub(crate) fn write_nulls(&self, nulls: &mut [u8]) {
        let (eights, last) = nulls.as_chunks_mut::<8>();
        let bits = &self.record[self.table.metadata.null_offset as usize..];
        for (eight, bits) in eights.iter_mut().zip(bits) {
            *eight = spread(*bits);
        }
        if let Some(bits) = bits.get(eights.len()) {
            last.copy_from_slice(&spread(*bits)[..last.len()]);
        }
    }

    /// Returns the z-score at `offset`.
    #[inline]
    pub(crate) fn number_at(&self, offset: usize) -> f32 {
        f32::from_bits(self.index_at(offset, 4))
    }

    /// Returns the time at `offset`.
    #[inline]
    pub(crate) fn time_at(&self, offset: usize) -> i64 {
        u64_at(self.record, offset).map_or(ALWAYS_VISIBLE, |v| v as i64)
    }

    /// Returns a bit of those that begin with the null bits: a boolean, or whether a column is NULL.
    #[inline]
    pub(crate) fn bit(&self, bit: usize) -> bool {
        self.record[self.table.metadata.null_offset as usize + bit / 8] >> (bit % 8) & 1 == 1
    }

    /// Returns the number of a text or a category at `offset`, of 1, 2 or 4 bytes.
    #[inline]
    pub(crate) fn index_at(&self, offset: usize, bytes: usize) -> u32 {
        match (bytes, &self.record[offset..]) {
            (1, [one, ..]) => u32::from(*one),
            (2, [low, high, ..]) => u32::from(u16::from_le_bytes([*low, *high])),
            (_, rest) => u32_at(rest, 0).unwrap_or_default(),
        }
    }

    /// Returns the value of column `column` as it is known at `obs_time`: NULL before it is known.
    ///
    /// # Panics
    /// When the table has no such column.
    #[inline]
    #[must_use]
    pub fn cell_known_at(&self, column: usize, obs_time: i64) -> Cell {
        if is_visible(self.known_time(column), obs_time) { self.cell(column) } else { Cell::Null }
    }

    /// Returns the time at which the value of column `column` is known; [`ALWAYS_VISIBLE`] if that is
    /// whenever the row is.
    ///
    /// # Panics
    /// When the table has no such column.
    #[inline]
    #[must_use]
    pub fn known_time(&self, column: usize) -> i64 {
        match &self.table.metadata.columns[column].known {
            None => ALWAYS_VISIBLE,
            Some(KnownMetadata::At { offset, .. }) => self.time_at(*offset as usize),
            Some(KnownMetadata::Delay { delay_us }) => match self.time() {
                ALWAYS_VISIBLE => ALWAYS_VISIBLE,
                time => known_from(time, *delay_us),
            },
        }
    }
}
