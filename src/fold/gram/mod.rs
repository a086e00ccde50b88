//! Sums of products of columns: Gram matrices, weighted Gram matrices, and cross products.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod buffer;
mod cross;
mod kernel;
mod order;
mod pack;
mod plain;
mod product;
mod tiles;
mod triangle;
#[cfg(target_arch = "x86_64")]
mod vectors;

use rayon::ThreadPool;

use crate::error::{Error, Result};

use super::rows::{Rows, Values};
use super::statistic::{self, Statistic, of_chunk, same_count};
use order::Ordered;
use pack::Part;
use product::Left;

pub use cross::Cross;
pub use kernel::{Kernel, Speed};
pub use order::Order;
pub use pack::Reader;
pub use triangle::{Rectangle, Sums, Triangle};

/// The most columns: a triangle of 16 GiB.
pub const COLUMNS_MAX: usize = 1 << 16;

/// The fewest sums (a triangle of 1,024 columns) for which threads share one chunk; with fewer
/// sums, each thread has a chunk of its own.
const SHARED_SUMS: usize = triangle::length(1024);

/// The columns of a chunk of rows, side by side.
#[derive(Clone)]
pub struct Chunk<'a> {
    rows: usize,
    parts: Vec<Part<'a>>,
    weights: Option<&'a [f64]>,
    reader: Option<Reader<'a>>,
}

impl<'a> Chunk<'a> {
    /// Returns a chunk with the columns of a matrix.
    #[must_use]
    pub fn of(rows: Rows<'a>) -> Self {
        Self { rows: rows.count, parts: vec![Part::Rows(rows)], weights: None, reader: None }
    }

    /// Appends the columns of another matrix.
    ///
    /// # Errors
    /// `InvalidArgument` when the numbers of rows differ.
    pub fn and(mut self, rows: Rows<'a>) -> Result<Self> {
        same_count("rows, as in the first matrix", self.rows, rows.count)?;
        self.parts.push(Part::Rows(rows));
        Ok(self)
    }

    /// Appends a column of ones, whose sums of products are the sums of the other columns.
    #[must_use]
    pub fn and_ones(mut self) -> Self {
        self.parts.push(Part::Ones);
        self
    }

    /// Adds a weight for each row.
    ///
    /// # Errors
    /// `InvalidArgument` when the number of weights is not the number of rows.
    pub fn weighted(mut self, weights: &'a [f64]) -> Result<Self> {
        same_count("weights", self.rows, weights.len())?;
        self.weights = Some(weights);
        Ok(self)
    }

    /// Lets `reader` read the rows, too.
    #[must_use]
    pub fn read_by(self, reader: Reader<'a>) -> Self {
        Self { reader: Some(reader), ..self }
    }

    fn columns(&self) -> usize {
        self.parts.iter().map(Part::columns).sum()
    }

    /// Rejects rows that cannot be summed in an order.
    fn check_order(&self, order: Order) -> Result<()> {
        let is_wide =
            |part: &Part<'_>| matches!(part, Part::Rows(Rows { values: Values::F64(_), .. }));
        order.check(self.parts.iter().any(is_wide), self.weights.is_some())
    }

    /// Rejects NULL.
    fn check_complete(&self) -> Result<()> {
        let mut first_column = 0;
        for part in &self.parts {
            if let Part::Rows(rows) = part
                && let Some((row, column)) = rows.first_null()
            {
                return Err(Error::invalid(format!(
                    "expected a number in every cell, found NULL in row {row} of the chunk, column \
                     {}; fill it in, or leave out the column",
                    first_column + column
                )));
            }
            first_column += part.columns();
        }
        Ok(())
    }
}

