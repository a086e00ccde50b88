//! Rows a block at a time, widened to 64 bits, for kernels that read a block several times.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;

use crate::bytes::filled;
use crate::error::Result;

use super::rows::{Rows, Values};

/// The numbers of a block that a kernel reads several times: they stay in the first-level cache.
const BLOCK_NUMBERS: usize = 4096;
/// A block of wide rows has at least so many, so that what belongs to a column is loaded for several.
const BLOCK_ROWS_MIN: usize = 8;
/// The fewest marks that are counted together.
const COUNTED_TOGETHER: usize = 64;
/// The numbers after a block's last row, so that a vector of four begins at each of its numbers.
const PADDING: usize = 3;

impl<'a> Rows<'a> {
    /// Returns the number of NULLs in each column, or nothing if no cell is marked.
    pub(super) fn null_counts(&self) -> Result<Vec<u64>> {
        let Some(nulls) = self.nulls else { return Ok(Vec::new()) };
        // Several narrow rows are counted as one wide row: a vector of counts at a time.
        let wide = self.columns * (COUNTED_TOGETHER / self.columns).max(1);
        let mut of_wide = filled(0_u64, wide)?;
        for row in nulls.chunks(wide) {
            for (count, is_null) in of_wide.iter_mut().zip(row) {
                // There are fewer cells than 2^64, and a check would make it one count at a time.
                *count = count.wrapping_add(u64::from(*is_null));
            }
        }
        let mut counts = filled(0, self.columns)?;
        for of_row in of_wide.chunks_exact(self.columns) {
            counts.iter_mut().zip(of_row).for_each(|(count, more)| *count += more);
        }
        Ok(counts)
    }

    /// Calls `take` with all rows in order, a block at a time.
    ///
    /// # Errors
    /// `LimitExceeded` when memory for a block runs out.
    pub(super) fn blocks(&self, mut take: impl FnMut(&Block<'_>)) -> Result<()> {
        if self.columns == 0 || self.count == 0 {
            return Ok(());
        }
        let most = (BLOCK_NUMBERS / self.columns).max(BLOCK_ROWS_MIN).min(self.count);
        let mut copy = Vec::new();
        for first in (0..self.count).step_by(most) {
            let rows = first..(first + most).min(self.count);
            let cells = rows.start * self.columns..rows.end * self.columns;
            let nulls = self.nulls.map(|nulls| &nulls[cells.clone()]);
            let numbers = match self.in_place(&cells, nulls) {
                Some(numbers) => numbers,
                None => {
                    if copy.is_empty() {
                        copy = filled(0.0, most * self.columns + PADDING)?;
                    }
                    self.widen(rows, &mut copy);
                    blank(nulls.unwrap_or_default(), &mut copy);
                    &copy[..cells.len() + PADDING]
                }
            };
            take(&Block { numbers, columns: self.columns });
        }
        Ok(())
    }

    /// Returns the numbers of some cells and the padding after them, if they need no copy.
    fn in_place(&self, cells: &Range<usize>, nulls: Option<&[bool]>) -> Option<&'a [f64]> {
        match self.values {
            Values::F64(values) if self.stride == self.columns && nulls.is_none() => {
                values.get(cells.start..cells.end + PADDING)
            }
            _ => None,
        }
    }

    /// Writes the numbers of some rows to `out`, without gaps.
    fn widen(&self, rows: Range<usize>, out: &mut [f64]) {
        macro_rules! widen {
            ($values:expr, $widen:expr) => {
                if self.stride == self.columns {
                    let cells = rows.start * self.columns..rows.end * self.columns;
                    $widen(&$values[cells.clone()], &mut out[..cells.len()]);
                } else {
                    for (row, out) in rows.zip(out.chunks_exact_mut(self.columns)) {
                        $widen(&$values[row * self.stride..][..self.columns], out);
                    }
                }
            };
        }
        fn widen_each(from: &[f32], to: &mut [f64]) {
            from.iter().zip(to).for_each(|(from, to)| *to = f64::from(*from));
        }
        fn copy(from: &[f64], to: &mut [f64]) {
            to.copy_from_slice(from);
        }
        match self.values {
            Values::F64(values) => widen!(values, copy),
            Values::F32(values) => widen!(values, widen_each),
            Values::F16(values) => widen!(values, HalfFloatSliceExt::convert_to_f64_slice),
            Values::Bf16(values) => widen!(values, HalfFloatSliceExt::convert_to_f64_slice),
        }
    }
}

/// Puts NaN in place of NULL: without branches, which a processor would often predict wrongly.
fn blank(nulls: &[bool], numbers: &mut [f64]) {
    for (is_null, number) in nulls.iter().zip(numbers) {
        let nan = u64::from(*is_null).wrapping_neg() & f64::NAN.to_bits();
        *number = f64::from_bits(number.to_bits() | nan);
    }
}

/// Some rows, widened to 64 bits.
pub(super) struct Block<'a> {
    /// The cells, row by row, NaN in place of NULL; after them [`PADDING`] numbers that mean nothing.
    numbers: &'a [f64],
    columns: usize,
}

impl Block<'_> {
    /// Returns the number of rows.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn rows(&self) -> usize {
        (self.numbers.len() - PADDING) / self.columns
    }

    /// Returns the numbers of a column.
    #[inline]
    pub(super) fn column(&self, column: usize) -> impl Iterator<Item = f64> {
        let cells = &self.numbers[column..self.numbers.len() - PADDING];
        cells.iter().step_by(self.columns).copied()
    }

    /// Returns the four numbers of a row from a column on; those after the last column mean nothing.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn four(&self, row: usize, column: usize) -> [f64; PADDING + 1] {
        let numbers = &self.numbers[row * self.columns + column..][..=PADDING];
        std::array::from_fn(|lane| numbers[lane])
    }
}
