//! Counter-based randomness: every random word is a function of its name and index, not of earlier
//! draws.
//!
//! The generator is Philox4x64-10 (Salmon, Moraes, Dror and Shaw, 2011), the same bits as
//! Random123 and `numpy.random.Philox`. A [`Stream`] is named by a seed, a [`Purpose`] and an
//! identity of three words; its words have random access, so no generator state is ever saved.
//! `plan/FORMAT.md` has the exact layout.

use crate::bytes::identity_of;

/// The purpose of a random stream; two purposes never share a word.
///
/// To add one: take the next free number, never change or reuse a number, add a line to the table
/// in `plan/FORMAT.md`, and pin a value in the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// The round keys of an epoch's shuffle.
    Permutation = 1,
    /// The round keys of the shuffle of one block of the schedule.
    Schedule = 2,
    /// The bucket that decides the split of a row.
    Split = 3,
    /// The draws of the demo shop.
    Demo = 4,
    /// The walk from a seed that was drawn.
    Walk = 5,
    /// The walk from a row that the caller chose.
    ChosenWalk = 6,
    /// The sample from which the quantiles of a column are taken.
    Quantiles = 7,
    /// How much earlier a train seed is observed.
    Staleness = 8,
    /// The seeds that an audit looks at, and the values that it puts in place of later ones.
    Audit = 9,
    /// The contexts of a token row.
    EventContext = 10,
    /// The cells of a sequence that are masked.
    MaskedCell = 11,
}

/// The words that belong to one (seed, purpose, identity).
///
/// # Determinism
/// A word depends on these three and its index, on nothing else.
#[derive(Clone, Debug)]
pub struct Stream {
    key: [u64; 2],
    identity: [u64; 3],
    next_index: u64,
    block: [u64; 4],
}

