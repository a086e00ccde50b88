//! Rows of numbers, borrowed from memory.

use std::ops::Range;

use half::{bf16, f16};

use crate::error::{Error, Result};

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
    pub(super) nulls: Option<&'a [bool]>,
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
    #[must_use]
    pub fn first_null(&self) -> Option<(usize, usize)> {
        let at = self.nulls?.iter().position(|&is_null| is_null)?;
        Some((at / self.columns, at % self.columns))
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
}
