//! `Cells`: the columns of a table by type, for loops over whole rows that do not ask each cell for its type.

use super::metadata::{ColumnStats, TableMetadata};

/// The columns of a table, each type in the order of the columns. An identifier has no value to read.
#[derive(Default)]
pub(crate) struct Cells {
    pub numbers: Vec<CellPlace>,
    pub times: Vec<CellPlace>,
    /// Their offsets count bits.
    pub booleans: Vec<CellPlace>,
    pub categories: Vec<CategoryPlace>,
    pub texts: Vec<CellPlace>,
    /// The columns whose values are known later than their rows.
    pub known_later: Vec<usize>,
}

/// A column, and where its value is in a record.
#[derive(Clone, Copy)]
pub(crate) struct CellPlace {
    pub column: usize,
    pub offset: usize,
}

/// A column of categories.
#[derive(Clone, Copy)]
pub(crate) struct CategoryPlace {
    pub column: usize,
    pub offset: usize,
    /// The number of bytes of the value.
    pub bytes: usize,
    /// The categorical embedding of value 0.
    pub first: u32,
}

impl Cells {
    pub(super) fn of(metadata: &TableMetadata) -> Self {
        let mut cells = Self::default();
        for (column, of) in metadata.columns.iter().enumerate() {
            let offset = of.offset as usize;
            let place = CellPlace { column, offset };
            match of.stats {
                ColumnStats::Identifier => {}
                ColumnStats::Numerical { .. } | ColumnStats::Count { .. } => {
                    cells.numbers.push(place);
                }
                ColumnStats::Timestamp { .. } => cells.times.push(place),
                ColumnStats::Boolean { .. } => cells.booleans.push(place),
                ColumnStats::Categorical { cat_emb_start: first, .. } => {
                    let bytes = of.stats.value_bytes() as usize;
                    cells.categories.push(CategoryPlace { column, offset, bytes, first });
                }
                ColumnStats::Text => cells.texts.push(place),
            }
            if of.known.is_some() {
                cells.known_later.push(column);
            }
        }
        cells
    }
}

/// Returns the bits of a byte as eight bytes that are 0 or 1, the lowest bit first.
#[inline]
pub(super) fn spread(bits: u8) -> [u8; 8] {
    const BIT_OF_EACH_BYTE: u64 = 0x8040_2010_0804_0201;
    const ALL_BUT_THE_HIGHEST: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let chosen = (u64::from(bits) * 0x0101_0101_0101_0101) & BIT_OF_EACH_BYTE;
    // Carries the one bit of a byte, whichever it is, into its highest.
    ((chosen + ALL_BUT_THE_HIGHEST) >> 7 & 0x0101_0101_0101_0101).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn every_byte_is_spread_bit_by_bit() {
        for bits in 0..=u8::MAX {
            let expected = std::array::from_fn(|bit| bits >> bit & 1);
            assert_eq!(spread(bits), expected, "{bits:08b}");
        }
    }
}
