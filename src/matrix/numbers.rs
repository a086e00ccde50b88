//! Rows that were read: borrowed from a map, copied, or joined from several files.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use half::{bf16, f16};
use twox_hash::{XxHash3_128, xxhash3_128};

use super::Element;
use crate::bytes::{Digest, reserve};
use crate::error::Result;
use crate::fold::{Rows, Values};

/// Some rows of a matrix.
pub struct Numbers<'a> {
    values: TypedValues<'a>,
    /// Which cells are NULL; `None` if none is.
    nulls: Option<Vec<bool>>,
    count: usize,
    columns: usize,
}

/// The digest of rows without NULLs whose bytes arrive block by block, as [`Numbers::digest`] has it.
///
/// The only user of the streaming hasher: a second one elsewhere made its code almost three times slower.
#[derive(Default)]
pub(crate) struct RowsHasher(Mutex<xxhash3_128::Hasher>);

impl RowsHasher {
    pub(crate) fn add(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes);
    }

    pub(crate) fn finish(&self) -> Digest {
        let hasher = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Digest::of(&hasher.finish_128().to_le_bytes())
    }
}

/// Values of one element type, borrowed or owned.
enum TypedValues<'a> {
    F64(Cow<'a, [f64]>),
    F32(Cow<'a, [f32]>),
    F16(Cow<'a, [f16]>),
    Bf16(Cow<'a, [bf16]>),
}

/// Decoded numbers, row by row.
#[derive(Default)]
pub(super) struct Cells {
    pub(super) values: Vec<f64>,
    /// Which of them are NULL; `None` if none is.
    pub(super) nulls: Option<Vec<bool>>,
}

/// Rows of one file.
pub(super) enum Piece<'a> {
    /// The bytes of the rows, in a map or another buffer.
    Bytes(&'a [u8]),
    /// Decoded 64-bit floats.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "only Parquet is decoded"))]
    Cells(Cells),
}

impl<'a> Numbers<'a> {
    /// Joins `pieces`, in their order.
    ///
    /// # Errors
    /// `LimitExceeded` when they must be copied and memory runs out.
    pub(super) fn of(
        pieces: Vec<Piece<'a>>,
        element: Element,
        (count, columns): (usize, usize),
    ) -> Result<Self> {
        let mut nulls = None;
        let values = match (element, as_one(pieces)) {
            (Element::F64, Err(pieces)) => {
                let cells = joined(pieces)?;
                nulls = cells.nulls;
                TypedValues::F64(cells.values.into())
            }
            // Only 64-bit floats are ever decoded.
            (element, Err(pieces)) => {
                let bytes = pieces.iter().filter_map(|piece| match piece {
                    Piece::Bytes(bytes) => Some(*bytes),
                    Piece::Cells(_) => None,
                });
                let mut all = reserve(bytes.clone().map(<[u8]>::len).sum())?;
                bytes.for_each(|bytes| all.extend_from_slice(bytes));
                TypedValues::of(element, all.into())?
            }
            (element, Ok(bytes)) => TypedValues::of(element, bytes.into())?,
        };
        Ok(Self { values, nulls, count, columns })
    }

    /// Joins rows in memory, in the order of `pieces`.
    ///
    /// # Errors
    /// `LimitExceeded` when they must be copied and memory runs out.
    pub fn of_bytes<const N: usize>(
        pieces: [&'a [u8]; N],
        element: Element,
        form: (usize, usize),
    ) -> Result<Self> {
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).map(Piece::Bytes);
        Self::of(pieces.collect(), element, form)
    }

    /// Returns the numbers, row by row; the value of a NULL cell is arbitrary.
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        match &self.values {
            TypedValues::F64(values) => Values::F64(values),
            TypedValues::F32(values) => Values::F32(values),
            TypedValues::F16(values) => Values::F16(values),
            TypedValues::Bf16(values) => Values::Bf16(values),
        }
    }

    /// Returns the digest of the rows.
    ///
    /// # Cost
    /// XXH3 reads the numbers at the speed of memory, many times that of BLAKE3; it tells changed rows
    /// apart, and does not stop somebody who looks for rows of the same digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let hash = |bytes| XxHash3_128::oneshot(bytes).to_le_bytes();
        match (&self.nulls, &self.values) {
            (Some(nulls), TypedValues::F64(values)) if nulls.contains(&true) => {
                // The value of a NULL cell is arbitrary.
                let known = values.iter().zip(nulls);
                let known: Vec<f64> =
                    known.map(|(value, is_null)| if *is_null { 0.0 } else { *value }).collect();
                let marks: Vec<u8> = nulls.iter().map(|&is_null| u8::from(is_null)).collect();
                Digest::of(&[hash(bytemuck::cast_slice(&known)), hash(&marks)].concat())
            }
            _ => Digest::of(&hash(self.bytes())),
        }
    }

    /// Returns the numbers as their bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self.values() {
            Values::F64(values) => bytemuck::cast_slice(values),
            Values::F32(values) => bytemuck::cast_slice(values),
            Values::F16(values) => bytemuck::cast_slice(values),
            Values::Bf16(values) => bytemuck::cast_slice(values),
        }
    }

    /// Returns the rows in the form that a statistic takes.
    ///
    /// # Errors
    /// Those of [`Rows::new`].
    pub fn rows(&self) -> Result<Rows<'_>> {
        let rows = Rows::new(self.values(), self.count, self.columns, self.columns)?;
        match &self.nulls {
            None => Ok(rows),
            Some(nulls) => rows.with_nulls(nulls),
        }
    }
}

