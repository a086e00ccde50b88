//! AVX2 with FMA: tiles of 4 x 12 sums of 64 bits, or 4 x 24 chains of 32 bits.
//!
//! Whole tiles use all 16 registers: twelve for chains, three for the right and one for the left. A compiler
//! spills some of them, so their loop is written in assembly. Tiles of one or two vectors are left to the
//! compiler.
#![expect(unsafe_code, reason = "vectors of 32 bytes; see the reasons there")]
#![expect(clippy::inline_always, reason = "only where they are inlined are the vectors known")]

use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256d, _MM_HINT_T0, _mm_cvtph_ps, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch,
    _mm256_add_pd, _mm256_castps256_ps128, _mm256_cvtph_ps, _mm256_cvtps_pd, _mm256_extractf128_ps,
    _mm256_fmadd_pd, _mm256_fmadd_ps, _mm256_loadu_pd, _mm256_loadu_ps, _mm256_set1_pd,
    _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_pd, _mm256_storeu_ps,
};

use bytemuck::AnyBitPattern;
use half::f16;

use super::pack::{Element, Packing, pack};
use super::plain::Chain;
use super::tiles::{PANEL_VECTORS, Tile};
use super::vectors::{TileRows, Vectors, chain, multiply};

/// A processor that has AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

/// The columns of a group of the left.
const GROUP: usize = 4;

