//! Sums of arrays that the caller made.

use crate::bytes::{copied, reserve};
use crate::environment::in_default_environment;
use crate::error::{Error, Result};

use super::statistic::{Partial, Statistic, TryClone, canonical, same_count};

/// The most bytes of all arrays: 16 GiB.
const BYTES_MAX: usize = 1 << 34;

/// The type of an array's numbers, in which they are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 64-bit floats.
    F64,
    /// 32-bit floats.
    F32,
}

impl Width {
    fn bytes(self) -> usize {
        match self {
            Self::F64 => size_of::<f64>(),
            Self::F32 => size_of::<f32>(),
        }
    }
}

/// The sum of arrays, element by element, each in its own type.
///
/// A leaf is some arrays that the caller has computed: their bits are the caller's matter, and those of
/// the sum depend on them alone.
pub struct ArraySums {
    arrays: Vec<(usize, Width)>,
}

/// The numbers of one array.
#[derive(Clone, Debug)]
enum Numbers {
    F64(Vec<f64>),
    F32(Vec<f32>),
}

/// The sums of all arrays.
#[derive(Clone, Debug)]
pub struct Sums(Vec<Numbers>);

impl ArraySums {
    /// Returns the statistic of arrays with so many numbers each.
    ///
    /// # Errors
    /// `InvalidArgument` for no arrays, `LimitExceeded` for more than 16 GiB.
    pub fn new(arrays: Vec<(usize, Width)>) -> Result<Self> {
        if arrays.is_empty() {
            return Err(Error::invalid("expected at least one array, found none"));
        }
        let each = arrays.iter().map(|(count, width)| count.saturating_mul(width.bytes()));
        match each.fold(0_usize, usize::saturating_add) {
            0..=BYTES_MAX => Ok(Self { arrays }),
            found => Err(Error::limit(format!(
                "expected arrays of at most {BYTES_MAX} bytes in all, found {found}; fold them in \
                 several jobs"
            ))),
        }
    }

    /// Returns the numbers of each array, and their type.
    #[must_use]
    pub fn arrays(&self) -> &[(usize, Width)] {
        &self.arrays
    }

    /// Splits the bytes of all arrays into those of each.
    fn split<'a>(&self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut rest = bytes;
        let each = self.arrays.iter().map(|(count, width)| {
            let (own, after) = rest.split_at(count * width.bytes());
            rest = after;
            own
        });
        each.collect()
    }

    /// Reads the arrays from the bytes of each, and puts one NaN in place of all.
    fn of_bytes(&self, bytes: &[&[u8]]) -> Result<Sums> {
        let arrays = self.arrays.iter().zip(bytes).map(|((count, width), bytes)| match width {
            Width::F64 => {
                let mut numbers = reserve(*count)?;
                let words = bytes.as_chunks().0.iter().map(|word| f64::from_le_bytes(*word));
                numbers.extend(words.map(canonical));
                Ok(Numbers::F64(numbers))
            }
            Width::F32 => {
                let mut numbers = reserve(*count)?;
                let words = bytes.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word));
                numbers.extend(words.map(canonical_f32));
                Ok(Numbers::F32(numbers))
            }
        });
        arrays.collect::<Result<_>>().map(Sums)
    }
}

/// The only NaN that a sum of 32 bits holds.
const NAN: f32 = f32::from_bits(0x7fc0_0000);

fn canonical_f32(value: f32) -> f32 {
    if value.is_nan() { NAN } else { value }
}

impl Numbers {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::F64(numbers) => bytemuck::cast_slice(numbers),
            Self::F32(numbers) => bytemuck::cast_slice(numbers),
        }
    }
}

impl Partial for Sums {
    fn merge(&mut self, right: &Self) {
        assert_eq!(self.0.len(), right.0.len(), "partials of one statistic have the same arrays");
        in_default_environment(|| {
            for pair in self.0.iter_mut().zip(&right.0) {
                match pair {
                    (Numbers::F64(left), Numbers::F64(right)) => {
                        let pairs = left.iter_mut().zip(right);
                        pairs.for_each(|(left, right)| *left = canonical(*left + right));
                    }
                    (Numbers::F32(left), Numbers::F32(right)) => {
                        let pairs = left.iter_mut().zip(right);
                        pairs.for_each(|(left, right)| *left = canonical_f32(*left + right));
                    }
                    _ => unreachable!("partials of one statistic have arrays of the same types"),
                }
            }
        });
    }

    fn same_bits(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        self.0.len() == other.0.len() && pairs.into_iter().all(|(a, b)| a.bytes() == b.bytes())
    }
}

impl TryClone for Sums {
    fn try_clone(&self) -> Result<Self> {
        let arrays = self.0.iter().map(|numbers| match numbers {
            Numbers::F64(numbers) => copied(numbers).map(Numbers::F64),
            Numbers::F32(numbers) => copied(numbers).map(Numbers::F32),
        });
        arrays.collect::<Result<_>>().map(Self)
    }
}

impl Statistic for ArraySums {
    /// The bytes of each array, little endian.
    type Chunk<'a> = Vec<&'a [u8]>;
    type Partial = Sums;
    type Incoming<'a> = Sums;

    fn leaf(&self, chunk: &Vec<&[u8]>) -> Result<Sums> {
        same_count("arrays", self.arrays.len(), chunk.len())?;
        for ((count, width), bytes) in self.arrays.iter().zip(chunk) {
            same_count("bytes of an array", count * width.bytes(), bytes.len())?;
        }
        self.of_bytes(chunk)
    }

    fn partial_bytes(&self) -> usize {
        self.arrays.iter().map(|(count, width)| count * width.bytes()).sum()
    }

    fn write(&self, partial: &Sums, bytes: &mut Vec<u8>) {
        partial.0.iter().for_each(|numbers| bytes.extend_from_slice(numbers.bytes()));
    }

    fn read(&self, bytes: &[u8]) -> Result<Sums> {
        let (expected, found) = (self.partial_bytes(), bytes.len());
        if expected != found {
            return Err(Error::corrupt(format!(
                "expected {expected} bytes of sums, found {found}"
            )));
        }
        let each = self.split(bytes);
        let sums = self.of_bytes(&each)?;
        match sums.0.iter().zip(each).all(|(numbers, bytes)| numbers.bytes() == bytes) {
            true => Ok(sums),
            false => Err(Error::corrupt("expected one NaN only, found others among the sums")),
        }
    }
}
