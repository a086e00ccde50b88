//! Cross products: sums of products of the columns of two matrices.

use rayon::ThreadPool;

use crate::error::{Context, Error, Result};
use crate::fold::statistic::{Statistic, same_count};

use super::order::Ordered;
use super::product::Left;
use super::triangle::{self, Rectangle, Sums};
use super::{Chunk, Order, Speed, check_columns, leaves};

/// The rows of X and of Y, both without weights.
type Sides<'a> = (Chunk<'a>, Chunk<'a>);

/// The matrix X^T Y of two matrices with the same rows.
pub struct Cross {
    left_columns: usize,
    right_columns: usize,
    product: Ordered,
}

impl Cross {
    /// Returns the statistic of `left_columns` columns of X and `right_columns` columns of Y.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 columns, `LimitExceeded` for more than [`super::COLUMNS_MAX`].
    pub fn new(left_columns: usize, right_columns: usize) -> Result<Self> {
        Self::with_order(left_columns, right_columns, Order::default(), &Speed::default())
    }

    /// As [`Cross::new`], with products that are summed in this order.
    ///
    /// # Errors
    /// As [`Cross::with_speed`].
    pub fn with_order(
        left_columns: usize,
        right_columns: usize,
        order: Order,
        speed: &Speed,
    ) -> Result<Self> {
        check_columns(left_columns)?;
        check_columns(right_columns)?;
        let product = Ordered::new(Some(left_columns), right_columns, order, speed)?;
        Ok(Self { left_columns, right_columns, product })
    }

    /// As [`Cross::new`], with settings for speed.
    ///
    /// # Errors
    /// As [`Cross::new`], and `InvalidArgument` for a kernel that this processor does not support.
    pub fn with_speed(left_columns: usize, right_columns: usize, speed: &Speed) -> Result<Self> {
        Self::with_order(left_columns, right_columns, Order::default(), speed)
    }

    /// Returns the partial of each chunk, made by the threads of a pool.
    ///
    /// # Errors
    /// As [`Statistic::leaf`], with the index of the chunk.
    pub fn leaves(&self, chunks: &[Sides<'_>], threads: &ThreadPool) -> Result<Vec<Rectangle>> {
        let with_all = |sides: &Sides<'_>| self.sums(sides, Some(threads));
        leaves(self, self.left_columns * self.right_columns, chunks, threads, with_all)
    }

    fn sums(&self, (x, y): &Sides<'_>, threads: Option<&ThreadPool>) -> Result<Rectangle> {
        same_count("columns on the left", self.left_columns, x.columns())?;
        same_count("columns on the right", self.right_columns, y.columns())?;
        same_count("rows on the right, as on the left", x.rows, y.rows)?;
        if x.weights.or(y.weights).is_some() {
            return Err(Error::invalid(
                "expected chunks without weights, found weights; a cross product takes none",
            ));
        }
        x.check_complete().context(|| "on the left")?;
        y.check_complete().context(|| "on the right")?;
        for side in [x, y] {
            side.check_order(self.product.order())?;
        }
        let sums = match &self.product {
            Ordered::F64(product) => {
                product.sums(x.rows, Left::Columns(&x.parts), &y.parts, None, threads)
            }
            Ordered::F32x128(product) => {
                product.sums(x.rows, Left::Columns(&x.parts), &y.parts, None, threads)
            }
        };
        sums.map(Rectangle)
    }
}

impl Statistic for Cross {
    type Chunk<'a> = Sides<'a>;
    type Partial = Rectangle;
    type Incoming<'a> = Sums<'a>;

    fn leaf(&self, sides: &Sides<'_>) -> Result<Rectangle> {
        self.sums(sides, None)
    }

    fn partial_bytes(&self) -> usize {
        self.left_columns * self.right_columns * size_of::<f64>()
    }

    fn write(&self, partial: &Rectangle, bytes: &mut Vec<u8>) {
        triangle::write(&partial.0, bytes);
    }

    fn read<'a>(&self, bytes: &'a [u8]) -> Result<Sums<'a>> {
        Sums::read(bytes, self.left_columns * self.right_columns)
    }
}