/// Returns the partial of each chunk: many sums are made by all threads together, few by one
/// thread.
///
/// `with_all` is [`Statistic::leaf`] on all threads of the pool.
fn leaves<'a, S>(
    statistic: &S,
    sums: usize,
    chunks: &[S::Chunk<'a>],
    threads: &ThreadPool,
    with_all: impl Fn(&S::Chunk<'a>) -> Result<S::Partial>,
) -> Result<Vec<S::Partial>>
where
    S: Statistic<Chunk<'a>: Sync, Partial: Send> + Sync,
{
    if sums < SHARED_SUMS {
        return statistic::leaves(statistic, chunks, threads);
    }
    let chunks = chunks.iter().enumerate();
    chunks.map(|(place, chunk)| with_all(chunk).map_err(|e| of_chunk(place, e))).collect()
}

fn check_columns(columns: usize) -> Result<()> {
    match columns {
        0 => Err(Error::invalid("expected at least 1 column, found 0")),
        1..=COLUMNS_MAX => Ok(()),
        _ => Err(Error::limit(format!("expected at most {COLUMNS_MAX} columns, found {columns}"))),
    }
}

/// The Gram matrix X^T X of the columns of rows, or of weighted rows.
///
/// The page of [`crate::fold`] defines every bit of it.
pub struct Gram {
    columns: usize,
    weighted: bool,
    product: Ordered,
}

impl Gram {
    /// Returns the statistic of `columns` columns.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 columns, `LimitExceeded` for more than [`COLUMNS_MAX`].
    pub fn new(columns: usize) -> Result<Self> {
        Self::with_order(columns, Order::default(), &Speed::default())
    }

    /// Returns the statistic of `columns` columns, whose products are summed in this order.
    ///
    /// # Errors
    /// As [`Gram::with_speed`].
    pub fn with_order(columns: usize, order: Order, speed: &Speed) -> Result<Self> {
        check_columns(columns)?;
        Ok(Self { columns, weighted: false, product: Ordered::new(None, columns, order, speed)? })
    }

    /// As [`Gram::new`], with settings for speed.
    ///
    /// # Errors
    /// As [`Gram::new`], and `InvalidArgument` for a kernel that this processor does not support.
    pub fn with_speed(columns: usize, speed: &Speed) -> Result<Self> {
        Self::with_order(columns, Order::default(), speed)
    }

    /// Returns the statistic with a weight for each row.
    #[must_use]
    pub fn weighted(self) -> Self {
        Self { weighted: true, ..self }
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the order in which products are summed.
    #[must_use]
    pub fn order(&self) -> Order {
        self.product.order()
    }

    /// Returns the kernel in use.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.product.processor().kernel()
    }

    /// Whether all threads work on one chunk together in [`Gram::leaves`].
    pub(crate) fn shares_chunks(&self) -> bool {
        triangle::length(self.columns) >= SHARED_SUMS
    }

    /// Returns the partial of each chunk, made by the threads of a pool.
    ///
    /// # Errors
    /// As [`Statistic::leaf`], with the index of the chunk.
    pub fn leaves(&self, chunks: &[Chunk<'_>], threads: &ThreadPool) -> Result<Vec<Triangle>> {
        let with_all = |chunk: &Chunk<'_>| self.sums(chunk, Some(threads));
        leaves(self, triangle::length(self.columns), chunks, threads, with_all)
    }

    fn sums(&self, chunk: &Chunk<'_>, threads: Option<&ThreadPool>) -> Result<Triangle> {
        same_count("columns", self.columns, chunk.columns())?;
        chunk.check_complete()?;
        match (chunk.weights, self.weighted) {
            (Some(_), false) => {
                return Err(Error::invalid(
                    "expected a chunk without weights, found weights; make the statistic with \
                    Gram::weighted",
                ));
            }
            (None, true) => {
                return Err(Error::invalid(
                    "expected a weight for each row, found none; add them with Chunk::weighted",
                ));
            }
            _ => {}
        }
        chunk.check_order(self.order())?;
        let Chunk { rows, parts, weights, reader } = chunk;
        let sums = match &self.product {
            Ordered::F64(product) => {
                let left = weights.map_or(Left::SameAsRight, Left::Weighted);
                product.sums(*rows, left, parts, *reader, threads)
            }
            Ordered::F32x128(product) => {
                product.sums(*rows, Left::SameAsRight, parts, *reader, threads)
            }
        };
        sums.map(Triangle)
    }
}

impl Statistic for Gram {
    type Chunk<'a> = Chunk<'a>;
    type Partial = Triangle;
    type Incoming<'a> = Sums<'a>;

    fn leaf(&self, chunk: &Chunk<'_>) -> Result<Triangle> {
        self.sums(chunk, None)
    }

    fn partial_bytes(&self) -> usize {
        triangle::length(self.columns) * size_of::<f64>()
    }

    fn write(&self, partial: &Triangle, bytes: &mut Vec<u8>) {
        triangle::write(&partial.0, bytes);
    }

    fn read<'a>(&self, bytes: &'a [u8]) -> Result<Sums<'a>> {
        Sums::read(bytes, triangle::length(self.columns))
    }
}
