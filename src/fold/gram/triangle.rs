//! The partials: a packed triangle and a whole rectangle.

use crate::bytes::reserve;
use crate::error::{Error, Result};
use crate::fold::control::in_default_environment;
use crate::fold::node::Node;
use crate::fold::statistic::{self, Arrival, Partial, add_each, canonical};

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

        impl Arrival<$partial> for Sums<'_> {
            fn has_bits_of(&self, held: &$partial) -> bool {
                self.0.as_flattened() == bytemuck::cast_slice::<_, u8>(&held.0)
            }

            fn join(
                self,
                mut siblings: Vec<(Node, $partial)>,
                spent: &mut Vec<$partial>,
            ) -> Result<$partial> {
                self.add_to(siblings.iter_mut().map(|(_, sibling)| &mut sibling.0));
                let joined = siblings.pop().map(|(_, whole)| whole);
                spent.extend(siblings.into_iter().map(|(_, sibling)| sibling));
                match joined {
                    Some(whole) => Ok(whole),
                    None => self.alone(spent.pop().map(|spent| spent.0)).map($partial),
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

/// How many numbers are worked on while they are near.
const PIECE_VALUES: usize = 1024;

/// The bytes of sums, none of which is a NaN that no sum becomes.
pub struct Sums<'a>(&'a [[u8; size_of::<f64>()]]);

impl<'a> Sums<'a> {
    /// `count` sums.
    pub(super) fn read(bytes: &'a [u8], count: usize) -> Result<Self> {
        if bytes.len() != count * size_of::<f64>() {
            let (found, wanted) = (bytes.len(), count * size_of::<f64>());
            return Err(Error::corrupt(format!("expected {wanted} bytes of sums, found {found}")));
        }
        let sums = Self(bytes.as_chunks().0);
        for (piece, start) in sums.0.chunks(PIECE_VALUES).zip((0..).step_by(PIECE_VALUES)) {
            // Without a way out in the middle, so that a compiler compares many at a time.
            if values(piece).fold(false, |any, value| any | value.is_nan())
                && let Some(at) = values(piece).position(|v| canonical(v).to_bits() != v.to_bits())
            {
                let at = start + at;
                return Err(Error::corrupt(format!("sum {at} is a NaN that no sum becomes")));
            }
        }
        Ok(sums)
    }

    /// Adds them to the first of `siblings`, what that becomes to the next, and so on: a piece all the
    /// way up before the next one, so that each is read once. Sums do not tell left from right.
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

    /// They in memory of their own, or in that of others.
    fn alone(&self, spent: Option<Vec<f64>>) -> Result<Vec<f64>> {
        let mut sums = spent.map_or_else(|| reserve(self.0.len()), Ok)?;
        sums.clear();
        sums.extend(values(self.0));
        Ok(sums)
    }
}

fn values(bytes: &[[u8; size_of::<f64>()]]) -> impl Iterator<Item = f64> {
    bytes.iter().map(|bytes| f64::from_le_bytes(*bytes))
}
