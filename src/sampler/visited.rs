//! The rows that a walk has visited, and the place of each in the context.

/// A set of rows that is emptied in constant time.
///
/// # Cost
/// At least two slots for each row of the greatest context; allocated once.
pub(super) struct Visited {
    slots: Vec<Slot>,
    /// A slot of another generation is empty.
    generation: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    generation: u32,
    table: u32,
    row: u32,
    place: u32,
}

impl Visited {
    pub(super) fn new(rows_max: u32) -> Self {
        let slots = (rows_max as usize * 2).next_power_of_two();
        Self { slots: vec![Slot::default(); slots], generation: 0 }
    }

    /// Forgets all rows.
    pub(super) fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            self.slots.fill(Slot::default());
            self.generation = 1;
        }
    }

    /// Returns the place of a row, if it was visited.
    pub(super) fn get(&self, table: u32, row: u32) -> Option<u32> {
        let slot = &self.slots[self.slot(table, row)];
        (slot.generation == self.generation).then_some(slot.place)
    }

    /// Adds a row that is not in the set.
    pub(super) fn insert(&mut self, table: u32, row: u32, place: u32) {
        let slot = self.slot(table, row);
        self.slots[slot] = Slot { generation: self.generation, table, row, place };
    }

    /// Returns the slot of the row, or the empty slot for it.
    fn slot(&self, table: u32, row: u32) -> usize {
        let mask = self.slots.len() - 1;
        // The golden ratio spreads consecutive rows.
        let hash = (u64::from(table) << 32 | u64::from(row)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut at = (hash >> 32) as usize & mask;
        loop {
            let slot = &self.slots[at];
            if slot.generation != self.generation || (slot.table == table && slot.row == row) {
                return at;
            }
            at = (at + 1) & mask;
        }
    }
}
