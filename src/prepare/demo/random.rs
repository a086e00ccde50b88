//! Random numbers of the demo.

use crate::random::{Purpose, Stream};

/// The random numbers of one entity.
pub(super) struct Draws(Stream);

impl Draws {
    /// Returns the random numbers of entity `number` of one kind.
    pub(super) fn new(kind: u64, number: u64) -> Self {
        Self(Stream::new(0, Purpose::Demo, [kind, number, 0]))
    }

    /// Returns a number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Returns true in `per_mille` of 1000 cases.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// Returns one of `items`.
    pub(super) fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len() as u64) as usize]
    }
}
