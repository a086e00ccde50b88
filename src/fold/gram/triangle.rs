//! The partials of products: a packed triangle and a rectangle.

use crate::bytes::{copied, reserve};
use crate::environment::in_default_environment;
use crate::error::{Context, Error, Result};
use crate::fold::node::Node;
use crate::fold::statistic::{self, Incoming, Partial, TryClone, add_each, canonical};

/// The sums of products of each column with itself and those after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Triangle(pub(super) Vec<f64>);

/// The sums of products of each left column with each right one.
#[derive(Clone, Debug, PartialEq)]
pub struct Rectangle(pub(super) Vec<f64>);

/// The rows that are unfolded together, and the numbers of each at a time: one cache line.
const BAND_ROWS: usize = 64;
const LINE_VALUES: usize = 8;

/// Returns the number of sums in the triangle of `columns` columns.
pub(super) const fn length(columns: usize) -> usize {
    columns * (columns + 1) / 2
}

impl Triangle {
    /// Returns the sums, row by row, each row from the diagonal on.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }

    /// Returns the number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        (8 * self.0.len() + 1).isqrt().div_ceil(2) - 1
    }

    /// Returns the sums of products of each column with itself.
    pub fn diagonal(&self) -> impl Iterator<Item = f64> {
        let columns = self.columns();
        (0..columns).map(move |column| self.row(columns, column)[0])
    }

    /// Writes rows of the full symmetric matrix to `out`: from row `first` on, as many as `out`
    /// holds.
    ///
    /// # Panics
    /// When `out` holds more rows than there are, or a part of a row.
    pub fn unfold(&self, first: usize, out: &mut [f64]) {
        let columns = self.columns();
        assert!(out.len().is_multiple_of(columns), "whole rows of {columns} numbers");
        let bands = out.chunks_mut(BAND_ROWS * columns);
        for (band, first) in bands.zip((first..).step_by(BAND_ROWS)) {
            let mut rows: Vec<_> = (first..).zip(band.chunks_exact_mut(columns)).collect();
            for (row, out) in &mut rows {
                out[*row..].copy_from_slice(self.row(columns, *row));
            }
            // Below the diagonal, a row is a column of the rows above. One cache line of each of
            // these makes one cache line of each row of the band.
            for start in (0..first + rows.len()).step_by(LINE_VALUES) {
                let end = columns.min(start + LINE_VALUES);
                let above: Vec<_> = (start..end).map(|low| (low, self.row(columns, low))).collect();
                for (row, out) in &mut rows {
                    for (low, sums) in above.iter().take_while(|(low, _)| low < row) {
                        out[*low] = sums[*row - low];
                    }
                }
            }
        }
    }

    /// Returns the sums of products of a column with itself and those after it.
    fn row(&self, columns: usize, row: usize) -> &[f64] {
        &self.0[length(columns) - length(columns - row)..][..columns - row]
    }
}

impl Rectangle {
    /// Returns the sums, row by row.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

macro_rules! of_sums {
    ($($partial:ident),*) => {$(
        impl Partial for $partial {
            fn merge(&mut self, right: &Self) {
                statistic::add(&mut self.0, &right.0);
            }

            fn same_bits(&self, other: &Self) -> bool {
                statistic::same_bits(&self.0, &other.0)
            }
        }

        impl TryClone for $partial {
            fn try_clone(&self) -> Result<Self> {
                copied(&self.0).map(Self)
            }
        }

        impl Incoming<$partial> for Sums<'_> {
            fn has_bits_of(&self, present: &$partial) -> bool {
                self.0.as_flattened() == bytemuck::cast_slice::<_, u8>(&present.0)
            }

            fn join(
                self,
                mut siblings: Vec<(Node, $partial)>,
                unused: &mut Vec<$partial>,
            ) -> Result<$partial> {
                self.add_to(siblings.iter_mut().map(|(_, sibling)| &mut sibling.0));
                let joined = siblings.pop().map(|(_, whole)| whole);
                unused.extend(siblings.into_iter().map(|(_, sibling)| sibling));
                match joined {
                    Some(whole) => Ok(whole),
                    None => self.to_partial(unused.pop().map(|partial| partial.0)).map($partial),
                }
            }
        }
    )*};
}

of_sums!(Triangle, Rectangle);

/// Appends the numbers, little endian.
pub(super) fn write(values: &[f64], bytes: &mut Vec<u8>) {
    // The crate is for little-endian machines only; `bytes` sees to that.
    bytes.extend_from_slice(bytemuck::cast_slice(values));
}

/// The numbers of one piece: a piece stays in the first-level cache.
const PIECE_VALUES: usize = 1024;

/// The checked bytes of sums: every NaN is the canonical one.
pub struct Sums<'a>(&'a [[u8; size_of::<f64>()]]);

impl<'a> Sums<'a> {
    /// Checks the bytes of `count` sums.
    pub(super) fn read(bytes: &'a [u8], count: usize) -> Result<Self> {
        if bytes.len() != count * size_of::<f64>() {
            let (found, wanted) = (bytes.len(), count * size_of::<f64>());
            return Err(Error::corrupt(format!("expected {wanted} bytes of sums, found {found}")));
        }
        let sums = Self(bytes.as_chunks().0);
        for (piece, start) in sums.0.chunks(PIECE_VALUES).zip((0..).step_by(PIECE_VALUES)) {
            // Without an early exit, so that the compiler vectorizes the loop.
            if values(piece).fold(false, |any, value| any | value.is_nan())
                && let Some(at) = values(piece).position(|v| canonical(v).to_bits() != v.to_bits())
            {
                let at = start + at;
                return Err(Error::corrupt(format!(
                    "sum {at} is a NaN with bits that no fold writes"
                )));
            }
        }
        Ok(sums)
    }

    /// Adds the sums to the first of `siblings`, the result to the next, and so on. Each piece goes
    /// all the way up before the next piece, so that it is read once. Addition commutes: left and
    /// right do not matter.
    fn add_to<'s>(&self, siblings: impl Iterator<Item = &'s mut Vec<f64>>) {
        let mut siblings: Vec<_> = siblings.map(|sums| sums.chunks_mut(PIECE_VALUES)).collect();
        in_default_environment(|| {
            for piece in self.0.chunks(PIECE_VALUES) {
                let mut below: Option<&[f64]> = None;
                for sums in siblings.iter_mut().filter_map(Iterator::next) {
                    match below {
                        None => add_each(sums, values(piece)),
                        Some(below) => add_each(sums, below.iter().copied()),
                    }
                    below = Some(sums);
                }
            }
        });
    }

    /// Returns the sums as a partial, in the memory of `unused` if given.
    fn to_partial(&self, unused: Option<Vec<f64>>) -> Result<Vec<f64>> {
        let room = unused.map_or_else(|| reserve(self.0.len()), Ok);
        let mut sums = room.context(|| format!("{} sums of products", self.0.len()))?;
        sums.clear();
        sums.extend(values(self.0));
        Ok(sums)
    }
}

fn values(bytes: &[[u8; size_of::<f64>()]]) -> impl Iterator<Item = f64> {
    bytes.iter().map(|bytes| f64::from_le_bytes(*bytes))
}
