//! Rows of numbers, borrowed from memory.

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::bytes::filled;
use crate::error::{Error, Result};

/// The numbers of a block that a kernel reads several times: they stay in the first-level cache.
const BLOCK_NUMBERS: usize = 4096;
/// A block of wide rows has at least so many, so that what belongs to a column is loaded for several.
const BLOCK_ROWS_MIN: usize = 8;
/// The fewest marks that are counted together.
const COUNTED_TOGETHER: usize = 64;
/// The numbers after a block's last row, so that a vector of four begins at each of its numbers.
const PADDING: usize = 3;

/// Numbers of one of the types that widen to 64 bits without rounding.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// 64-bit floats.
    F64(&'a [f64]),
    /// 32-bit floats.
    F32(&'a [f32]),
    /// 16-bit floats of IEEE 754 (binary16).
    F16(&'a [f16]),
    /// bfloat16: the upper 16 bits of an `f32`.
    Bf16(&'a [bf16]),
}

impl Values<'_> {
    /// Returns the number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::F16(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

macro_rules! from_slices {
    ($($type:ty => $variant:ident),*) => {$(
        impl<'a> From<&'a [$type]> for Values<'a> {
            fn from(values: &'a [$type]) -> Self {
                Self::$variant(values)
            }
        }
    )*};
}

from_slices!(f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16);

/// A matrix, row by row.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    pub(super) values: Values<'a>,
    pub(super) count: usize,
    pub(super) columns: usize,
    pub(super) stride: usize,
    nulls: Option<&'a [bool]>,
}

impl<'a> Rows<'a> {
    /// Views `values` as `count` rows of `columns` numbers; cell (n, j) is `values[n * stride +
    /// j]`.
    ///
    /// Rows may overlap (a stride below the number of columns), or all be the same (a stride of 0).
    ///
    /// # Errors
    /// `InvalidArgument` when `values` is too short.
    pub fn new(
        values: impl Into<Values<'a>>,
        count: usize,
        columns: usize,
        stride: usize,
    ) -> Result<Self> {
        let values = values.into();
        let needed = match count.checked_sub(1) {
            None => Some(0),
            Some(last) => last.checked_mul(stride).and_then(|start| start.checked_add(columns)),
        };
        if needed.is_none_or(|needed| needed > values.len()) {
            let found = values.len();
            return Err(Error::invalid(format!(
                "expected values for {count} rows of {columns} columns with a stride of {stride}, \
                found only {found}"
            )));
        }
        Ok(Self { values, count, columns, stride, nulls: None })
    }

    /// Marks cells as NULL: (n, j) is NULL if `nulls[n * columns + j]` is set.
    ///
    /// The value of a NULL cell changes no statistic.
    ///
    /// # Errors
    /// `InvalidArgument` when there is not one mark for each cell.
    pub fn with_nulls(self, nulls: &'a [bool]) -> Result<Self> {
        if self.count.checked_mul(self.columns) != Some(nulls.len()) {
            return Err(Error::invalid(format!(
                "expected one NULL mark for each cell of {} rows of {} columns, found {} marks",
                self.count,
                self.columns,
                nulls.len()
            )));
        }
        Ok(Self { nulls: Some(nulls), ..self })
    }

    /// Returns the first `count` rows, or all if there are fewer.
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        let count = count.min(self.count);
        let nulls = self.nulls.map(|nulls| &nulls[..count * self.columns]);
        Self { count, nulls, ..self }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Row and column of the first NaN or infinity, and which it is.
    #[must_use]
    pub fn first_nonfinite(&self) -> Option<(usize, usize, f64)> {
        macro_rules! first {
            ($values:expr) => {
                (0..self.count).find_map(|row| {
                    let values = &$values[row * self.stride..][..self.columns];
                    // Without a way out in the middle, so that a compiler looks at many at a time.
                    if values.iter().fold(true, |all, value| all & value.is_finite()) {
                        return None;
                    }
                    let column = (0..self.columns).find(|&column| {
                        !values[column].is_finite() && !self.is_null(row, column)
                    })?;
                    Some((row, column, f64::from(values[column])))
                })
            };
        }
        match self.values {
            Values::F64(values) => first!(values),
            Values::F32(values) => first!(values),
            Values::F16(values) => first!(values),
            Values::Bf16(values) => first!(values),
        }
    }

    fn is_null(&self, row: usize, column: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls[row * self.columns + column])
    }

    /// Returns the row and the column of the first NULL.
    pub(crate) fn first_null(&self) -> Option<(usize, usize)> {
        let at = self.nulls?.iter().position(|&is_null| is_null)?;
        Some((at / self.columns, at % self.columns))
    }

    /// Returns the number of NULLs in each column, or nothing if no cell is marked.
    #[cfg(target_arch = "x86_64")]
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

    /// Calls `take` with each cell of some columns, row by row: the row, the column and the number
    /// widened to 64 bits, or `None` for NULL.
    ///
    /// Widening is exact in the default environment only; see [`super::control`].
    #[inline]
    pub(super) fn each(
        &self,
        columns: Range<usize>,
        mut take: impl FnMut(usize, usize, Option<f64>),
    ) {
        macro_rules! each {
            ($values:expr) => {
                for row in 0..self.count {
                    let values = &$values[row * self.stride..][..self.columns];
                    let nulls =
                        self.nulls.map(|nulls| &nulls[row * self.columns..][..self.columns]);
                    for column in columns.clone() {
                        let is_null = nulls.is_some_and(|nulls| nulls[column]);
                        take(row, column, (!is_null).then(|| f64::from(values[column])));
                    }
                }
            };
        }
        match self.values {
            Values::F64(values) => each!(values),
            Values::F32(values) => each!(values),
            Values::F16(values) => each!(values),
            Values::Bf16(values) => each!(values),
        }
    }

    /// Calls `take` with all rows in order, a block at a time.
    ///
    /// # Errors
    /// `LimitExceeded` when memory for a block runs out.
    #[cfg(target_arch = "x86_64")]
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
    #[cfg(target_arch = "x86_64")]
    fn in_place(&self, cells: &Range<usize>, nulls: Option<&[bool]>) -> Option<&'a [f64]> {
        match self.values {
            Values::F64(values) if self.stride == self.columns && nulls.is_none() => {
                values.get(cells.start..cells.end + PADDING)
            }
            _ => None,
        }
    }

    /// Writes the numbers of some rows to `out`, without gaps.
    #[cfg(target_arch = "x86_64")]
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
#[cfg(target_arch = "x86_64")]
fn blank(nulls: &[bool], numbers: &mut [f64]) {
    for (is_null, number) in nulls.iter().zip(numbers) {
        let nan = u64::from(*is_null).wrapping_neg() & f64::NAN.to_bits();
        *number = f64::from_bits(number.to_bits() | nan);
    }
}

/// Some rows, widened to 64 bits.
#[cfg(target_arch = "x86_64")]
pub(super) struct Block<'a> {
    /// The cells, row by row, NaN in place of NULL; after them [`PADDING`] numbers that mean nothing.
    numbers: &'a [f64],
    columns: usize,
}

#[cfg(target_arch = "x86_64")]
impl Block<'_> {
    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        (self.numbers.len() - PADDING) / self.columns
    }

    /// Returns the four numbers of a row from a column on; those after the last column mean nothing.
    #[inline]
    pub(super) fn four(&self, row: usize, column: usize) -> [f64; PADDING + 1] {
        let numbers = &self.numbers[row * self.columns + column..][..=PADDING];
        std::array::from_fn(|lane| numbers[lane])
    }
}
