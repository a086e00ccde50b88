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
