//! Orders of a sequence's cells in which cells that attend to each other are close.

use super::settings::RowOrder;
use super::walk::{Edge, Walker};

/// Computes the three orders of a sequence; keeps its buffers.
pub(super) struct Orders {
    row_order: RowOrder,
    /// For each column, the number of cells of smaller columns; all zero between two calls.
    starts: Vec<u32>,
    row_starts: Vec<u32>,
    cuthill_mckee: CuthillMckee,
}

impl Orders {
    /// Returns buffers for databases of at most `column_count` columns.
    pub(super) fn new(row_order: RowOrder, column_count: u32) -> Self {
        Self {
            row_order,
            starts: vec![0; column_count as usize + 1],
            row_starts: Vec::new(),
            cuthill_mckee: CuthillMckee::default(),
        }
    }

    /// Writes the orders by column, by outgoing and by incoming links; padding comes last.
    pub(super) fn write(
        &mut self,
        column_ids: &[i32],
        row_ids: &[u16],
        walker: &Walker,
        [by_column, outgoing, incoming]: [&mut [u16]; 3],
    ) {
        self.by_column(column_ids, by_column);
        match self.row_order {
            // Rows are in the order of the walk already, each in one piece.
            RowOrder::Walk => outgoing.iter_mut().zip(0..).for_each(|(slot, place)| *slot = place),
            RowOrder::CuthillMckee => {
                let rows = self.cuthill_mckee.order(walker.visits().len(), walker.edges());
                by_row(rows, row_ids, &mut self.row_starts, outgoing);
            }
        }
        // Bandwidth is the same both ways.
        incoming.copy_from_slice(outgoing);
    }

    /// A counting sort by column, which keeps the order of cells of one column.
    fn by_column(&mut self, column_ids: &[i32], order: &mut [u16]) {
        column_ids.iter().for_each(|&column| self.starts[column as usize + 1] += 1);
        let mut before = 0;
        for start in &mut self.starts {
            before += *start;
            *start = before;
        }
        // The counter comes second, so that it does not overflow past the greatest place.
        for (&column, place) in column_ids.iter().zip(0..) {
            let start = &mut self.starts[column as usize];
            order[*start as usize] = place;
            *start += 1;
        }
        self.starts.fill(0);
        let padding = order.iter_mut().zip(0..).skip(column_ids.len());
        padding.for_each(|(slot, place)| *slot = place);
    }
}

/// Puts the cells in the order of their rows.
fn by_row(rows: &[u16], row_ids: &[u16], starts: &mut Vec<u32>, order: &mut [u16]) {
    starts.clear();
    starts.resize(rows.len(), 0);
    row_ids.iter().for_each(|&row| starts[usize::from(row)] += 1);
    let mut before = 0;
    for &row in rows {
        let cells = std::mem::replace(&mut starts[usize::from(row)], before);
        before += cells;
    }
    for (&row, place) in row_ids.iter().zip(0..) {
        let start = &mut starts[usize::from(row)];
        order[*start as usize] = place;
        *start += 1;
    }
    order.iter_mut().zip(0..).skip(row_ids.len()).for_each(|(slot, place)| *slot = place);
}

/// The reverse Cuthill-McKee order of a small graph.
#[derive(Default)]
struct CuthillMckee {
    starts: Vec<u32>,
    neighbours: Vec<u16>,
    degrees: Vec<u32>,
    seen: Vec<bool>,
    order: Vec<u16>,
}

impl CuthillMckee {
    /// Returns the rows in an order in which linked rows are close to each other.
    ///
    /// Each component begins with a row of least degree, and continues with the neighbours of its
    /// rows by degree. Among equals, the row that the walk reached first comes first.
    fn order(&mut self, row_count: usize, edges: &[Edge]) -> &[u16] {
        self.connect(row_count, edges);
        self.seen.clear();
        self.seen.resize(row_count, false);
        self.order.clear();
        while self.order.len() < row_count {
            let unseen = (0..row_count).filter(|&row| !self.seen[row]);
            let Some(first) = unseen.min_by_key(|&row| self.degrees[row]) else { break };
            let mut next = self.order.len();
            self.take(first as u16);
            while next < self.order.len() {
                let row = usize::from(self.order[next]);
                let from = self.order.len();
                for at in self.starts[row]..self.starts[row + 1] {
                    self.take(self.neighbours[at as usize]);
                }
                let degrees = &self.degrees;
                self.order[from..].sort_unstable_by_key(|&row| (degrees[usize::from(row)], row));
                next += 1;
            }
        }
        self.order.reverse();
        &self.order
    }

    fn take(&mut self, row: u16) {
        if !std::mem::replace(&mut self.seen[usize::from(row)], true) {
            self.order.push(row);
        }
    }

    /// Lists the neighbours of every row, parents and children.
    fn connect(&mut self, row_count: usize, edges: &[Edge]) {
        self.starts.clear();
        self.starts.resize(row_count + 2, 0);
        for edge in edges {
            self.starts[usize::from(edge.child) + 2] += 1;
            self.starts[usize::from(edge.parent) + 2] += 1;
        }
        self.degrees.clear();
        self.degrees.extend_from_slice(&self.starts[2..]);
        for row in 2..self.starts.len() {
            self.starts[row] += self.starts[row - 1];
        }
        self.neighbours.clear();
        self.neighbours.resize(edges.len() * 2, 0);
        for &Edge { child, parent, .. } in edges {
            for (row, neighbour) in [(child, parent), (parent, child)] {
                let slot = &mut self.starts[usize::from(row) + 1];
                self.neighbours[*slot as usize] = neighbour;
                *slot += 1;
            }
        }
        self.starts.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_sequence_of_the_greatest_length_has_an_order() {
        let cells = usize::from(u16::MAX);
        let mut orders = Orders::new(RowOrder::Walk, 1);
        let (mut by_column_order, mut by_row_order) = (vec![0; cells], vec![0; cells]);
        orders.by_column(&vec![0; cells], &mut by_column_order);
        by_row(&[0], &vec![0; cells], &mut Vec::new(), &mut by_row_order);
        let expected: Vec<u16> = (0..cells).map(|place| place as u16).collect();
        assert!(by_column_order == expected && by_row_order == expected);
    }
}
