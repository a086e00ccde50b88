//! Rows of numbers, where they lie.

use half::{bf16, f16};

use crate::error::{Error, Result};

/// Numbers of one of the types that widen to 64 bits without rounding.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// 64 bits.
    F64(&'a [f64]),
    /// 32 bits.
    F32(&'a [f32]),
    /// IEEE 754's 16 bits.
    F16(&'a [f16]),
    /// The upper 16 bits of an `f32`.
    Bf16(&'a [bf16]),
}

impl Values<'_> {
    /// How many they are.
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
}

impl<'a> Rows<'a> {
    /// `count` rows of `columns` numbers each; element (n, j) is `values[n * stride + j]`.
    ///
    /// Rows may overlap (a stride below the number of columns), or be all the same (0).
    ///
    /// # Errors
    /// `InvalidArgument` when `values` has not that many.
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
                "{count} rows of {columns} columns, one every {stride} values, are not in {found} values"
            )));
        }
        Ok(Self { values, count, columns, stride })
    }

    /// How many rows there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many columns there are.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }
}
