//! Counts distinct values by their hashes.

use crate::bytes::make_room;
use crate::error::Result;

/// Which distinct values of a column are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::prepare) enum Keep {
    All,
    /// All as long as no value occurs twice, then a sample if there are more than this many.
    Unique(usize),
    /// A sample if there are more than this many.
    Few(usize),
}

/// The distinct values of a column, as hashes; of too many a sample.
///
/// The sample has the least hashes, so that it depends on the values alone: not on their order or
/// their number. A value of the sample is in another column exactly if its hash is there.
pub(in crate::prepare) struct Distinct {
    hashes: Vec<u64>,
    keep: Keep,
    settled: usize,
    /// Whether a value occurred twice before the limit.
    pub(super) repeats: bool,
    /// Whether the hashes are only a sample.
    pub(super) overflowed: bool,
    /// The greatest hash of the sample.
    bound: u64,
}

impl Distinct {
    pub(super) fn new(keep: Keep) -> Self {
        let (hashes, settled, bound) = (Vec::new(), 0, u64::MAX);
        Self { hashes, keep, settled, repeats: false, overflowed: false, bound }
    }

    /// Makes room for `count` values that are added next.
    pub(super) fn make_room(&mut self, count: usize) -> Result<()> {
        make_room(&mut self.hashes, count)
    }

    pub(super) fn add(&mut self, hash: u64) {
        if self.overflowed && hash >= self.bound {
            return;
        }
        if self.hashes.last() == Some(&hash) {
            self.repeats = true;
            return;
        }
        self.hashes.push(hash);
        // Sorting only when the list has doubled keeps the total cost at O(n log n).
        if self.hashes.len() >= 2 * self.settled.max(1 << 13) {
            self.settle();
        }
    }

    pub(super) fn settle(&mut self) {
        let before = self.hashes.len();
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.repeats |= self.hashes.len() < before;
        self.settled = self.hashes.len();
        let limit = match self.keep {
            Keep::All => return,
            Keep::Unique(_) if !self.repeats => return,
            Keep::Unique(limit) | Keep::Few(limit) => limit.max(1),
        };
        if self.settled > limit {
            self.overflowed = true;
            self.hashes.truncate(limit);
            self.hashes.shrink_to(2 * limit);
            self.settled = limit;
            self.bound = self.hashes[limit - 1];
        }
    }

    /// Keeps no more than a sample of values that turn out not to identify rows.
    pub(super) fn keep_few(&mut self) {
        if let Keep::Unique(limit) = self.keep {
            self.keep = Keep::Few(limit);
        }
    }

    /// Returns the number of values; `None` if they are only a sample.
    pub(in crate::prepare) fn count(&self) -> Option<u64> {
        (!self.overflowed).then_some(self.hashes.len() as u64)
    }

    /// Returns the number of values, of more than the limit an estimate.
    pub(in crate::prepare) fn estimate(&self) -> f64 {
        match self.overflowed {
            false => self.hashes.len() as f64,
            true => self.hashes.len() as f64 * (u64::MAX as f64 / self.bound.max(1) as f64),
        }
    }

    /// Returns the size of the sample, or the number of values if all are kept.
    pub(in crate::prepare) fn kept(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// Counts the values, or those of the sample, that are not among `keys`.
    pub(in crate::prepare) fn missing_from(&self, keys: &Self) -> u64 {
        self.hashes.iter().filter(|&&hash| !keys.contains(hash)).count() as u64
    }

    /// Counts the values, or those of the sample, that are not among `keys`; `None` if they are more
    /// than `most`, which a few values show.
    pub(in crate::prepare) fn few_missing_from(&self, keys: &Self, most: u64) -> Option<u64> {
        let missing = |hashes: &[u64], most: u64| {
            let missing = hashes.iter().filter(|&&hash| !keys.contains(hash));
            let count = missing.take(most as usize + 1).count() as u64;
            (count <= most).then_some(count)
        };
        let first = &self.hashes[..self.hashes.len().min(16)];
        missing(first, most.min(first.len() as u64 / 2))?;
        missing(&self.hashes, most)
    }

    /// Whether each value is one of `texts`.
    pub(in crate::prepare) fn are_among(&self, texts: &[&str]) -> bool {
        !self.overflowed
            && self.hashes.iter().all(|&hash| texts.iter().any(|text| hash_text(text) == hash))
    }

    pub(in crate::prepare) fn contains(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok()
    }
}

/// Hashes an integer like its decimal text, because both are the same key.
pub(in crate::prepare) fn hash_integer(value: i64) -> u64 {
    mix(value as u64 ^ 0x9e37_79b9_7f4a_7c15)
}

pub(super) fn hash_text(text: &str) -> u64 {
    if let Some(integer) = canonical_integer(text) {
        return hash_integer(integer);
    }
    let mut hash = text.len() as u64;
    for chunk in text.as_bytes().chunks(8) {
        let mut block = [0; 8];
        block[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(block));
    }
    mix(hash)
}

/// A bijection of 64 bits that mixes all of them (the finaliser of SplitMix64).
pub(in crate::prepare) fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Returns the integer whose only decimal text this is.
pub(super) fn canonical_integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if plain { text.parse().ok() } else { None }
}
