//! The orders in which products are summed.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

use super::kernel::{Processor, Speed};
use super::product::Product;

/// The order in which the products of a chunk are summed, as the page of [`crate::fold`] defines it. Another
/// order gives other bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One chain of 64 bits.
    #[default]
    F64,
    /// Chains of 32 bits over 128 rows each, whose sum has 64 bits: faster, and less exact. For rows of 32
    /// or 16 bits without weights.
    F32x128,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 2] = [Self::F64, Self::F32x128];

    /// The name, as in options and plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32x128 => "f32x128",
        }
    }

    /// Checks that rows can be summed in this order; they may have numbers of 64 bits, or weights.
    ///
    /// # Errors
    /// `InvalidArgument` for [`Order::F32x128`] with either.
    pub fn check(self, wide: bool, weighted: bool) -> Result<()> {
        let (expected, found) = match self {
            Self::F32x128 if wide => ("rows of f32, f16 or bf16", "f64; convert the rows"),
            Self::F32x128 if weighted => ("rows without weights", "weights; leave them out"),
            _ => return Ok(()),
        };
        Err(Error::invalid(format!(
            "expected {expected} for sums of {self}, found {found}, or choose sums of {}",
            Self::F64
        )))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|order| order.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(|order| format!("{:?}", order.name()));
            Error::invalid(format!("expected sums of {}, found {name:?}", names.join(" or ")))
        })
    }
}

/// A product in one of the orders.
pub(super) enum Ordered {
    F64(Product<f64>),
    F32x128(Product<f32>),
}

impl Ordered {
    /// As [`Product::new`].
    pub(super) fn new(
        left_columns: Option<usize>,
        right_columns: usize,
        order: Order,
        speed: &Speed,
    ) -> Result<Self> {
        Ok(match order {
            Order::F64 => Self::F64(Product::new(left_columns, right_columns, speed)?),
            Order::F32x128 => Self::F32x128(Product::new(left_columns, right_columns, speed)?),
        })
    }

    pub(super) fn order(&self) -> Order {
        match self {
            Self::F64(_) => Order::F64,
            Self::F32x128(_) => Order::F32x128,
        }
    }

    pub(super) fn processor(&self) -> Processor {
        match self {
            Self::F64(product) => product.processor(),
            Self::F32x128(product) => product.processor(),
        }
    }
}