impl<'a> TypedValues<'a> {
    fn of(element: Element, bytes: Cow<'a, [u8]>) -> Result<Self> {
        Ok(match element {
            Element::F64 => Self::F64(numbers(bytes)?),
            Element::F32 => Self::F32(numbers(bytes)?),
            Element::F16 => Self::F16(numbers(bytes)?),
            Element::Bf16 => Self::Bf16(numbers(bytes)?),
        })
    }
}

/// Returns the bytes of the only piece, if it is not decoded; otherwise the pieces.
fn as_one(pieces: Vec<Piece<'_>>) -> Result<&[u8], Vec<Piece<'_>>> {
    match pieces[..] {
        [] => Ok(&[]),
        [Piece::Bytes(bytes)] => Ok(bytes),
        _ => Err(pieces),
    }
}

/// Joins pieces of 64-bit floats.
fn joined(mut pieces: Vec<Piece<'_>>) -> Result<Cells> {
    // A single piece is not copied.
    if let [Piece::Cells(cells)] = &mut pieces[..] {
        return Ok(std::mem::take(cells));
    }
    let count = pieces.iter().map(|piece| match piece {
        Piece::Bytes(bytes) => bytes.len() / size_of::<f64>(),
        Piece::Cells(cells) => cells.values.len(),
    });
    let count = count.sum();
    let has_nulls = |piece: &Piece<'_>| matches!(piece, Piece::Cells(Cells { nulls: Some(_), .. }));
    let nulls = pieces.iter().any(has_nulls).then(|| reserve(count)).transpose()?;
    let mut all = Cells { values: reserve(count)?, nulls };
    for piece in pieces {
        let marks = match piece {
            Piece::Bytes(bytes) => {
                all.values.extend(each_of::<f64>(bytes));
                None
            }
            Piece::Cells(cells) => {
                all.values.extend(cells.values);
                cells.nulls
            }
        };
        if let Some(nulls) = &mut all.nulls {
            nulls.extend(marks.into_iter().flatten());
            nulls.resize(all.values.len(), false);
        }
    }
    Ok(all)
}

/// Reads numbers of one type from bytes at any address.
fn each_of<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// Returns bytes as numbers, without a copy if they are aligned.
fn numbers<T: Pod>(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, [T]>> {
    if let Cow::Borrowed(bytes) = bytes
        && let Ok(numbers) = bytemuck::try_cast_slice(bytes)
    {
        return Ok(Cow::Borrowed(numbers));
    }
    let mut numbers = reserve(bytes.len() / size_of::<T>())?;
    numbers.extend(each_of::<T>(&bytes));
    Ok(Cow::Owned(numbers))
}
