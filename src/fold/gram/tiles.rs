//! How a product of two sides is cut into tiles, and in which order these are made.
//!
//! A side's columns lie in *panels* of three vectors, and are taken in *groups* of one vector. Tile
//! (group, panel) holds the sums of one group of the left with one panel of the right, row by row.

use std::ops::Range;

/// How many vectors a panel is wide.
pub(super) const PANEL_VECTORS: usize = 3;

/// What a product is made of.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// The numbers in a vector.
    pub(super) lanes: usize,
    pub(super) left_columns: usize,
    pub(super) right_columns: usize,
    /// Whether both sides are the same columns, so that only what is not below the diagonal is made.
    pub(super) triangle: bool,
}

impl Shape {
    /// The columns of a panel.
    pub(super) fn width(&self) -> usize {
        PANEL_VECTORS * self.lanes
    }

    /// The sums of a tile.
    pub(super) fn tile_values(&self) -> usize {
        self.lanes * self.width()
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
        self.left_columns.div_ceil(self.lanes)
    }

    /// The vectors of a tile that are asked for: those that hold a column, and nothing but sums below
    /// the diagonal in none of them.
    pub(super) fn vectors(&self, group: usize, panel: usize) -> Range<usize> {
        let before = PANEL_VECTORS * panel;
        let first = if self.triangle { group.saturating_sub(before) } else { 0 };
        let end = self.right_columns.div_ceil(self.lanes) - before;
        first..end.min(PANEL_VECTORS)
    }

    /// The work in the order in which it is done: a block of `block` groups of the left, which stays
    /// in the second-level cache, with each panel of the right, which stays in the first.
    pub(super) fn jobs(&self, block: usize) -> Vec<Job> {
        let (mut jobs, mut first_tile) = (Vec::new(), 0);
        for start in (0..self.groups()).step_by(block) {
            for panel in 0..self.right_panels() {
                let last = if self.triangle { PANEL_VECTORS * (panel + 1) } else { usize::MAX };
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

/// Some groups of the left with one panel of the right.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) panel: usize,
    pub(super) groups: Range<usize>,
    /// Where its tiles lie among all, one after the other.
    pub(super) tiles: Range<usize>,
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
