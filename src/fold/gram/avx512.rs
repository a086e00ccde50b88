//! The kernel for AVX-512: a tile of 8 x 24 sums, all of them in registers.
//!
//! It computes what `plain` defines, with these differences:
//!
//! - Eight sums of a row lie in one register, 24 registers in all. A lane belongs to one column, and
//!   a row's number is broadcast to all lanes; so every sum is its own chain over the rows.
//! - A tile of fewer than three vectors has an instance of its own, which holds 16 or 8 sums a row:
//!   the diagonal and the last columns need no more.
//! - The data after this tile are prefetched, a cache line every few rows.
#![expect(unsafe_code, reason = "vectors of eight numbers; see the reasons there")]

use std::arch::x86_64::{
    __m512d, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_cvtph_ps, _mm512_cvtps_pd,
    _mm512_fmadd_pd, _mm512_loadu_pd, _mm512_set1_pd, _mm512_setzero_pd, _mm512_storeu_pd,
};

use bytemuck::AnyBitPattern;
use half::f16;

use super::pack::{Element, Packing, pack};
use super::tiles::PANEL_VECTORS;
use super::tiles::Tile;

/// A processor that has AVX-512.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

const LANES: usize = Avx512::LANES;
const WIDTH: usize = PANEL_VECTORS * LANES;

#[expect(clippy::unused_self, reason = "that there is one is the proof")]
impl Avx512 {
    pub(super) const LANES: usize = 8;

    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    #[inline]
    pub(super) fn multiply(self, tile: &mut Tile<'_>) {
        tile.check(LANES);
        // SAFETY: `self` is only made where the processor has the instructions. The numbers are
        // within the bounds that `multiply` asks for, as `Tile::check` made sure.
        unsafe {
            match tile.vectors.len() {
                1 => multiply::<1>(tile),
                2 => multiply::<2>(tile),
                3 => multiply::<3>(tile),
                _ => {}
            }
        }
    }

    pub(super) fn pack(self, packing: &Packing<'_>, out: &mut [f64]) {
        #[target_feature(enable = "avx512f")]
        fn with_avx512(packing: &Packing<'_>, out: &mut [f64]) {
            pack::<Half, LANES>(packing, out);
        }
        // SAFETY: `self` is only made where the processor has the instructions.
        unsafe { with_avx512(packing, out) }
    }
}

/// A binary16, of which the processor widens a vector at a time.
#[derive(Clone, Copy, AnyBitPattern)]
#[repr(transparent)]
struct Half(f16);

impl Element<LANES> for Half {
    #[inline]
    fn widen(self) -> f64 {
        self.0.to_f64()
    }

    #[expect(clippy::inline_always, reason = "only where it is inlined are its vectors known")]
    #[inline(always)]
    fn widen_vector(vector: &[Self; LANES]) -> [f64; LANES] {
        let mut wide = [0.0; LANES];
        // SAFETY: Only `Avx512::pack` packs this type, where the processor has the instructions,
        // which read and write one vector.
        unsafe {
            let halves = _mm_loadu_si128(vector.as_ptr().cast());
            _mm512_storeu_pd(wide.as_mut_ptr(), _mm512_cvtps_pd(_mm256_cvtph_ps(halves)));
        }
        wide
    }
}

/// # Safety
/// - `tile.sums` holds `LANES` rows of `WIDTH`;
/// - `tile.left` and `tile.right` hold the same number of rows of `WIDTH`;
/// - `tile.first_lane + LANES <= WIDTH`, and `VECTORS` vectors from `tile.vectors.start` on are
///   within `WIDTH`.
#[target_feature(enable = "avx512f")]
unsafe fn multiply<const VECTORS: usize>(tile: &mut Tile<'_>) {
    let first_column = tile.vectors.start * LANES;
    // SAFETY: The vectors start within a row, by the function's terms.
    let in_memory = unsafe { tile.sums.as_mut_ptr().add(first_column) };
    let mut sums = [[_mm512_setzero_pd(); VECTORS]; LANES];
    if !tile.fresh {
        for (i, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: Row `i` and vector `v` are within the tile, by the function's terms.
                *sum = unsafe { _mm512_loadu_pd(in_memory.add(i * WIDTH + v * LANES)) };
            }
        }
    }
    // SAFETY: The group and the vectors are within a row, and both sides have as many rows, by the
    // function's terms.
    unsafe {
        let left = tile.left.as_ptr().add(tile.first_lane);
        let right = tile.right.as_ptr().add(first_column);
        chain(&mut sums, left, right, tile.rows(LANES));
    }
    for (i, sums) in sums.into_iter().enumerate() {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: Row `i` and vector `v` are within the tile, by the function's terms.
            unsafe { _mm512_storeu_pd(in_memory.add(i * WIDTH + v * LANES), sum) };
        }
    }
}

/// # Safety
/// `left` and `right` point into the first of `rows` rows of `WIDTH`, with a group or `VECTORS`
/// vectors between there and the row's end.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn chain<const VECTORS: usize>(
    sums: &mut [[__m512d; VECTORS]; LANES],
    mut left: *const f64,
    mut right: *const f64,
    (rows, mut prefetch, step): (usize, *const u8, usize),
) {
    for _ in 0..rows {
        _mm_prefetch::<_MM_HINT_T0>(prefetch.cast());
        prefetch = prefetch.wrapping_add(step);
        // SAFETY: Both point into a row, by the function's terms. After the last nothing is
        // read.
        unsafe {
            let mut columns = [_mm512_setzero_pd(); VECTORS];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = _mm512_loadu_pd(right.add(v * LANES));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_pd(*left.add(i));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_fmadd_pd(x, column, *sum);
                }
            }
        }
        left = left.wrapping_add(WIDTH);
        right = right.wrapping_add(WIDTH);
    }
}
