//! The choice of the kernel, and the settings for speed.

use std::fmt;
use std::ops::Mul;

use bytemuck::Pod;
use half::f16;

use crate::error::{Error, Result};

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::pack::{Packing, pack};
use super::plain::{self, Chain};
use super::tiles::Tile;

/// A kernel, by its instruction set. All kernels give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 64 bytes at a time: eight numbers of 64 bits.
    Avx512,
    /// 32 bytes at a time: four numbers of 64 bits.
    Avx2,
    /// One number at a time, on every processor.
    Scalar,
}

impl Kernel {
    /// All kernels, the fastest first.
    pub const ALL: [Self; 3] = [Self::Avx512, Self::Avx2, Self::Scalar];

    /// Returns the kernels that this processor supports, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kernel| kernel.processor().is_some())
    }

    /// Returns the kernel's implementation, if this processor supports it.
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

/// A kernel that this processor supports.
#[derive(Clone, Copy, Debug)]
pub(super) enum Processor {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Scalar,
}

/// The scalar kernel's tiles are as large as AVX2's.
const SCALAR_BYTES: usize = 32;

impl Processor {
    /// Returns the kernel `wanted`, or by default the fastest.
    pub(super) fn choose(wanted: Option<Kernel>) -> Result<Self> {
        match wanted {
            Some(kernel) => kernel.processor().ok_or_else(|| {
                Error::invalid(format!(
                    "expected a kernel that this processor supports, found {kernel}"
                ))
            }),
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

    fn vector_bytes(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Avx512::VECTOR_BYTES,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Avx2::VECTOR_BYTES,
            Self::Scalar => SCALAR_BYTES,
        }
    }

    /// The numbers of a type in a vector.
    pub(super) fn lanes<T>(self) -> usize {
        self.vector_bytes() / size_of::<T>()
    }

    /// The columns of a group of the left: so many that the chains of a tile, of any type, fit into the
    /// registers.
    pub(super) fn group(self) -> usize {
        self.lanes::<f64>()
    }
}

/// A number that is packed, and multiplied by the kernels.
pub(super) trait Packed: Chain + Pod + Mul<Output = Self> + Send + Sync {
    /// Adds the products of a tile to its sums.
    fn multiply(processor: Processor, tile: &mut Tile<'_, Self>);

    /// Packs rows for [`Packed::multiply`].
    fn pack(processor: Processor, packing: &Packing<'_>, out: &mut [Self]);
}

macro_rules! packed {
    ($($number:ty),*) => {$(
        impl Packed for $number {
            #[inline]
            fn multiply(processor: Processor, tile: &mut Tile<'_, Self>) {
                match processor {
                    #[cfg(target_arch = "x86_64")]
                    Processor::Avx512(kernel) => kernel.multiply(tile),
                    #[cfg(target_arch = "x86_64")]
                    Processor::Avx2(kernel) => kernel.multiply(tile),
                    Processor::Scalar => {
                        plain::multiply::<_, { SCALAR_BYTES / size_of::<Self>() }>(tile);
                    }
                }
            }

            fn pack(processor: Processor, packing: &Packing<'_>, out: &mut [Self]) {
                match processor {
                    #[cfg(target_arch = "x86_64")]
                    Processor::Avx512(kernel) => kernel.pack(packing, out),
                    #[cfg(target_arch = "x86_64")]
                    Processor::Avx2(kernel) => kernel.pack(packing, out),
                    Processor::Scalar => {
                        pack::<_, f16, { SCALAR_BYTES / size_of::<Self>() }>(packing, out);
                    }
                }
            }
        }
    )*};
}

packed!(f64, f32);

/// The settings for speed; they change no bit.
#[derive(Clone, Debug)]
pub struct Speed {
    /// The kernel (default: the fastest that the processor supports).
    pub kernel: Option<Kernel>,
    /// The rows that are packed at a time; clamped to 1 to 4,096. With sums of f32x128 they are those of a
    /// chain.
    pub block_rows: usize,
    /// The columns whose packed rows stay in the second-level cache.
    pub block_columns: usize,
}

impl Default for Speed {
    fn default() -> Self {
        Self { kernel: None, block_rows: 128, block_columns: 480 }
    }
}
