//! Packs rows into the order in which a kernel reads them.
//!
//! ```text
//! for each panel of WIDTH columns: for each row: WIDTH numbers, widened to those of the chains
//! ```
//!
//! A few rows are read side by side, as many streams as a processor prefetches.

// Compiled once for each kernel's instruction set, which only an inlined function is.
#![allow(clippy::inline_always, reason = "see above")]

use std::ops::Range;

use bytemuck::AnyBitPattern;
use half::{bf16, f16};

use crate::fold::rows::{Rows, Values};

use super::tiles::PANEL_VECTORS;

/// Reads the bytes of the rows of a chunk, block by block in their order, each just before it is summed
/// and while it is in the nearest cache.
pub type Reader<'a> = &'a (dyn Fn(&[u8]) + Sync);

/// The rows that are read side by side.
const STREAMS: usize = 8;

/// Columns of a side: those of a matrix, or one of ones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// A matrix.
    Rows(Rows<'a>),
    /// The column that makes a Gram matrix of sums as well.
    Ones,
}

impl Part<'_> {
    pub(super) fn columns(&self) -> usize {
        match self {
            Self::Rows(rows) => rows.columns,
            Self::Ones => 1,
        }
    }

    /// Returns the bytes of some rows, or nothing if the rows are not contiguous.
    pub(super) fn bytes(&self, rows: Range<usize>) -> &[u8] {
        match self {
            Self::Rows(Rows { values, columns, stride, .. }) if columns == stride => {
                let part = rows.start * stride..rows.end * stride;
                match values {
                    Values::F64(values) => bytemuck::cast_slice(&values[part]),
                    Values::F32(values) => bytemuck::cast_slice(&values[part]),
                    Values::F16(values) => bytemuck::cast_slice(&values[part]),
                    Values::Bf16(values) => bytemuck::cast_slice(&values[part]),
                }
            }
            _ => &[],
        }
    }
}

/// The work of a packer: some panels of some rows.
#[derive(Clone)]
pub(super) struct Packing<'a> {
    /// All the columns of the side, part by part.
    pub(super) parts: &'a [Part<'a>],
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
    /// The distance from one panel to the next.
    pub(super) panel_values: usize,
}

/// Packs into `out`, which starts with the first of the panels. Columns after the last stay
/// unchanged.
///
/// `Half` is binary16 as the kernel widens it.
#[inline(always)]
pub(super) fn pack<T: From<f32>, Half, const LANES: usize>(packing: &Packing<'_>, out: &mut [T])
where
    Half: Element<T, LANES> + AnyBitPattern,
    f64: Element<T, LANES>,
{
    let mut first_column = 0;
    for part in packing.parts {
        match part {
            Part::Ones => pack_part::<_, One, LANES>(packing, &Source::ones(first_column), out),
            Part::Rows(rows) => {
                let Rows { columns, stride, .. } = *rows;
                macro_rules! of {
                    ($values:expr) => {
                        pack_part::<_, _, LANES>(
                            packing,
                            &Source { values: $values, first_column, columns, stride },
                            out,
                        )
                    };
                }
                match rows.values {
                    Values::F64(values) => of!(values),
                    Values::F32(values) => of!(values),
                    Values::F16(values) => of!(bytemuck::cast_slice::<_, Half>(values)),
                    Values::Bf16(values) => of!(values),
                }
            }
        }
        first_column += part.columns();
    }
}

/// A part with its type, and where in the side it stands.
struct Source<'a, T> {
    values: &'a [T],
    first_column: usize,
    columns: usize,
    stride: usize,
}

impl Source<'static, One> {
    fn ones(first_column: usize) -> Self {
        Self { values: &[One], first_column, columns: 1, stride: 0 }
    }
}

#[inline(always)]
fn pack_part<T, E: Element<T, LANES>, const LANES: usize>(
    packing: &Packing<'_>,
    source: &Source<'_, E>,
    out: &mut [T],
) {
    let Packing { rows, panels, panel_values, .. } = packing;
    let width = PANEL_VECTORS * LANES;
    for first in (0..rows.len()).step_by(STREAMS) {
        let some = first..(first + STREAMS).min(rows.len());
        for panel in panels.clone() {
            let start = source.first_column.max(panel * width);
            let end = (source.first_column + source.columns).min((panel + 1) * width);
            if start >= end {
                continue;
            }
            let before = (panel - panels.start) * panel_values + start - panel * width;
            for row in some.clone() {
                let from = (rows.start + row) * source.stride + start - source.first_column;
                let from = &source.values[from..from + (end - start)];
                let to = &mut out[before + row * width..][..end - start];
                widen(from, to);
            }
        }
    }
}

/// Widens at most a panel's width of numbers, a vector at a time.
#[inline(always)]
fn widen<T, E: Element<T, LANES>, const LANES: usize>(from: &[E], to: &mut [T]) {
    let (vectors, rest) = from.as_chunks::<LANES>();
    let (to_vectors, to_rest) = to.as_chunks_mut::<LANES>();
    // A fixed loop: a loop over the slice would be compiled to a call.
    for v in 0..PANEL_VECTORS {
        if let (Some(from), Some(to)) = (vectors.get(v), to_vectors.get_mut(v)) {
            *to = E::widen_vector(from);
        }
    }
    for (from, to) in rest.iter().zip(to_rest) {
        *to = from.widen();
    }
}

/// A number that widens exactly to those of the chains.
pub(super) trait Element<T, const LANES: usize>: Copy {
    fn widen(self) -> T;

    /// [`Element::widen`] for the numbers of a vector.
    #[inline(always)]
    fn widen_vector(vector: &[Self; LANES]) -> [T; LANES] {
        vector.map(Self::widen)
    }
}

/// The number of the column of ones.
#[derive(Clone, Copy)]
struct One;

impl<T: From<f32>, const LANES: usize> Element<T, LANES> for One {
    #[inline(always)]
    fn widen(self) -> T {
        1.0.into()
    }
}

impl<const LANES: usize> Element<f64, LANES> for f64 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
}

/// Never called, since it may round: [`super::Order::check`] has rejected such rows.
impl<const LANES: usize> Element<f32, LANES> for f64 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self as f32
    }
}

impl<T: From<f32>, const LANES: usize> Element<T, LANES> for f32 {
    #[inline(always)]
    fn widen(self) -> T {
        self.into()
    }
}

impl<T: From<f32>, const LANES: usize> Element<T, LANES> for f16 {
    #[inline(always)]
    fn widen(self) -> T {
        self.to_f32().into()
    }
}

impl<T: From<f32>, const LANES: usize> Element<T, LANES> for bf16 {
    #[inline(always)]
    fn widen(self) -> T {
        f32::from_bits(u32::from(self.to_bits()) << 16).into()
    }
}
