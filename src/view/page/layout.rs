//! The layout of a context's boxes: each row to the left of the rows that it brought in.

use crate::sampler::Visit;

pub(super) const BOX_WIDTH: u32 = 252;
/// The space between a box and the boxes that it brought in, for the lines.
pub(super) const GUTTER: u32 = 56;
/// The height of a heading: the relation's name and counts.
pub(super) const HEADING: u32 = 24;
/// The space between boxes.
const GAP: u32 = 8;
const BROOD_GAP: u32 = 14;
/// The space around the picture.
const MARGIN: u32 = 10;
/// The number of siblings side by side, if they brought in no rows.
const ABREAST: usize = 3;

/// A box's corner and size; every box is [`BOX_WIDTH`] wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub x: u32,
    pub y: u32,
    pub height: u32,
}

/// The rows that one row brought in through one relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Brood {
    pub from: usize,
    pub relation: u32,
    pub is_parent: bool,
    /// The corner of its heading.
    pub x: u32,
    pub y: u32,
    /// Their places in the context; those side by side come last.
    pub members: Vec<usize>,
}

/// The places of all boxes and headings, and the size of the picture.
pub(super) struct Layout {
    pub boxes: Vec<Place>,
    pub broods: Vec<Brood>,
    pub width: u32,
    pub height: u32,
}

impl Layout {
    /// Lays out the rows of a context with boxes of these heights.
    pub(super) fn of(rows: &[Visit], heights: &[u32]) -> Self {
        let mut broods: Vec<Brood> = Vec::new();
        let mut of_row = vec![Vec::new(); rows.len()];
        for (place, row) in rows.iter().enumerate().skip(1) {
            let (from, relation, is_parent) = (row.from as usize, row.relation, row.is_parent);
            let is_it = |&brood: &usize| {
                (broods[brood].relation, broods[brood].is_parent) == (relation, is_parent)
            };
            let brood = of_row[from].iter().copied().find(is_it).unwrap_or(broods.len());
            if brood == broods.len() {
                of_row[from].push(brood);
                broods.push(Brood { from, relation, is_parent, x: 0, y: 0, members: vec![] });
            }
            broods[brood].members.push(place);
        }
        for brood in &mut broods {
            brood.members.sort_by_key(|&member| of_row[member].is_empty());
        }
        of_row.iter_mut().for_each(|own| own.sort_by_key(|&brood| !broods[brood].is_parent));
        let boxes = heights.iter().map(|&height| Place { x: 0, y: 0, height }).collect();
        let mut layout = Self { boxes, broods, width: 0, height: 0 };
        Columns { of_row, free: Vec::new() }.put(&mut layout, 0, 0);
        let right = layout.boxes.iter().map(|place| place.x + BOX_WIDTH).max();
        let bottom = layout.boxes.iter().map(|place| place.y + place.height).max();
        layout.width = right.unwrap_or(0) + MARGIN;
        layout.height = bottom.unwrap_or(0) + MARGIN;
        layout
    }
}

/// The columns during the layout, filled from above: one for each link away from the seed.
struct Columns {
    /// The broods of each row.
    of_row: Vec<Vec<usize>>,
    /// The first free y of each column.
    free: Vec<u32>,
}

impl Columns {
    fn free(&mut self, column: usize) -> &mut u32 {
        if self.free.len() <= column {
            self.free.resize(column + 1, MARGIN);
        }
        &mut self.free[column]
    }

    /// Returns the y of a row's box, so that the first row that it brought in can begin beside it.
    fn start(&mut self, layout: &Layout, place: usize, column: usize) -> u32 {
        let own = *self.free(column);
        match self.of_row[place].first() {
            Some(&brood) => own.max(self.start_of(layout, brood, column + 1)),
            None => own,
        }
    }

    /// Returns the y of a brood's heading, so that its first member can be right below.
    fn start_of(&mut self, layout: &Layout, brood: usize, column: usize) -> u32 {
        let members = &layout.broods[brood].members;
        let free = match self.of_row[members[0]].is_empty() {
            false => self.start(layout, members[0], column),
            true => self.free_over(column, members.len().min(ABREAST)),
        };
        (*self.free(column)).max(free.saturating_sub(HEADING))
    }

