//! The tiles of a product, and the order in which they are made.
//!
//! The columns of each side are packed in *panels* of three vectors. The left side is read in
//! *groups* of a few columns. Tile (group, panel) holds the sums of one group of the left with one
//! panel of the right, row by row.

use std::ops::Range;

/// The vectors of a panel.
pub(super) const PANEL_VECTORS: usize = 3;

/// One row of a panel.
pub(super) type PanelRow<T, const LANES: usize> = [[T; LANES]; PANEL_VECTORS];

/// The sizes of a product.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The numbers in a vector.
    pub(super) lanes: usize,
    /// The columns of a group, which divide a vector.
    pub(super) group: usize,
    pub(super) left_columns: usize,
    pub(super) right_columns: usize,
    /// Whether both sides are the same columns, so that sums below the diagonal are not made.
    pub(super) triangle: bool,
}

impl Shape {
    /// The columns of a panel.
    pub(super) fn width(&self) -> usize {
        PANEL_VECTORS * self.lanes
    }

    /// The sums of a tile.
    pub(super) fn tile_values(&self) -> usize {
        self.group * self.width()
    }

    /// The panels of the left side.
    pub(super) fn left_panels(&self) -> usize {
        self.left_columns.div_ceil(self.width())
    }

    /// The panels of the right side.
    pub(super) fn right_panels(&self) -> usize {
        self.right_columns.div_ceil(self.width())
    }

    /// The groups of the left side.
    fn groups(&self) -> usize {
        self.left_columns.div_ceil(self.group)
    }

    /// The groups of a panel of the left side.
    pub(super) fn panel_groups(&self) -> usize {
        self.width() / self.group
    }

    /// Returns the vectors of a tile that are needed: those that hold a column and are not wholly
    /// below the diagonal.
    pub(super) fn vectors(&self, group: usize, panel: usize) -> Range<usize> {
        let before = PANEL_VECTORS * panel;
        let diagonal = group * self.group / self.lanes;
        let first = if self.triangle { diagonal.saturating_sub(before) } else { 0 };
        let end = self.right_columns.div_ceil(self.lanes) - before;
        first..end.min(PANEL_VECTORS)
    }

    /// Returns the jobs in order: a block of `block` groups of the left, which stays in the
    /// second-level cache, with each panel of the right, which stays in the first-level cache.
    pub(super) fn jobs(&self, block: usize) -> Vec<Job> {
        let (mut jobs, mut first_tile) = (Vec::new(), 0);
        for start in (0..self.groups()).step_by(block) {
            for panel in 0..self.right_panels() {
                let last =
                    if self.triangle { self.panel_groups() * (panel + 1) } else { usize::MAX };
                let groups = start..(start + block).min(self.groups()).min(last);
                if !groups.is_empty() {
                    let tiles = first_tile..first_tile + groups.len();
                    first_tile = tiles.end;
                    jobs.push(Job { panel, groups, tiles });
                }
            }
        }
        jobs
    }
}

/// A job: some groups of the left with one panel of the right.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) panel: usize,
    pub(super) groups: Range<usize>,
    /// Its tiles, which follow each other in memory.
    pub(super) tiles: Range<usize>,
}

/// One tile to be multiplied.
pub(super) struct Tile<'a, T> {
    /// The tile's sums, row by row of a panel's width.
    pub(super) sums: &'a mut [f64],
    /// The panel of the left that holds the group.
    pub(super) left: &'a [T],
    /// The group within each row of the panel.
    pub(super) group: usize,
    /// The panel of the right, with as many rows as the left.
    pub(super) right: &'a [T],
    /// The vectors of the right that are needed; the sums of the others become arbitrary.
    pub(super) vectors: Range<usize>,
    /// The bytes to prefetch: they are read after this tile.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "the kernels of x86-64 read it")
    )]
    pub(super) prefetch: &'a [u8],
}

impl<'a, T> Tile<'a, T> {
    /// Returns the rows of both panels.
    #[inline]
    pub(super) fn rows<const LANES: usize>(
        &self,
    ) -> (&'a [PanelRow<T, LANES>], &'a [PanelRow<T, LANES>]) {
        let rows = |panel: &'a [T]| panel.as_chunks().0.as_chunks().0;
        (rows(self.left), rows(self.right))
    }

    /// Returns the address to prefetch with the first of so many rows, and the step in bytes for each
    /// further row.
    ///
    /// Prefetching all at once would delay the reads of the tile itself, and prefetching until the
    /// last row would come too late. So it takes half of the rows; the other half prefetches what
    /// follows.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub(super) fn prefetch(&self, rows: usize) -> (*const u8, usize) {
        // An invalid address would cost a search for its page with each row.
        let start = if self.prefetch.is_empty() {
            self.right.as_ptr().cast()
        } else {
            self.prefetch.as_ptr()
        };
        (start, 2 * self.prefetch.len() / rows.max(1))
    }
}
