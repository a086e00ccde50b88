//! The seeds of a task that are in one split.

use std::sync::Arc;

use crate::error::Result;
use crate::store::{GroupSet, Groups, RUN};

/// The number of words that share one recorded count.
const GROUP_WORDS: usize = 8;
/// The number of seeds whose groups are compared at once.
const TOGETHER: usize = 128;

/// A set of seeds, in the order of their numbers.
pub(super) enum Subset {
    /// By the groups that the store records.
    Grouped(Grouped),
    /// By a bit for each seed.
    Bits(Bits),
}

impl Subset {
    /// Returns the number of seeds.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Grouped(grouped) => u64::from(grouped.count),
            Self::Bits(bits) => u64::from(bits.count),
        }
    }

    /// Whether the set has this seed.
    ///
    /// # Errors
    /// `Corrupt` when the store is damaged.
    pub(super) fn contains(&self, seed_index: u32) -> Result<bool> {
        match self {
            Self::Grouped(grouped) => grouped.contains(seed_index),
            Self::Bits(bits) => Ok(bits.contains(seed_index)),
        }
    }

    /// Reads ahead what [`Self::at`] will look at, if memory does not hold the store.
    pub(super) fn read_ahead(&self, ordinal: u64) {
        if let Self::Grouped(grouped) = self {
            grouped.groups.read_ahead(grouped.run_of(ordinal as u32));
        }
    }

    /// Returns the `seed_index` at `ordinal`, which must be below the count.
    ///
    /// # Errors
    /// `Corrupt` when the store is damaged.
    pub(super) fn at(&self, ordinal: u64) -> Result<u32> {
        debug_assert!(ordinal < self.count());
        match self {
            Self::Grouped(grouped) => grouped.at(ordinal as u32),
            Self::Bits(bits) => Ok(bits.at(ordinal as u32)),
        }
    }
}

/// Seeds of some groups. Nothing is read of a seed before it is asked for.
///
/// # Cost
/// Two bytes for each thousand seeds. Finding one takes a binary search over the runs and a look at up to
/// [`RUN`] groups.
pub(super) struct Grouped {
    groups: Arc<Groups>,
    wanted: GroupSet,
    /// The number of seeds of the set before each run.
    before: Vec<u32>,
    count: u32,
}

impl Grouped {
    /// Returns the seeds in the wanted groups; all counts add up to the seeds.
    pub(super) fn new(groups: Arc<Groups>, wanted: GroupSet) -> Result<Self> {
        let mut count = 0;
        let mut before = Vec::with_capacity(groups.run_count());
        for run in 0..groups.run_count() {
            before.push(count);
            count += groups.count(run, &wanted)?;
        }
        Ok(Self { groups, wanted, before, count })
    }

    fn contains(&self, seed_index: u32) -> Result<bool> {
        Ok(self.wanted.contains(self.groups.of_seed(seed_index)?))
    }

    /// Returns the run of the seed at `ordinal`.
    fn run_of(&self, ordinal: u32) -> usize {
        self.before.partition_point(|&before| before <= ordinal) - 1
    }

    fn at(&self, ordinal: u32) -> Result<u32> {
        let run = self.run_of(ordinal);
        let mut rest = ordinal - self.before[run];
        let is_wanted = |group: &&u16| self.wanted.contains(**group);
        for (piece, groups) in self.groups.of_run(run)?.chunks(TOGETHER).enumerate() {
            // A sum that is checked at each step would look at one group at a time.
            let here = groups.iter().fold(0_u16, |count, &group| {
                count.wrapping_add(u16::from(self.wanted.contains(group)))
            });
            let here = u32::from(here);
            if rest < here {
                let mut places = groups.iter().enumerate().filter(|(_, group)| is_wanted(group));
                let place = places.nth(rest as usize).map_or(0, |(place, _)| place);
                return Ok((run * RUN + piece * TOGETHER + place) as u32);
            }
            rest -= here;
        }
        Err(self.groups.miscounted(run))
    }
}

/// A bit for each seed.
///
/// # Cost
/// 1.06 bits for each seed. Finding one takes a binary search over the groups of words and at most 512 bits.
pub(super) struct Bits {
    words: Vec<u64>,
    /// The number of seeds before each group of words.
    before: Vec<u32>,
    count: u32,
}

impl Bits {
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

    fn contains(&self, seed_index: u32) -> bool {
        self.words[seed_index as usize / 64] >> (seed_index % 64) & 1 == 1
    }

    fn at(&self, ordinal: u32) -> u32 {
        let group = self.before.partition_point(|&before| before <= ordinal) - 1;
        let mut rest = ordinal - self.before[group];
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
            let subset = Subset::Bits(Bits::new(bits));
            let found: Vec<u32> =
                (0..subset.count()).map(|ordinal| subset.at(ordinal).unwrap()).collect();
            assert_eq!(found, seeds);
            let contained = (0..words * 64).filter(|&seed| subset.contains(seed).unwrap());
            assert_eq!(contained.collect::<Vec<_>>(), seeds);
        }
    }
}