    /// Returns the y from which all of some adjacent columns are free.
    fn free_over(&mut self, column: usize, count: usize) -> u32 {
        (column..column + count).map(|column| *self.free(column)).max().unwrap_or(0)
    }

    /// Places the row at `place`, and to its right all rows that it brought in.
    fn put(&mut self, layout: &mut Layout, place: usize, column: usize) {
        let y = self.start(layout, place, column);
        let height = layout.boxes[place].height;
        layout.boxes[place] = Place { x: left(column), y, height };
        *self.free(column) = y + height + GAP;
        for brood in self.of_row[place].clone() {
            let heading = self.start_of(layout, brood, column + 1).max(y);
            (layout.broods[brood].x, layout.broods[brood].y) = (left(column + 1), heading);
            *self.free(column + 1) = heading + HEADING;
            let members = layout.broods[brood].members.clone();
            let stem_count = members.partition_point(|&row| !self.of_row[row].is_empty());
            let (stems, leaves) = members.split_at(stem_count);
            stems.iter().for_each(|&stem| self.put(layout, stem, column + 1));
            leaves.chunks(ABREAST).for_each(|leaves| self.put_abreast(layout, leaves, column + 1));
            *self.free(column + 1) += BROOD_GAP - GAP;
        }
    }

    /// Places rows that brought in no rows side by side, one column each.
    fn put_abreast(&mut self, layout: &mut Layout, leaves: &[usize], column: usize) {
        let y = self.free_over(column, leaves.len());
        let tallest = leaves.iter().map(|&leaf| layout.boxes[leaf].height).max().unwrap_or(0);
        for (number, &leaf) in leaves.iter().enumerate() {
            let x = left(column) + number as u32 * (BOX_WIDTH + GAP);
            (layout.boxes[leaf].x, layout.boxes[leaf].y) = (x, y);
            *self.free(column + number) = y + tallest + GAP;
        }
    }
}

/// Returns the left edge of a column.
fn left(column: usize) -> u32 {
    MARGIN + column as u32 * (BOX_WIDTH + GUTTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    fn rows(seed: u64, count: u64) -> Vec<Visit> {
        let mut random = Stream::new(seed, Purpose::Walk, [0; 3]);
        (0..count as u32)
            .map(|place| Visit {
                table: 0,
                row: place,
                hop: 0,
                from: random.below(u64::from(place).max(1)) as u32,
                relation: random.below(3) as u32,
                is_parent: random.below(2) == 0,
                has_aggregates: false,
            })
            .collect()
    }

    #[test]
    fn no_two_boxes_and_headings_overlap() {
        for seed in 0..50 {
            let rows = rows(seed, 1 + seed * 3);
            let heights: Vec<u32> = rows.iter().map(|row| 30 + row.row * 7 % 90).collect();
            let layout = Layout::of(&rows, &heights);
            let headings = layout.broods.iter().map(|brood| (brood.x, brood.y, HEADING));
            let boxes = layout.boxes.iter().map(|place| (place.x, place.y, place.height));
            let all: Vec<_> = boxes.chain(headings).collect();
            for (number, a) in all.iter().enumerate() {
                assert!(a.0 + BOX_WIDTH <= layout.width && a.1 + a.2 <= layout.height);
                for b in &all[..number] {
                    let apart = a.0 + BOX_WIDTH <= b.0 || b.0 + BOX_WIDTH <= a.0;
                    assert!(apart || a.1 + a.2 <= b.1 || b.1 + b.2 <= a.1, "{a:?} {b:?}");
                }
            }
            let members: usize = layout.broods.iter().map(|brood| brood.members.len()).sum();
            assert_eq!(members, rows.len() - 1);
            for brood in &layout.broods {
                let from = layout.boxes[brood.from];
                assert!(brood.x >= from.x + BOX_WIDTH && brood.y >= from.y);
            }
        }
    }
}
