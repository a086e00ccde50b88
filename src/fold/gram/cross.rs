//! The products of the columns of two matrices.

use crate::error::{Error, Result};
use crate::fold::statistic::Statistic;

use super::product::{Left, Product};
use super::triangle::{self, Rectangle};
use super::{Chunk, Speed, check_columns, same_count};

/// The matrix X^T Y of two matrices with the same rows.
pub struct Cross {
    left_columns: usize,
    right_columns: usize,
    product: Product,
}

impl Cross {
    /// Of `left_columns` columns of X with `right_columns` of Y.
    ///
    /// # Errors
    /// `InvalidArgument` for none, `LimitExceeded` for more than [`super::COLUMNS_MAX`].
    pub fn new(left_columns: usize, right_columns: usize) -> Result<Self> {
        Self::with_speed(left_columns, right_columns, &Speed::default())
    }

    /// The same at a speed of the caller's choice.
    ///
    /// # Errors
    /// As [`Cross::new`], and `InvalidArgument` for a kernel that this processor has not.
    pub fn with_speed(left_columns: usize, right_columns: usize, speed: &Speed) -> Result<Self> {
        check_columns(left_columns)?;
        check_columns(right_columns)?;
        let product = Product::new(Some(left_columns), right_columns, speed)?;
        Ok(Self { left_columns, right_columns, product })
    }
}

impl Statistic for Cross {
    /// X and Y, both without weights.
    type Chunk<'a> = (Chunk<'a>, Chunk<'a>);
    type Partial = Rectangle;

    fn leaf(&self, (x, y): &(Chunk<'_>, Chunk<'_>)) -> Result<Rectangle> {
        same_count("columns on the left", self.left_columns, x.columns())?;
        same_count("columns on the right", self.right_columns, y.columns())?;
        same_count("rows on both sides", x.rows, y.rows)?;
        if x.weights.or(y.weights).is_some() {
            return Err(Error::invalid("weights for a fold without weights"));
        }
        let left = Left::Columns(&x.parts);
        self.product.sums(x.rows, left, &y.parts, None).map(Rectangle)
    }

    fn encode(&self, partial: &Rectangle) -> Vec<u8> {
        triangle::encode(&partial.0)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Rectangle> {
        triangle::decode(bytes, self.left_columns * self.right_columns).map(Rectangle)
    }
}
