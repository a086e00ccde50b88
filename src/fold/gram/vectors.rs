//! The kernel of processors with vectors: a tile of sums, all of them in registers.
//!
//! It computes what `plain` defines, with these differences:
//!
//! - Some sums of a row lie in one register. A lane belongs to one column, and a row's number is broadcast
//!   to all lanes; so every sum is its own chain over the rows.
//! - A tile of fewer than three vectors has an instance of its own: the diagonal and the last columns need
//!   no more.
//! - The data after this tile are prefetched, a cache line every few rows.

// Compiled once for each kernel's instruction set, which only an inlined function is.
#![allow(clippy::inline_always, reason = "see above")]

use super::plain::Chain;
use super::tiles::{PANEL_VECTORS, PanelRow, Tile};

/// A processor with vectors of `LANES` numbers, whose tiles have `GROUP` rows. That there is one proves that it
/// has the instructions. Its functions must be inlined: only there are its vectors known.
pub(super) trait Vectors<T: Chain, const LANES: usize, const GROUP: usize>: Copy {
    type Vector: Copy;

    fn load(self, numbers: &[T; LANES]) -> Self::Vector;

    fn broadcast(self, number: T) -> Self::Vector;

    /// `a * b + c`, rounded once.
    fn fused_multiply_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;

    /// [`Chain::begin`] in each lane.
    fn begin(self, sums: &[f64; LANES]) -> Self::Vector;

    /// [`Chain::end`] in each lane.
    fn end(self, chains: Self::Vector, sums: &mut [f64; LANES]);

    /// Asks for a cache line; of no effect wherever it is.
    fn prefetch(self, address: *const u8);

    /// Goes on with the chains, whose vectors start with `FIRST`, over the rows of a tile.
    #[inline(always)]
    fn chain<const FIRST: usize, const VECTORS: usize>(
        self,
        chains: &mut [[Self::Vector; VECTORS]; GROUP],
        rows: TileRows<'_, T, LANES>,
    ) {
        chain::<Self, T, LANES, GROUP, FIRST, VECTORS>(self, chains, rows);
    }
}

/// The rows of a tile.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a, T, const LANES: usize> {
    pub(super) left: &'a [PanelRow<T, LANES>],
    /// The group within each row of the left.
    pub(super) group: usize,
    pub(super) right: &'a [PanelRow<T, LANES>],
    /// The address to prefetch with the first row, and the step in bytes for each further row.
    pub(super) prefetch: (*const u8, usize),
}

/// Multiplies a group of the left with some vectors of a panel of the right.
#[inline(always)]
pub(super) fn multiply<K, T: Chain, const LANES: usize, const GROUP: usize>(
    kernel: K,
    tile: &mut Tile<'_, T>,
) where
    K: Vectors<T, LANES, GROUP>,
{
    match (tile.vectors.start, tile.vectors.end) {
        (0, 3) => multiply_some::<K, T, LANES, GROUP, 0, 3>(kernel, tile),
        (0, 2) => multiply_some::<K, T, LANES, GROUP, 0, 2>(kernel, tile),
        (0, 1) => multiply_some::<K, T, LANES, GROUP, 0, 1>(kernel, tile),
        (1, 3) => multiply_some::<K, T, LANES, GROUP, 1, 2>(kernel, tile),
        (1, 2) => multiply_some::<K, T, LANES, GROUP, 1, 1>(kernel, tile),
        (2, 3) => multiply_some::<K, T, LANES, GROUP, 2, 1>(kernel, tile),
        _ => {}
    }
}

#[inline(always)]
fn multiply_some<
    K,
    T: Chain,
    const LANES: usize,
    const GROUP: usize,
    const FIRST: usize,
    const VECTORS: usize,
>(
    kernel: K,
    tile: &mut Tile<'_, T>,
) where
    K: Vectors<T, LANES, GROUP>,
{
    let (left, right) = tile.rows::<LANES>();
    let group = tile.group;
    let tile_rows = TileRows { left, group, right, prefetch: tile.prefetch(left.len()) };
    let sums = tile.sums.as_chunks_mut::<LANES>().0.as_chunks_mut::<PANEL_VECTORS>().0;
    assert!(sums.len() == GROUP && group < PANEL_VECTORS * LANES / GROUP, "a tile of this kernel");
    let mut chains = [[kernel.begin(&sums[0][FIRST]); VECTORS]; GROUP];
    for (chains, sums) in chains.iter_mut().zip(&*sums) {
        for (v, chain) in chains.iter_mut().enumerate() {
            *chain = kernel.begin(&sums[FIRST + v]);
        }
    }
    kernel.chain::<FIRST, VECTORS>(&mut chains, tile_rows);
    for (chains, sums) in chains.into_iter().zip(sums) {
        for (v, chain) in chains.into_iter().enumerate() {
            kernel.end(chain, &mut sums[FIRST + v]);
        }
    }
}

/// What [`Vectors::chain`] does if a processor has no better way.
#[inline(always)]
pub(super) fn chain<
    K,
    T: Chain,
    const LANES: usize,
    const GROUP: usize,
    const FIRST: usize,
    const VECTORS: usize,
>(
    kernel: K,
    chains: &mut [[K::Vector; VECTORS]; GROUP],
    TileRows { left, group, right, prefetch: (mut address, step) }: TileRows<'_, T, LANES>,
) where
    K: Vectors<T, LANES, GROUP>,
{
    for (left, right) in left.iter().zip(right) {
        kernel.prefetch(address);
        address = address.wrapping_add(step);
        let mut columns = [kernel.load(&right[FIRST]); VECTORS];
        for (v, column) in columns.iter_mut().enumerate() {
            *column = kernel.load(&right[FIRST + v]);
        }
        let group = &left.as_flattened().as_chunks::<GROUP>().0[group];
        for (x, chains) in group.iter().zip(chains.iter_mut()) {
            let x = kernel.broadcast(*x);
            for (chain, column) in chains.iter_mut().zip(columns) {
                *chain = kernel.fused_multiply_add(x, column, *chain);
            }
        }
    }
}
