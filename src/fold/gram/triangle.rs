//! The partials: a packed triangle and a whole rectangle.

use crate::bytes::reserve;
use crate::error::{Context, Error, Result};
use crate::fold::statistic::{self, Partial, canonical};

/// The sums of products of each column with itself and those after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Triangle(pub(super) Vec<f64>);

/// The sums of products of each left column with each right one.
#[derive(Clone, Debug, PartialEq)]
pub struct Rectangle(pub(super) Vec<f64>);

/// How many sums the triangle of `columns` columns has.
pub(super) const fn length(columns: usize) -> usize {
    columns * (columns + 1) / 2
}

impl Triangle {
    /// The sums, row by row, each row from the diagonal on.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

impl Rectangle {
    /// The sums, row by row.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

impl Partial for Triangle {
    fn merge(&mut self, right: &Self) {
        statistic::add(&mut self.0, &right.0);
    }

    fn same_bits(&self, other: &Self) -> bool {
        statistic::same_bits(&self.0, &other.0)
    }
}

impl Partial for Rectangle {
    fn merge(&mut self, right: &Self) {
        statistic::add(&mut self.0, &right.0);
    }

    fn same_bits(&self, other: &Self) -> bool {
        statistic::same_bits(&self.0, &other.0)
    }
}

/// Appends the numbers, little endian.
pub(super) fn write(values: &[f64], bytes: &mut Vec<u8>) {
    // The crate is for little-endian machines only; `bytes` sees to that.
    bytes.extend_from_slice(bytemuck::cast_slice(values));
}

/// How many numbers are looked through while they are still near.
const PIECE_VALUES: usize = 1024;

/// `count` numbers from their bytes.
pub(super) fn decode(bytes: &[u8], count: usize) -> Result<Vec<f64>> {
    if bytes.len() != count * size_of::<f64>() {
        let (found, wanted) = (bytes.len(), count * size_of::<f64>());
        return Err(Error::corrupt(format!("expected {wanted} bytes of sums, found {found}")));
    }
    let mut values = reserve(count).context(|| format!("{count} sums of products"))?;
    for piece in bytes.as_chunks().0.chunks(PIECE_VALUES) {
        let start = values.len();
        values.extend(piece.iter().map(|bytes| f64::from_le_bytes(*bytes)));
        let piece = &values[start..];
        // Without a way out in the middle, so that a compiler compares many at a time.
        if piece.iter().fold(false, |any, value| any | value.is_nan())
            && let Some(at) = piece.iter().position(|v| canonical(*v).to_bits() != v.to_bits())
        {
            let at = start + at;
            return Err(Error::corrupt(format!("sum {at} is a NaN that no sum becomes")));
        }
    }
    Ok(values)
}
