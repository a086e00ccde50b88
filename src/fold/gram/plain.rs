//! The scalar kernel, which runs on every processor and defines the results of the others.
//!
//! ```text
//! for each i of the group: for each j of the vectors:
//!     chain = begin(sums[i][j])
//!     for each row n:  chain = fma(left[n][i], right[n][j], chain)
//!     sums[i][j] = end(chain, sums[i][j])
//! ```

use super::tiles::{PANEL_VECTORS, Tile};

/// The number of a chain of products, and of the factors. The sums, from which a chain begins and with which
/// it ends, have 64 bits.
pub(super) trait Chain: Copy {
    /// The rows of a chain; none if it goes on through all rows, however they are cut.
    const ROWS: Option<usize>;

    /// Returns the beginning of a chain, given the sum of the rows before.
    fn begin(sum: f64) -> Self;

    /// `a * b + self`, rounded once.
    fn add_product(self, a: Self, b: Self) -> Self;

    /// Returns the sum of the rows before and of the chain.
    fn end(self, sum: f64) -> f64;
}

/// A sum is one chain.
impl Chain for f64 {
    const ROWS: Option<usize> = None;

    #[inline]
    fn begin(sum: f64) -> Self {
        sum
    }

    #[inline]
    fn add_product(self, a: Self, b: Self) -> Self {
        if HAS_FMA { a.mul_add(b, self) } else { libm::fma(a, b, self) }
    }

    #[inline]
    fn end(self, _: f64) -> f64 {
        self
    }
}

/// A sum is that of chains of 128 rows.
impl Chain for f32 {
    const ROWS: Option<usize> = Some(128);

    #[inline]
    fn begin(_: f64) -> Self {
        0.0
    }

    #[inline]
    fn add_product(self, a: Self, b: Self) -> Self {
        if HAS_FMA { a.mul_add(b, self) } else { libm::fmaf(a, b, self) }
    }

    #[inline]
    fn end(self, sum: f64) -> f64 {
        sum + f64::from(self)
    }
}

/// Otherwise `mul_add` would call the C library's fma, which is wrong on some platforms.
const HAS_FMA: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

/// The columns of a group of the left.
const GROUP: usize = 4;

/// Multiplies a group of the left with some vectors of a panel of the right.
pub(super) fn multiply<T: Chain, const LANES: usize>(tile: &mut Tile<'_, T>) {
    let (left, right) = tile.rows::<LANES>();
    let sums = tile.sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<PANEL_VECTORS>().0;
    let mut chains = [[[T::begin(0.0); LANES]; PANEL_VECTORS]; GROUP];
    for (chains, sums) in chains.iter_mut().zip(&*sums) {
        for (chain, sum) in chains.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            *chain = T::begin(*sum);
        }
    }
    for (left, right) in left.iter().zip(right) {
        let group = &left.as_flattened().as_chunks::<GROUP>().0[tile.group];
        for (x, chains) in group.iter().zip(&mut chains) {
            for vector in tile.vectors.clone() {
                for (y, chain) in right[vector].iter().zip(&mut chains[vector]) {
                    *chain = chain.add_product(*x, *y);
                }
            }
        }
    }
    for (chains, sums) in chains.iter().zip(sums) {
        for (chain, sum) in chains.as_flattened().iter().zip(sums.as_flattened_mut()) {
            *sum = chain.end(*sum);
        }
    }
}
