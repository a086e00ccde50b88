//! Brings rows into the order in which a kernel reads them.
//!
//! ```text
//! for each panel of WIDTH columns: for each row: WIDTH numbers, widened to 64 bits
//! ```
//!
//! The rows are taken a few at a time, so that the processor follows as many streams as it can.

// Compiled once for each kernel's instruction set, which only an inlined function is.
#![allow(clippy::inline_always, reason = "see above")]

use std::ops::Range;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::fold::rows::{Rows, Values};

/// The rows that are read side by side.
const STREAMS: usize = 8;

/// The widest panel.
const WIDTH_MAX: usize = 24;

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
}

/// What is to be packed: some panels of some rows.
#[derive(Clone)]
pub(super) struct Packing<'a> {
    /// All the columns of the side, part by part.
    pub(super) parts: &'a [Part<'a>],
    pub(super) rows: Range<usize>,
    pub(super) panels: Range<usize>,
    /// From one panel to the next.
    pub(super) panel_values: usize,
}

/// Packs into `out`, where the first of the panels starts. Columns past the last stay as they are.
#[inline(always)]
pub(super) fn pack<const WIDTH: usize>(packing: &Packing<'_>, out: &mut [f64]) {
    let mut first_column = 0;
    for part in packing.parts {
        match part {
            Part::Ones => pack_part::<One, WIDTH>(packing, &Source::ones(first_column), out),
            Part::Rows(rows) => {
                let Rows { columns, stride, .. } = *rows;
                macro_rules! of {
                    ($values:expr) => {
                        pack_part::<_, WIDTH>(
                            packing,
                            &Source { values: $values, first_column, columns, stride },
                            out,
                        )
                    };
                }
                match rows.values {
                    Values::F64(values) => of!(values),
                    Values::F32(values) => of!(values),
                    Values::F16(values) => of!(values),
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
fn pack_part<T: Element, const WIDTH: usize>(
    packing: &Packing<'_>,
    source: &Source<'_, T>,
    out: &mut [f64],
) {
    let Packing { rows, panels, panel_values, .. } = packing;
    for first in (0..rows.len()).step_by(STREAMS) {
        let some = first..(first + STREAMS).min(rows.len());
        for panel in panels.clone() {
            let start = source.first_column.max(panel * WIDTH);
            let end = (source.first_column + source.columns).min((panel + 1) * WIDTH);
            if start >= end {
                continue;
            }
            let before = (panel - panels.start) * panel_values + start - panel * WIDTH;
            for row in some.clone() {
                let from = (rows.start + row) * source.stride + start - source.first_column;
                let from = &source.values[from..from + (end - start)];
                let to = &mut out[before + row * WIDTH..][..end - start];
                // Whole panels have a length that the compiler knows.
                match (from.as_array::<WIDTH>(), to.as_mut_array::<WIDTH>()) {
                    (Some(from), Some(to)) => T::widen(from, to),
                    _ => T::widen(from, to),
                }
            }
        }
    }
}

/// A number that widens to 64 bits as it is.
trait Element: Copy {
    /// Widens as many as there are, at most `WIDTH_MAX`.
    fn widen(from: &[Self], to: &mut [f64]);
}

/// The number of the column of ones.
#[derive(Clone, Copy)]
struct One;

impl Element for One {
    #[inline(always)]
    fn widen(_: &[Self], to: &mut [f64]) {
        to.fill(1.0);
    }
}

impl Element for f64 {
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f64]) {
        to.copy_from_slice(from);
    }
}

impl Element for f32 {
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f64]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = f64::from(*from);
        }
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f64]) {
        let mut singles = [0.0; WIDTH_MAX];
        let singles = &mut singles[..from.len()];
        from.convert_to_f32_slice(singles);
        f32::widen(singles, to);
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f64]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = f64::from(f32::from_bits(u32::from(from.to_bits()) << 16));
        }
    }
}
