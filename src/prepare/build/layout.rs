//! The layout of a table's records: the offset of each value.

use super::columns::{ColumnSummary, Summary, time_z_score};
use crate::error::{Error, Result};
use crate::prepare::schema::Known;
use crate::store::{ColumnMetadata, ColumnStats, KnownMetadata};

/// The layout of a table's records. The widest values come first, so only the end needs padding.
///
/// The row's time, the times at which values are known, timestamps, then the parents' row numbers, then
/// values of 4, 2 and 1 bytes, then bits: a NULL bit for each column, and a value bit for each boolean.
pub(super) struct Layout {
    /// The offset of a time that is no cell.
    pub time_offset: u32,
    /// The offset of each time at which values of some columns are known.
    pub known_offsets: Vec<u32>,
    /// The offset of each reference's parent.
    pub parent_offsets: Vec<u32>,
    /// The columns with their offsets.
    pub columns: Vec<ColumnMetadata>,
    /// The offset of the bits.
    pub null_offset: u32,
    /// The length of a record.
    pub stride: u32,
}

/// The next free byte of a record.
struct Offset(u64);

impl Offset {
    fn take(&mut self, bytes: u32) -> u32 {
        let at = self.0;
        self.0 += u64::from(bytes);
        at as u32
    }
}

impl Layout {
    /// Lays out a table with `reference_count` references; `known_times` are the columns of times at which
    /// values of others are known.
    ///
    /// `columns` have their statistics and their blocks of categories already.
    pub(super) fn new(
        mut columns: Vec<ColumnMetadata>,
        reference_count: usize,
        records_time: bool,
        known_times: &[&String],
    ) -> Result<Self> {
        let mut offset = Offset(0);
        let time_offset = offset.take(if records_time { 8 } else { 0 });
        let known_offsets: Vec<u32> = known_times.iter().map(|_| offset.take(8)).collect();
        for column in &mut columns {
            if let Some(KnownMetadata::At { column: time, offset }) = &mut column.known {
                let place = known_times.iter().position(|known| *known == time);
                *offset = known_offsets[place.expect("every such time is in the record")];
            }
        }
        let place = |columns: &mut [ColumnMetadata], width: u32, offset: &mut Offset| {
            for column in columns.iter_mut().filter(|c| c.stats.value_bytes() == width) {
                column.offset = offset.take(width);
            }
        };
        place(&mut columns, 8, &mut offset);
        let parent_offsets = (0..reference_count).map(|_| offset.take(4)).collect();
        for width in [4, 2, 1] {
            place(&mut columns, width, &mut offset);
        }
        let null_offset = offset.take(0);
        let mut bit = columns.len() as u32;
        for column in &mut columns {
            match column.stats {
                ColumnStats::Boolean { .. } => {
                    column.offset = bit;
                    bit += 1;
                }
                ColumnStats::Identifier => column.offset = 0,
                _ => {}
            }
        }
        offset.take(bit.div_ceil(8));
        let has_times = records_time
            || !known_times.is_empty()
            || columns.iter().any(|c| c.stats.value_bytes() == 8);
        let stride = offset.0.next_multiple_of(if has_times { 8 } else { 4 });
        let stride = u32::try_from(stride).map_err(|_| {
            Error::limit("expected records of less than 4 GiB, found longer ones; remove columns")
        })?;
        Ok(Self { time_offset, known_offsets, parent_offsets, columns, null_offset, stride })
    }
}

/// Returns a column's metadata without its offset.
pub(super) fn column_metadata(
    summary: &ColumnSummary,
    index: u32,
    category_count: &mut u32,
) -> Result<ColumnMetadata> {
    let stats = match &summary.summary {
        Summary::Identifier => ColumnStats::Identifier,
        Summary::Numerical(numbers) => numbers.stats(),
        Summary::Timestamp { moments, min, max, until } => {
            let (z_score, is_empty) = (time_z_score(moments, *until), min > max);
            ColumnStats::Timestamp {
                mean_us: z_score.mean,
                std_us: z_score.std,
                min_us: if is_empty { 0 } else { *min },
                max_us: if is_empty { 0 } else { *max },
            }
        }
        Summary::Boolean { true_count } => ColumnStats::Boolean { true_count: *true_count },
        Summary::Categorical(dictionary) => {
            let cat_emb_start = *category_count;
            let cat_emb_count = dictionary.len() as u32;
            *category_count = category_count.checked_add(cat_emb_count).ok_or_else(|| {
                Error::limit("expected at most 4,294,967,295 categories in all columns, found more")
            })?;
            let known = dictionary.known_count() as u32;
            let known_count = (known < cat_emb_count).then_some(known);
            ColumnStats::Categorical { cat_emb_start, cat_emb_count, known_count }
        }
        Summary::Text => ColumnStats::Text,
    };
    let (name, null_count) = (summary.name.clone(), summary.null_count);
    let known = summary.column.known.as_ref().map(|known| match known {
        Known::Delay(delay) => KnownMetadata::Delay { delay_us: delay.0 },
        Known::At(time) => KnownMetadata::At { column: time.clone(), offset: 0 },
    });
    Ok(ColumnMetadata { name, index, offset: 0, null_count, stats, known })
}
