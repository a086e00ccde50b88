//! Counts distinct values by their hashes.

/// The distinct values of a column, as hashes, up to a limit.
pub(in crate::prepare) struct Distinct {
    hashes: Vec<u64>,
    limit: Option<usize>,
    settled: usize,
    /// Whether a value occurred twice before the limit.
    pub(super) repeats: bool,
    /// Whether there are more values than the limit; the hashes are dropped.
    pub(super) overflowed: bool,
}

impl Distinct {
    pub(super) fn new(limit: Option<usize>) -> Self {
        Self { hashes: Vec::new(), limit, settled: 0, repeats: false, overflowed: false }
    }

    pub(super) fn add(&mut self, hash: u64) {
        if self.overflowed {
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
        if self.limit.is_some_and(|limit| self.settled > limit) {
            self.overflowed = true;
            self.hashes = Vec::new();
        }
    }

    /// Returns the number of values; `None` if there are more than the limit.
    pub(in crate::prepare) fn count(&self) -> Option<u64> {
        (!self.overflowed).then_some(self.hashes.len() as u64)
    }

    /// Counts the values that are not among `keys`.
    pub(in crate::prepare) fn missing_from(&self, keys: &Self) -> u64 {
        self.hashes.iter().filter(|&&hash| !keys.contains(hash)).count() as u64
    }

    /// Whether each value is one of `texts`.
    pub(in crate::prepare) fn are_among(&self, texts: &[&str]) -> bool {
        !self.overflowed
            && self.hashes.iter().all(|&hash| texts.iter().any(|text| hash_text(text) == hash))
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok()
    }
}

/// Hashes an integer like its decimal text, because both are the same key.
pub(super) fn hash_integer(value: i64) -> u64 {
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
pub(super) fn mix(mut value: u64) -> u64 {
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