impl Avx2 {
    pub(super) const VECTOR_BYTES: usize = 32;

    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    #[inline]
    pub(super) fn multiply<T: Chain, const LANES: usize>(self, tile: &mut Tile<'_, T>)
    where
        Self: Vectors<T, LANES, GROUP>,
    {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<T: Chain, const LANES: usize>(kernel: Avx2, tile: &mut Tile<'_, T>)
        where
            Avx2: Vectors<T, LANES, GROUP>,
        {
            multiply(kernel, tile);
        }
        // SAFETY: `self` is only made where the processor has the instructions.
        unsafe { with_avx2(self, tile) }
    }

    #[expect(clippy::unused_self, reason = "that there is one is the proof")]
    pub(super) fn pack<T: From<f32>, const LANES: usize>(self, packing: &Packing<'_>, out: &mut [T])
    where
        Half: Element<T, LANES>,
        f64: Element<T, LANES>,
    {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn with_avx2<T: From<f32>, const LANES: usize>(packing: &Packing<'_>, out: &mut [T])
        where
            Half: Element<T, LANES>,
            f64: Element<T, LANES>,
        {
            pack::<T, Half, LANES>(packing, out);
        }
        // SAFETY: `self` is only made where the processor has the instructions.
        unsafe { with_avx2(packing, out) }
    }
}

impl Vectors<f64, 4, GROUP> for Avx2 {
    type Vector = __m256d;

    #[inline(always)]
    fn load(self, numbers: &[f64; 4]) -> __m256d {
        // SAFETY: The processor has the instruction, which reads four numbers.
        unsafe { _mm256_loadu_pd(numbers.as_ptr()) }
    }

    #[inline(always)]
    fn broadcast(self, number: f64) -> __m256d {
        // SAFETY: The processor has the instruction.
        unsafe { _mm256_set1_pd(number) }
    }

    #[inline(always)]
    fn fused_multiply_add(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d {
        // SAFETY: The processor has the instruction.
        unsafe { _mm256_fmadd_pd(a, b, c) }
    }

    #[inline(always)]
    fn begin(self, sums: &[f64; 4]) -> __m256d {
        self.load(sums)
    }

    #[inline(always)]
    fn end(self, chains: __m256d, sums: &mut [f64; 4]) {
        // SAFETY: The processor has the instruction, which writes four numbers.
        unsafe { _mm256_storeu_pd(sums.as_mut_ptr(), chains) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        prefetch(address);
    }

    #[inline(always)]
    fn chain<const FIRST: usize, const VECTORS: usize>(
        self,
        chains: &mut [[__m256d; VECTORS]; GROUP],
        rows: TileRows<'_, f64, 4>,
    ) {
        match chains.as_flattened_mut().as_mut_array() {
            // SAFETY: The processor has the instructions.
            Some(whole) => unsafe { chain_f64(whole, rows) },
            None => chain::<Self, _, 4, GROUP, FIRST, VECTORS>(self, chains, rows),
        }
    }
}

impl Vectors<f32, 8, GROUP> for Avx2 {
    type Vector = __m256;

    #[inline(always)]
    fn load(self, numbers: &[f32; 8]) -> __m256 {
        // SAFETY: The processor has the instruction, which reads eight numbers.
        unsafe { _mm256_loadu_ps(numbers.as_ptr()) }
    }

    #[inline(always)]
    fn broadcast(self, number: f32) -> __m256 {
        // SAFETY: The processor has the instruction.
        unsafe { _mm256_set1_ps(number) }
    }

    #[inline(always)]
    fn fused_multiply_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: The processor has the instruction.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn begin(self, _: &[f64; 8]) -> __m256 {
        // SAFETY: The processor has the instruction.
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    fn end(self, chains: __m256, sums: &mut [f64; 8]) {
        let (low, high) = sums.split_at_mut(4);
        // SAFETY: The processor has the instructions, which read and write four numbers of each half.
        unsafe {
            let wide = _mm256_cvtps_pd(_mm256_castps256_ps128(chains));
            _mm256_storeu_pd(low.as_mut_ptr(), _mm256_add_pd(_mm256_loadu_pd(low.as_ptr()), wide));
            let wide = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(chains));
            _mm256_storeu_pd(
                high.as_mut_ptr(),
                _mm256_add_pd(_mm256_loadu_pd(high.as_ptr()), wide),
            );
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        prefetch(address);
    }

    #[inline(always)]
    fn chain<const FIRST: usize, const VECTORS: usize>(
        self,
        chains: &mut [[__m256; VECTORS]; GROUP],
        rows: TileRows<'_, f32, 8>,
    ) {
        match chains.as_flattened_mut().as_mut_array() {
            // SAFETY: The processor has the instructions.
            Some(whole) => unsafe { chain_f32(whole, rows) },
            None => chain::<Self, _, 8, GROUP, FIRST, VECTORS>(self, chains, rows),
        }
    }
}

#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    // SAFETY: A prefetch is of no effect wherever it goes.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// A binary16, of which the processor widens a vector at a time.
#[derive(Clone, Copy, AnyBitPattern)]
#[repr(transparent)]
pub(super) struct Half(f16);

impl Element<f64, 4> for Half {
    #[inline]
    fn widen(self) -> f64 {
        self.0.to_f64()
    }

    #[inline(always)]
    fn widen_vector(vector: &[Self; 4]) -> [f64; 4] {
        let mut wide = [0.0; 4];
        // SAFETY: Only `Avx2::pack` packs this type, where the processor has the instructions,
        // which read and write one vector.
        unsafe {
            let halves = _mm_loadl_epi64(vector.as_ptr().cast());
            _mm256_storeu_pd(wide.as_mut_ptr(), _mm256_cvtps_pd(_mm_cvtph_ps(halves)));
        }
        wide
    }
}

impl Element<f32, 8> for Half {
    #[inline]
    fn widen(self) -> f32 {
        self.0.to_f32()
    }

    #[inline(always)]
    fn widen_vector(vector: &[Self; 8]) -> [f32; 8] {
        let mut wide = [0.0; 8];
        // SAFETY: As above.
        unsafe {
            let halves = _mm_loadu_si128(vector.as_ptr().cast());
            _mm256_storeu_ps(wide.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
        wide
    }
}

/// One number of the group, broadcast, with the three vectors of the row.
macro_rules! row_of_chains {
    ($one:literal, $all:literal, $from:literal, $a:literal, $b:literal, $c:literal) => {
        concat!(
            "vbroadcast",
            $one,
            " {x}, [{left} + ",
            $from,
            "]\n",
            "vfmadd231",
            $all,
            " {s",
            $a,
            "}, {x}, {y0}\n",
            "vfmadd231",
            $all,
            " {s",
            $b,
            "}, {x}, {y1}\n",
            "vfmadd231",
            $all,
            " {s",
            $c,
            "}, {x}, {y2}\n",
        )
    };
}

/// Defines [`chain`] for three vectors, of numbers of some bytes.
macro_rules! chain_whole {
    ($name:ident, $number:ty, $lanes:literal, $vector:ty, $one:literal, $all:literal,
     $second:literal, $third:literal, $fourth:literal) => {
        #[target_feature(enable = "avx2,fma")]
        fn $name(
            chains: &mut [$vector; GROUP * PANEL_VECTORS],
            TileRows { left, group, right, prefetch: (address, step) }: TileRows<'_, $number, $lanes>,
        ) {
            assert!(left.len() == right.len() && group < PANEL_VECTORS * $lanes / GROUP);
            if left.is_empty() {
                return;
            }
            let [s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11] = chains;
            // SAFETY: Reads as many rows at both pointers as both sides have, of the left the numbers of
            // a group within the row. A prefetch is of no effect wherever it goes. Writes nothing but
            // the registers named.
            unsafe {
                asm!(
                    "2:",
                    "prefetcht0 [{prefetch}]",
                    "add {prefetch}, {step}",
                    "vmovups {y0}, ymmword ptr [{right}]",
                    "vmovups {y1}, ymmword ptr [{right} + 32]",
                    "vmovups {y2}, ymmword ptr [{right} + 64]",
                    row_of_chains!($one, $all, 0, 0, 1, 2),
                    row_of_chains!($one, $all, $second, 3, 4, 5),
                    row_of_chains!($one, $all, $third, 6, 7, 8),
                    row_of_chains!($one, $all, $fourth, 9, 10, 11),
                    "add {left}, 96",
                    "add {right}, 96",
                    "dec {rows}",
                    "jnz 2b",
                    left = inout(reg) left.as_ptr().cast::<$number>().add(group * GROUP) => _,
                    right = inout(reg) right.as_ptr() => _,
                    rows = inout(reg) left.len() => _,
                    prefetch = inout(reg) address => _,
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
    };
}

chain_whole!(chain_f64, f64, 4, __m256d, "sd", "pd", 8, 16, 24);
chain_whole!(chain_f32, f32, 8, __m256, "ss", "ps", 4, 8, 12);
