//! The demo's draws.

use crate::random::{Purpose, Stream};

/// The draws for one thing.
pub(super) struct Draws(Stream);

impl Draws {
    /// The draws of thing `number` of one kind.
    pub(super) fn new(kind: u64, number: u64) -> Self {
        Self(Stream::new(0, Purpose::Demo, [kind, number, 0]))
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// True in `per_mille` of 1000 cases.
    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `things`.
    pub(super) fn pick<'a>(&mut self, things: &[&'a str]) -> &'a str {
        things[self.below(things.len() as u64) as usize]
    }
}
