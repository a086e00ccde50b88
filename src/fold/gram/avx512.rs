//! AVX-512: tiles of 8 x 24 sums of 64 bits, or 8 x 48 chains of 32 bits, in 24 registers.
#![expect(unsafe_code, reason = "vectors of 64 bytes; see the reasons there")]
#![expect(clippy::inline_always, reason = "only where they are inlined are the vectors known")]

use std::arch::x86_64::{
    __m512, __m512d, _mm_loadu_si128, _mm256_cvtph_ps, _mm256_loadu_si256, _mm512_add_pd,
    _mm512_castpd_ps, _mm512_castps_pd, _mm512_castps512_ps256, _mm512_cvtph_ps, _mm512_cvtps_pd,
    _mm512_fmadd_pd, _mm512_fmadd_ps, _mm512_loadu_pd, _mm512_loadu_ps, _mm512_set1_pd,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_shuffle_f64x2, _mm512_storeu_pd, _mm512_storeu_ps,
};

use bytemuck::AnyBitPattern;
use half::f16;

use super::avx2::prefetch;
use super::pack::{Element, Packing, pack};
use super::plain::Chain;
use super::tiles::Tile;
use super::vectors::{Vectors, multiply};

/// A processor that has AVX-512.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

/// The columns of a group of the left.
const GROUP: usize = 8;

impl Avx512 {
    pub(super) const VECTOR_BYTES: usize = 64;

    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    #[inline]
    pub(super) fn multiply<T: Chain, const LANES: usize>(self, tile: &mut Tile<'_, T>)
    where
        Self: Vectors<T, LANES, GROUP>,
    {
        #[target_feature(enable = "avx512f")]
        fn with_avx512<T: Chain, const LANES: usize>(kernel: Avx512, tile: &mut Tile<'_, T>)
        where
            Avx512: Vectors<T, LANES, GROUP>,
        {
            multiply(kernel, tile);
        }
        // SAFETY: `self` is only made where the processor has the instructions.
        unsafe { with_avx512(self, tile) }
    }

    #[expect(clippy::unused_self, reason = "that there is one is the proof")]
    pub(super) fn pack<T: From<f32>, const LANES: usize>(self, packing: &Packing<'_>, out: &mut [T])
    where
        Half: Element<T, LANES>,
        f64: Element<T, LANES>,
    {
        #[target_feature(enable = "avx512f")]
        fn with_avx512<T: From<f32>, const LANES: usize>(packing: &Packing<'_>, out: &mut [T])
        where
            Half: Element<T, LANES>,
            f64: Element<T, LANES>,
        {
            pack::<T, Half, LANES>(packing, out);
        }
        // SAFETY: `self` is only made where the processor has the instructions.
        unsafe { with_avx512(packing, out) }
    }
}

impl Vectors<f64, 8, GROUP> for Avx512 {
    type Vector = __m512d;

    #[inline(always)]
    fn load(self, numbers: &[f64; 8]) -> __m512d {
        // SAFETY: The processor has the instruction, which reads eight numbers.
        unsafe { _mm512_loadu_pd(numbers.as_ptr()) }
    }

    #[inline(always)]
    fn broadcast(self, number: f64) -> __m512d {
        // SAFETY: The processor has the instruction.
        unsafe { _mm512_set1_pd(number) }
    }

    #[inline(always)]
    fn fused_multiply_add(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d {
        // SAFETY: The processor has the instruction.
        unsafe { _mm512_fmadd_pd(a, b, c) }
    }

    #[inline(always)]
    fn begin(self, sums: &[f64; 8]) -> __m512d {
        self.load(sums)
    }

    #[inline(always)]
    fn end(self, chains: __m512d, sums: &mut [f64; 8]) {
        // SAFETY: The processor has the instruction, which writes eight numbers.
        unsafe { _mm512_storeu_pd(sums.as_mut_ptr(), chains) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        prefetch(address);
    }
}

impl Vectors<f32, 16, GROUP> for Avx512 {
    type Vector = __m512;

    #[inline(always)]
    fn load(self, numbers: &[f32; 16]) -> __m512 {
        // SAFETY: The processor has the instruction, which reads sixteen numbers.
        unsafe { _mm512_loadu_ps(numbers.as_ptr()) }
    }

    #[inline(always)]
    fn broadcast(self, number: f32) -> __m512 {
        // SAFETY: The processor has the instruction.
        unsafe { _mm512_set1_ps(number) }
    }

    #[inline(always)]
    fn fused_multiply_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: The processor has the instruction.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn begin(self, _: &[f64; 16]) -> __m512 {
        // SAFETY: The processor has the instruction.
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    fn end(self, chains: __m512, sums: &mut [f64; 16]) {
        let (low, high) = sums.split_at_mut(8);
        // SAFETY: The processor has the instructions, which read and write eight numbers of each half.
        unsafe {
            let wide = _mm512_cvtps_pd(_mm512_castps512_ps256(chains));
            _mm512_storeu_pd(low.as_mut_ptr(), _mm512_add_pd(_mm512_loadu_pd(low.as_ptr()), wide));
            // The upper half of the register in place of the lower.
            let pairs = _mm512_castps_pd(chains);
            let upper = _mm512_castpd_ps(_mm512_shuffle_f64x2::<0b1110>(pairs, pairs));
            let wide = _mm512_cvtps_pd(_mm512_castps512_ps256(upper));
            _mm512_storeu_pd(
                high.as_mut_ptr(),
                _mm512_add_pd(_mm512_loadu_pd(high.as_ptr()), wide),
            );
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        prefetch(address);
    }
}

/// A binary16, of which the processor widens a vector at a time.
#[derive(Clone, Copy, AnyBitPattern)]
#[repr(transparent)]
pub(super) struct Half(f16);

impl Element<f64, 8> for Half {
    #[inline]
    fn widen(self) -> f64 {
        self.0.to_f64()
    }

    #[inline(always)]
    fn widen_vector(vector: &[Self; 8]) -> [f64; 8] {
        let mut wide = [0.0; 8];
        // SAFETY: Only `Avx512::pack` packs this type, where the processor has the instructions,
        // which read and write one vector.
        unsafe {
            let halves = _mm_loadu_si128(vector.as_ptr().cast());
            _mm512_storeu_pd(wide.as_mut_ptr(), _mm512_cvtps_pd(_mm256_cvtph_ps(halves)));
        }
        wide
    }
}

impl Element<f32, 16> for Half {
    #[inline]
    fn widen(self) -> f32 {
        self.0.to_f32()
    }

    #[inline(always)]
    fn widen_vector(vector: &[Self; 16]) -> [f32; 16] {
        let mut wide = [0.0; 16];
        // SAFETY: As above.
        unsafe {
            let halves = _mm256_loadu_si256(vector.as_ptr().cast());
            _mm512_storeu_ps(wide.as_mut_ptr(), _mm512_cvtph_ps(halves));
        }
        wide
    }
}
