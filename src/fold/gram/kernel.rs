//! Which kernel multiplies, and what it is given.

use std::fmt;
use std::ops::Range;

use half::f16;

use crate::error::{Error, Result};

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::pack::{Packing, pack};
use super::plain;
#[cfg(target_arch = "x86_64")]
use super::tiles::PANEL_VECTORS;

/// A set of instructions to multiply with. All of them give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Eight numbers at a time.
    Avx512,
    /// Four numbers at a time.
    Avx2,
    /// One number at a time, on every processor.
    Scalar,
}

impl Kernel {
    /// All of them, the fastest first.
    pub const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Scalar];

    /// Those that this machine has, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| kernel.processor().is_some())
    }

    /// The kernel, if this machine has it.
    fn processor(self) -> Option<Processor> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::detect().map(Processor::Avx512),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::detect().map(Processor::Avx2),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx512 | Self::Avx2 => None,
            Self::Scalar => Some(Processor::Scalar),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avx512 => "avx512",
            Self::Avx2 => "avx2",
            Self::Scalar => "scalar",
        })
    }
}

/// One tile to be multiplied.
pub(super) struct Tile<'a> {
    /// The tile's sums, row by row of a panel's width.
    pub(super) sums: &'a mut [f64],
    /// Whether the sums start from +0, whatever there is.
    pub(super) fresh: bool,
    /// The panel of the left in which the group lies.
    pub(super) left: &'a [f64],
    /// Where in each row of the panel the group starts.
    pub(super) first_lane: usize,
    /// The panel of the right, as many rows as the left.
    pub(super) right: &'a [f64],
    /// Which vectors of the right are asked for; the sums of the others may become anything.
    pub(super) vectors: Range<usize>,
    /// What is read after this tile.
    pub(super) ahead: &'a [u8],
}

#[cfg(target_arch = "x86_64")]
impl Tile<'_> {
    /// What a kernel of so many lanes may take for granted.
    ///
    /// # Panics
    /// When it does not hold: the kernel would read or write elsewhere.
    #[inline]
    pub(super) fn check(&self, lanes: usize) {
        let width = PANEL_VECTORS * lanes;
        assert_eq!(self.sums.len(), lanes * width);
        assert_eq!(self.left.len(), self.right.len());
        assert!(self.first_lane <= width - lanes && self.vectors.end <= PANEL_VECTORS);
    }

    /// The rows, where to ask for a line with the first of them, and how many bytes further with
    /// each one after.
    ///
    /// So what is ahead arrives while the tile is multiplied. Asked for at once it would stand in the
    /// way of what the tile itself reads; asked for until the last row it would come too late. So it
    /// takes half of the rows, and the others go on to what lies behind.
    #[inline]
    pub(super) fn rows(&self, lanes: usize) -> (usize, *const u8, usize) {
        let rows = self.left.len() / (PANEL_VECTORS * lanes);
        // Where no memory is, a processor would look for it with each row.
        let start =
            if self.ahead.is_empty() { self.right.as_ptr().cast() } else { self.ahead.as_ptr() };
        (rows, start, 2 * self.ahead.len() / rows.max(1))
    }
}

/// A kernel that this machine has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Processor {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Scalar,
}

/// The scalar kernel's tiles are as large as AVX2's.
const SCALAR_LANES: usize = 4;

impl Processor {
    /// The kernel asked for, or the fastest.
    pub(super) fn choose(wanted: Option<Kernel>) -> Result<Self> {
        match wanted {
            Some(kernel) => kernel
                .processor()
                .ok_or_else(|| Error::invalid(format!("this processor has no kernel {kernel}"))),
            None => Ok(Kernel::ALL.into_iter().find_map(Kernel::processor).unwrap_or(Self::Scalar)),
        }
    }

    pub(super) fn kernel(self) -> Kernel {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Kernel::Avx512,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Kernel::Avx2,
            Self::Scalar => Kernel::Scalar,
        }
    }

    /// The numbers in a vector.
    pub(super) fn lanes(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Avx512::LANES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Avx2::LANES,
            Self::Scalar => SCALAR_LANES,
        }
    }

    /// Adds the products of a tile to its sums.
    #[inline]
    pub(super) fn multiply(self, tile: &mut Tile<'_>) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(kernel) => kernel.multiply(tile),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(kernel) => kernel.multiply(tile),
            Self::Scalar => plain::multiply(SCALAR_LANES, tile),
        }
    }

    /// Packs rows for [`Processor::multiply`].
    pub(super) fn pack(self, packing: &Packing<'_>, out: &mut [f64]) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(kernel) => kernel.pack(packing, out),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(kernel) => kernel.pack(packing, out),
            Self::Scalar => pack::<f16, SCALAR_LANES>(packing, out),
        }
    }
}
