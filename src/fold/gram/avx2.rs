//! The kernel for AVX2 with FMA: a tile of 4 x 12 sums, all of them in registers.
//!
//! It computes what `plain` defines, with these differences:
//!
//! - Four sums of a row lie in one register. A lane belongs to one column, and a row's number is
//!   broadcast to all lanes; so every sum is its own chain over the rows.
//! - Whole tiles use all 16 registers: twelve for sums, three for the right and one for the left. A
//!   compiler spills some of them, so their loop is written in assembly.
//! - Tiles of one or two vectors, on the diagonal and at the last columns, are left to the compiler.
#![expect(unsafe_code, reason = "vectors of four numbers; see the reasons there")]

use std::arch::asm;
use std::arch::x86_64::{
    __m256d, _MM_HINT_T0, _mm_cvtph_ps, _mm_loadl_epi64, _mm_prefetch, _mm256_cvtps_pd,
    _mm256_fmadd_pd, _mm256_loadu_pd, _mm256_set1_pd, _mm256_setzero_pd, _mm256_storeu_pd,
};

use bytemuck::AnyBitPattern;
use half::f16;

use super::pack::{Element, Packing, pack};
use super::tiles::PANEL_VECTORS;
use super::tiles::Tile;

/// A processor that has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

const LANES: usize = Avx2::LANES;
const WIDTH: usize = PANEL_VECTORS * LANES;

#[expect(clippy::unused_self, reason = "that there is one is the proof")]
impl Avx2 {
    pub(super) const LANES: usize = 4;

    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    #[inline]
    pub(super) fn multiply(self, tile: &mut Tile<'_>) {
        tile.check(LANES);
        // SAFETY: `self` is only made where the processor has the instructions. The numbers are
        // within the bounds that the functions ask for, as `Tile::check` made sure.
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
        #[target_feature(enable = "avx2,fma,f16c")]
        fn with_avx2(packing: &Packing<'_>, out: &mut [f64]) {
            pack::<Half, LANES>(packing, out);
        }
        // SAFETY: `self` is only made where the processor has the instructions.
        unsafe { with_avx2(packing, out) }
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
        // SAFETY: Only `Avx2::pack` packs this type, where the processor has the instructions,
        // which read and write one vector.
        unsafe {
            let halves = _mm_loadl_epi64(vector.as_ptr().cast());
            _mm256_storeu_pd(wide.as_mut_ptr(), _mm256_cvtps_pd(_mm_cvtph_ps(halves)));
        }
        wide
    }
}

/// # Safety
/// - `tile.sums` holds `LANES` rows of `WIDTH`;
/// - `tile.left` and `tile.right` hold the same number of rows of `WIDTH`;
/// - `tile.first_lane + LANES <= WIDTH`, and `VECTORS` vectors from `tile.vectors.start` on are
///   within `WIDTH`.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply<const VECTORS: usize>(tile: &mut Tile<'_>) {
    let first_column = tile.vectors.start * LANES;
    // SAFETY: The vectors start within a row, by the function's terms.
    let in_memory = unsafe { tile.sums.as_mut_ptr().add(first_column) };
    let mut sums = [[_mm256_setzero_pd(); VECTORS]; LANES];
    if !tile.fresh {
        for (i, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: Row `i` and vector `v` are within the tile, by the function's terms.
                *sum = unsafe { _mm256_loadu_pd(in_memory.add(i * WIDTH + v * LANES)) };
            }
        }
    }
    // SAFETY: The group and the vectors are within a row, and both sides have `rows` rows, by the
    // function's terms.
    unsafe {
        let left = tile.left.as_ptr().add(tile.first_lane);
        let right = tile.right.as_ptr().add(first_column);
        let rows = tile.rows(LANES);
        if let Some(whole) = sums.as_flattened_mut().as_mut_array() {
            chain_whole(whole, left, right, rows);
        } else {
            chain(&mut sums, left, right, rows);
        }
    }
    for (i, sums) in sums.into_iter().enumerate() {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: Row `i` and vector `v` are within the tile, by the function's terms.
            unsafe { _mm256_storeu_pd(in_memory.add(i * WIDTH + v * LANES), sum) };
        }
    }
}

