//! The seeds of a task that are in one split: a bit for each, and the seed at an ordinal.

/// The number of words that share one recorded count.
const GROUP_WORDS: usize = 8;

/// A set of seeds, in the order of their numbers.
///
/// # Cost
/// 1.06 bits for each seed. Finding one takes a binary search over the groups and at most 512 bits.
pub(super) struct Subset {
    words: Vec<u64>,
    /// The number of seeds before each group of words.
    before: Vec<u32>,
    count: u32,
}

impl Subset {
    pub(super) fn new(words: Vec<u64>) -> Self {
        let mut count = 0;
        let before = (words.chunks(GROUP_WORDS))
            .map(|group| {
                let before = count;
                count += group.iter().map(|word| word.count_ones()).sum::<u32>();
                before
            })
            .collect();
        Self { words, before, count }
    }

    /// Returns the number of seeds.
    pub(super) fn count(&self) -> u64 {
        u64::from(self.count)
    }

    /// Whether the set has this seed.
    pub(super) fn contains(&self, seed_index: u32) -> bool {
        self.words[seed_index as usize / 64] >> (seed_index % 64) & 1 == 1
    }

    /// Returns the `seed_index` at `ordinal`, which must be below the count.
    pub(super) fn at(&self, ordinal: u64) -> u32 {
        debug_assert!(ordinal < self.count());
        let group = self.before.partition_point(|&before| u64::from(before) <= ordinal) - 1;
        let mut rest = (ordinal - u64::from(self.before[group])) as u32;
        for (place, &word) in self.words.iter().enumerate().skip(group * GROUP_WORDS) {
            let here = word.count_ones();
            if rest < here {
                return (place * 64) as u32 + nth_bit(word, rest);
            }
            rest -= here;
        }
        unreachable!("an ordinal below the count is in some word")
    }
}

/// Returns the place of the set bit of `word` that has `rank` set bits below it.
fn nth_bit(mut word: u64, rank: u32) -> u32 {
    for _ in 0..rank {
        word &= word - 1;
    }
    word.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn every_ordinal_leads_to_its_seed() {
        let mut random = Stream::new(1, Purpose::Walk, [0; 3]);
        for (words, density) in [(0, 1), (1, 2), (7, 3), (8, 1), (9, 50), (200, 2), (200, 700)] {
            let seeds: Vec<u32> = (0..words * 64).filter(|_| random.below(density) == 0).collect();
            let mut bits = vec![0_u64; words as usize];
            seeds.iter().for_each(|&seed| bits[seed as usize / 64] |= 1 << (seed % 64));
            let subset = Subset::new(bits);
            let found: Vec<u32> = (0..subset.count()).map(|ordinal| subset.at(ordinal)).collect();
            assert_eq!(found, seeds);
            let contained = (0..words * 64).filter(|&seed| subset.contains(seed));
            assert_eq!(contained.collect::<Vec<_>>(), seeds);
        }
    }
}