impl Stream {
    /// Opens the stream of `identity`, at its first word.
    #[inline]
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose, identity: [u64; 3]) -> Self {
        Self { key: [seed, purpose as u64], identity, next_index: 0, block: [0; 4] }
    }

    /// Returns the word at `index`, without moving the stream.
    #[inline]
    #[must_use]
    pub fn word(&self, index: u64) -> u64 {
        self.block(index / 4)[(index % 4) as usize]
    }

    /// Returns the next word and moves on by one.
    pub fn next_u64(&mut self) -> u64 {
        let lane = (self.next_index % 4) as usize;
        if lane == 0 {
            self.block = self.block(self.next_index / 4);
        }
        self.next_index = self.next_index.wrapping_add(1);
        self.block[lane]
    }

    /// Returns a number below `bound`, each one equally likely; 0 when `bound` is 0.
    ///
    /// Multiply-shift with rejection (Lemire, 2019). It is written
    /// here, because libraries change the number of words of a bounded draw between versions.
    pub fn below(&mut self, bound: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        if (product as u64) < bound {
            let rejected_below = bound.wrapping_neg() % bound;
            while (product as u64) < rejected_below {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as u64
    }

    /// Returns the four words from `4 * index` on, without moving the stream.
    #[inline]
    pub(crate) fn block(&self, index: u64) -> [u64; 4] {
        let [i0, i1, i2] = self.identity;
        philox4x64_10(self.key, [index, i0, i1, i2])
    }
}

/// Returns the identity of a name in a stream: the first eight bytes, little endian,
/// of the BLAKE3 of its UTF-8.
#[must_use]
pub fn name_identity(name: &str) -> u64 {
    identity_of(name.as_bytes())
}

// Without a call for each word: a split by hash takes one for each seed.
#[inline(always)]
fn philox4x64_10(key: [u64; 2], counter: [u64; 4]) -> [u64; 4] {
    const MULTIPLIERS: [u64; 2] = [0xD2E7_470E_E14C_6C93, 0xCA5A_8263_9512_1157];
    const WEYL: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBB67_AE85_84CA_A73B];
    let [mut k0, mut k1] = key;
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    for _ in 0..10 {
        let p0 = u128::from(MULTIPLIERS[0]) * u128::from(c0);
        let p1 = u128::from(MULTIPLIERS[1]) * u128::from(c2);
        (c0, c1, c2, c3) =
            ((p1 >> 64) as u64 ^ c1 ^ k0, p1 as u64, (p0 >> 64) as u64 ^ c3 ^ k1, p0 as u64);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random123's `kat_vectors` for philox4x64 10; `numpy.random.Philox` gives the same.
    #[test]
    fn p1_philox_gives_the_published_words() {
        let all = u64::MAX;
        let pi_counter = [
            0x243f_6a88_85a3_08d3,
            0x1319_8a2e_0370_7344,
            0xa409_3822_299f_31d0,
            0x082e_fa98_ec4e_6c89,
        ];
        let pi_key = [0x4528_21e6_38d0_1377, 0xbe54_66cf_34e9_0c6c];
        let known = [
            (
                [0; 2],
                [0; 4],
                [
                    0x1655_4d9e_ca36_314c,
                    0xdb20_fe9d_672d_0fdc,
                    0xd7e7_72ce_e186_176b,
                    0x7e68_b68a_ec7b_a23b,
                ],
            ),
            (
                [all; 2],
                [all; 4],
                [
                    0x87b0_92c3_013f_e90b,
                    0x438c_3c67_be8d_0224,
                    0x9cc7_d7c6_9cd7_77b6,
                    0xa09c_aebf_594f_0ba0,
                ],
            ),
            (
                pi_key,
                pi_counter,
                [
                    0xa528_f454_03e6_1d95,
                    0x38c7_2dbd_566e_9788,
                    0xa5a1_610e_72fd_18b5,
                    0x57bd_43b5_e52b_7fe6,
                ],
            ),
        ];
        for (key, counter, expected) in known {
            assert_eq!(philox4x64_10(key, counter), expected, "key {key:x?}, counter {counter:x?}");
        }
    }

    #[test]
    fn sequential_words_are_the_random_access_words() {
        let stream = Stream::new(7, Purpose::Permutation, [1, 2, 3]);
        let mut moving = stream.clone();
        for index in 0..41 {
            assert_eq!(moving.next_u64(), stream.word(index));
        }
    }

    #[test]
    fn every_part_of_a_streams_name_changes_its_words() {
        let words = [
            Stream::new(0, Purpose::Permutation, [0, 0, 0]).word(0),
            Stream::new(1, Purpose::Permutation, [0, 0, 0]).word(0),
            Stream::new(0, Purpose::Schedule, [0, 0, 0]).word(0),
            Stream::new(0, Purpose::Split, [0, 0, 0]).word(0),
            Stream::new(0, Purpose::Permutation, [1, 0, 0]).word(0),
            Stream::new(0, Purpose::Permutation, [0, 1, 0]).word(0),
            Stream::new(0, Purpose::Permutation, [0, 0, 1]).word(0),
            Stream::new(0, Purpose::Permutation, [0, 0, 0]).word(4),
        ];
        let distinct: std::collections::BTreeSet<_> = words.iter().collect();
        assert_eq!(distinct.len(), words.len());
    }

    #[test]
    fn bounded_draws_reach_every_value_about_equally_often() {
        for bound in [1, 2, 3, 7, 1000] {
            let mut stream = Stream::new(5, Purpose::Permutation, [bound, 0, 0]);
            let mut counts = vec![0_u64; bound as usize];
            for _ in 0..bound * 1000 {
                counts[stream.below(bound) as usize] += 1;
            }
            // Five standard deviations and a half of a count with mean 1000.
            assert!(counts.iter().all(|&c| bound == 1 || c.abs_diff(1000) < 175), "{counts:?}");
        }
        assert_eq!(Stream::new(5, Purpose::Permutation, [0; 3]).below(0), 0);
    }

    /// Just above half the range nearly every second word is rejected.
    #[test]
    fn bounded_draws_reject_words_that_would_bias_them() {
        let bound = (1 << 63) + 1;
        let mut stream = Stream::new(5, Purpose::Permutation, [0; 3]);
        for _ in 0..1000 {
            assert!(stream.below(bound) < bound);
        }
        assert!((1800..2200).contains(&stream.next_index), "{} words", stream.next_index);
    }

    #[test]
    fn p1_golden_values_of_the_streams() {
        let mut stream = Stream::new(42, Purpose::Permutation, [1, 2, 3]);
        let below: Vec<u64> = (0..6).map(|_| stream.below(1000)).collect();
        assert_eq!(below, [621, 202, 316, 680, 57, 892]);
        // From numpy: Philox(key=42 | 1 << 64, counter=250000000 | 1 << 64 | 2 << 128 | 3 << 192),
        // which counts before it draws, fourth word.
        assert_eq!(stream.word(1_000_000_007), 0x3cc7_804a_f134_3e37);
        assert_eq!(name_identity("orders.status"), 0xc3eb_85f7_7389_b973);
        assert_eq!(name_identity("events"), 0xd624_e7e0_dcaf_f975);
        assert_eq!(name_identity(""), 0xa6a1_f9f5_b949_13af);
    }
}
