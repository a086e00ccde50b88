//! The scalar kernel, which runs on every processor and defines the results of the others.
//!
//! ```text
//! for each row n: for each i of the group: for each j of the vectors:
//!     sums[i][j] = fma(left[n][i], right[n][j], sums[i][j])
//! ```

use super::tiles::PANEL_VECTORS;
use super::tiles::Tile;

/// Multiplies a group of the left with some vectors of a panel of the right.
pub(super) fn multiply(lanes: usize, tile: &mut Tile<'_>) {
    let width = PANEL_VECTORS * lanes;
    let columns = tile.vectors.start * lanes..tile.vectors.end * lanes;
    if tile.fresh {
        tile.sums.fill(0.0);
    }
    for (left, right) in tile.left.chunks_exact(width).zip(tile.right.chunks_exact(width)) {
        let group = &left[tile.first_lane..tile.first_lane + lanes];
        for (x, sums) in group.iter().zip(tile.sums.chunks_exact_mut(width)) {
            for (y, sum) in right[columns.clone()].iter().zip(&mut sums[columns.clone()]) {
                *sum = fused_multiply_add(*x, *y, *sum);
            }
        }
    }
}

/// `a * b + c`, rounded once.
#[inline]
fn fused_multiply_add(a: f64, b: f64, c: f64) -> f64 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        // `mul_add` would call the C library's fma, which is wrong on some platforms.
        libm::fma(a, b, c)
    }
}
