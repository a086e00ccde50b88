//! Rows as they were read: in place, copied, or put together from several files.

use std::borrow::Cow;

use bytemuck::Pod;
use half::{bf16, f16};

use super::Element;
use crate::bytes::reserve;
use crate::error::Result;
use crate::fold::{Rows, Values};

/// Some rows of a matrix.
pub struct Numbers<'a> {
    values: Held<'a>,
    /// Which numbers are not there; `None` when all are.
    nulls: Option<Vec<bool>>,
    count: usize,
    columns: usize,
}

enum Held<'a> {
    F64(Cow<'a, [f64]>),
    F32(Cow<'a, [f32]>),
    F16(Cow<'a, [f16]>),
    Bf16(Cow<'a, [bf16]>),
}

/// Numbers that had to be decoded, row by row.
#[derive(Default)]
pub(super) struct Cells {
    pub(super) values: Vec<f64>,
    /// Which of them are not there; `None` when all are.
    pub(super) nulls: Option<Vec<bool>>,
}

/// Rows of one file.
pub(super) enum Piece<'a> {
    /// Where they lie.
    Bytes(&'a [u8]),
    /// Numbers of 64 bits.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "only Parquet is decoded"))]
    Cells(Cells),
}

impl<'a> Numbers<'a> {
    /// The rows of `pieces`, which follow one another.
    ///
    /// # Errors
    /// `LimitExceeded` when they are to be put together, and memory is not to be had.
    pub(super) fn of(
        pieces: Vec<Piece<'a>>,
        element: Element,
        (count, columns): (usize, usize),
    ) -> Result<Self> {
        let mut nulls = None;
        let values = match (element, one_of(pieces)) {
            (Element::F64, Err(pieces)) => {
                let cells = joined(pieces)?;
                nulls = cells.nulls;
                Held::F64(cells.values.into())
            }
            // Only numbers of 64 bits are ever decoded.
            (element, Err(pieces)) => {
                let bytes = pieces.iter().filter_map(|piece| match piece {
                    Piece::Bytes(bytes) => Some(*bytes),
                    Piece::Cells(_) => None,
                });
                let mut all = reserve(bytes.clone().map(<[u8]>::len).sum())?;
                bytes.for_each(|bytes| all.extend_from_slice(bytes));
                Held::of(element, all.into())?
            }
            (element, Ok(bytes)) => Held::of(element, bytes.into())?,
        };
        Ok(Self { values, nulls, count, columns })
    }

    /// The rows that lie in memory in `pieces`, which follow one another.
    ///
    /// # Errors
    /// `LimitExceeded`, as above.
    pub(crate) fn of_bytes<const N: usize>(
        pieces: [&'a [u8]; N],
        element: Element,
        form: (usize, usize),
    ) -> Result<Self> {
        let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).map(Piece::Bytes);
        Self::of(pieces.collect(), element, form)
    }

    /// The numbers, row by row; of those that are not there, something.
    #[must_use]
    pub fn values(&self) -> Values<'_> {
        match &self.values {
            Held::F64(values) => Values::F64(values),
            Held::F32(values) => Values::F32(values),
            Held::F16(values) => Values::F16(values),
            Held::Bf16(values) => Values::Bf16(values),
        }
    }

    /// The rows as a fold takes them.
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

impl<'a> Held<'a> {
    fn of(element: Element, bytes: Cow<'a, [u8]>) -> Result<Self> {
        Ok(match element {
            Element::F64 => Self::F64(numbers(bytes)?),
            Element::F32 => Self::F32(numbers(bytes)?),
            Element::F16 => Self::F16(numbers(bytes)?),
            Element::Bf16 => Self::Bf16(numbers(bytes)?),
        })
    }
}

/// The bytes of the rows where they lie together; otherwise the pieces as they are.
fn one_of(pieces: Vec<Piece<'_>>) -> Result<&[u8], Vec<Piece<'_>>> {
    match pieces[..] {
        [] => Ok(&[]),
        [Piece::Bytes(bytes)] => Ok(bytes),
        _ => Err(pieces),
    }
}

/// Pieces of 64-bit numbers, one after the other.
fn joined(mut pieces: Vec<Piece<'_>>) -> Result<Cells> {
    // One alone stays where it is.
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

/// The numbers that bytes are, one after the other.
fn each_of<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// Bytes as numbers: in place where their address allows it.
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
