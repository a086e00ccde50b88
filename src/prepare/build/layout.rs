//! Where in a row's record each thing lies.

use super::columns::{ColumnSummary, Summary};
use crate::error::{Error, Result};
use crate::store::{ColumnMetadata, ColumnStats};

/// The layout of a table's records: widest things first, so that nothing needs padding but the end.
///
/// Times, then the parents' row numbers, then values of 4, 2 and 1 bytes, then bits: one for each
/// column that says whether it is NULL, one for each boolean's value.
pub(super) struct Layout {
    /// Where an inherited time is.
    pub time_offset: u32,
    /// Where each reference's parent is.
    pub parent_offsets: Vec<u32>,
    /// The columns, placed.
    pub columns: Vec<ColumnMetadata>,
    /// Where the bits are.
    pub null_offset: u32,
    /// How long a record is.
    pub stride: u32,
}

/// Gives out the bytes of a record.
struct Offset(u64);

impl Offset {
    fn take(&mut self, bytes: u32) -> u32 {
        let at = self.0;
        self.0 += u64::from(bytes);
        at as u32
    }
}

impl Layout {
    /// Lays out a table with `reference_count` references.
    ///
    /// `columns` come with their statistics, the categories' blocks assigned already.
    pub(super) fn new(
        mut columns: Vec<ColumnMetadata>,
        reference_count: usize,
        inherits_time: bool,
    ) -> Result<Self> {
        let mut offset = Offset(0);
        let time_offset = offset.take(if inherits_time { 8 } else { 0 });
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
        let has_times = inherits_time || columns.iter().any(|c| c.stats.value_bytes() == 8);
        let stride = offset.0.next_multiple_of(if has_times { 8 } else { 4 });
        let stride = u32::try_from(stride).map_err(|_| {
            Error::limit(
                "expected records of less than \
                                                                     4 GiB, found longer ones; \
                                                                     remove columns",
            )
        })?;
        Ok(Self { time_offset, parent_offsets, columns, null_offset, stride })
    }
}

/// A column's metadata, before its place in the record is known.
pub(super) fn column_metadata(
    summary: &ColumnSummary,
    index: u32,
    category_count: &mut u32,
) -> Result<ColumnMetadata> {
    let stats = match &summary.summary {
        Summary::Identifier => ColumnStats::Identifier,
        Summary::Numerical(moments) => ColumnStats::Numerical {
            mean: moments.mean(),
            std: moments.std(),
            min: moments.min(),
            max: moments.max(),
        },
        Summary::Timestamp { moments, min, max } => ColumnStats::Timestamp {
            mean_us: moments.mean(),
            std_us: moments.std(),
            min_us: if moments.count() == 0 { 0 } else { *min },
            max_us: if moments.count() == 0 { 0 } else { *max },
        },
        Summary::Boolean { true_count } => ColumnStats::Boolean { true_count: *true_count },
        Summary::Categorical(dictionary) => {
            let cat_emb_start = *category_count;
            let cat_emb_count = dictionary.len() as u32;
            *category_count = category_count.checked_add(cat_emb_count).ok_or_else(|| {
                Error::limit(
                    "expected at most 4,294,967,295 categories in all \
                                             columns, found more",
                )
            })?;
            ColumnStats::Categorical { cat_emb_start, cat_emb_count }
        }
        Summary::Text => ColumnStats::Text,
    };
    let (name, null_count) = (summary.name.clone(), summary.null_count);
    Ok(ColumnMetadata { name, index, offset: 0, null_count, stats })
}
