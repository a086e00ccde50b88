//! The demo's own randomness: integers only, so that every platform draws the same.

/// A stream of draws (SplitMix64).
pub(super) struct Draws(u64);

impl Draws {
    /// The stream of one thing of one kind.
    pub(super) fn new(kind: u64, number: u64) -> Self {
        let mut draws = Self(kind << 32 ^ number);
        // Two rounds part the streams of neighbours.
        Self(draws.next() ^ draws.next().rotate_left(32))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `bound`. The bounds here are so small that the bias is below 2^-40.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
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