/// # Safety
/// `left` and `right` point into the first of `rows` rows of `WIDTH`, with a group or `VECTORS`
/// vectors between there and the row's end.
#[target_feature(enable = "avx2,fma")]
unsafe fn chain<const VECTORS: usize>(
    sums: &mut [[__m256d; VECTORS]; LANES],
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
            let mut columns = [_mm256_setzero_pd(); VECTORS];
            for (v, column) in columns.iter_mut().enumerate() {
                *column = _mm256_loadu_pd(right.add(v * LANES));
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = _mm256_set1_pd(*left.add(i));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm256_fmadd_pd(x, column, *sum);
                }
            }
        }
        left = left.wrapping_add(WIDTH);
        right = right.wrapping_add(WIDTH);
    }
}

/// One number of the group, broadcast, with the three vectors of the row.
macro_rules! row_of_sums {
    ($from:literal, $a:literal, $b:literal, $c:literal) => {
        concat!(
            "vbroadcastsd {x}, qword ptr [{left} + ",
            $from,
            "]\n",
            "vfmadd231pd {s",
            $a,
            "}, {x}, {y0}\n",
            "vfmadd231pd {s",
            $b,
            "}, {x}, {y1}\n",
            "vfmadd231pd {s",
            $c,
            "}, {x}, {y2}\n",
        )
    };
}

/// [`chain`] for three vectors.
///
/// # Safety
/// As [`chain`], and `right` points to the start of a row.
#[target_feature(enable = "avx2,fma")]
unsafe fn chain_whole(
    sums: &mut [__m256d; LANES * PANEL_VECTORS],
    left: *const f64,
    right: *const f64,
    (rows, prefetch, step): (usize, *const u8, usize),
) {
    let [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11] = sums;
    if rows == 0 {
        return;
    }
    // SAFETY: Reads `rows` rows at both pointers, which there are by the function's terms. A
    // prefetch is of no effect wherever it goes. Writes nothing but the registers named.
    unsafe {
        asm!(
            "2:",
            "prefetcht0 [{prefetch}]",
            "add {prefetch}, {step}",
            "vmovupd {y0}, ymmword ptr [{right}]",
            "vmovupd {y1}, ymmword ptr [{right} + 32]",
            "vmovupd {y2}, ymmword ptr [{right} + 64]",
            row_of_sums!(0, 0, 1, 2),
            row_of_sums!(8, 3, 4, 5),
            row_of_sums!(16, 6, 7, 8),
            row_of_sums!(24, 9, 10, 11),
            "add {left}, {row_bytes}",
            "add {right}, {row_bytes}",
            "dec {rows}",
            "jnz 2b",
            row_bytes = const WIDTH * size_of::<f64>(),
            left = inout(reg) left => _,
            right = inout(reg) right => _,
            rows = inout(reg) rows => _,
            prefetch = inout(reg) prefetch => _,
            step = in(reg) step,
            x = out(ymm_reg) _,
            y0 = out(ymm_reg) _,
            y1 = out(ymm_reg) _,
            y2 = out(ymm_reg) _,
            s0 = inout(ymm_reg) *s0,
            s1 = inout(ymm_reg) *s1,
            s2 = inout(ymm_reg) *s2,
            s3 = inout(ymm_reg) *s3,
            s4 = inout(ymm_reg) *s4,
            s5 = inout(ymm_reg) *s5,
            s6 = inout(ymm_reg) *s6,
            s7 = inout(ymm_reg) *s7,
            s8 = inout(ymm_reg) *s8,
            s9 = inout(ymm_reg) *s9,
            s10 = inout(ymm_reg) *s10,
            s11 = inout(ymm_reg) *s11,
            options(readonly, nostack),
        );
    }
}
