//! Different values, kept as hashes.

/// The different values of a column, as hashes, up to a limit.
pub(in crate::prepare) struct Distinct {
    hashes: Vec<u64>,
    limit: Option<usize>,
    settled: usize,
    /// A value came twice while all were kept.
    pub(super) repeats: bool,
    /// There are more than the limit; the hashes are gone.
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
        // Sorting only when the list has doubled keeps the whole at O(n log n).
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

    /// How many there are; none where there are more than the limit.
    pub(in crate::prepare) fn count(&self) -> Option<u64> {
        (!self.overflowed).then_some(self.hashes.len() as u64)
    }

    /// How many are not among `keys`.
    pub(in crate::prepare) fn missing_from(&self, keys: &Self) -> u64 {
        self.hashes.iter().filter(|&&hash| !keys.contains(hash)).count() as u64
    }

    /// Whether each of them is one of `words`.
    pub(in crate::prepare) fn are_among(&self, words: &[&str]) -> bool {
        !self.overflowed
            && self.hashes.iter().all(|&hash| words.iter().any(|word| hash_word(word) == hash))
    }

    pub(super) fn contains(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok()
    }
}

/// An integer and its decimal text have one hash, as they are one key.
pub(super) fn hash_integer(value: i64) -> u64 {
    mix(value as u64 ^ 0x9e37_79b9_7f4a_7c15)
}

pub(super) fn hash_word(word: &str) -> u64 {
    if let Some(integer) = canonical_integer(word) {
        return hash_integer(integer);
    }
    let mut hash = word.len() as u64;
    for chunk in word.as_bytes().chunks(8) {
        let mut block = [0; 8];
        block[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(block));
    }
    mix(hash)
}

/// A bijection of 64 bits that leaves no trace of their order (the finaliser of SplitMix64).
pub(super) fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The integer that is written in no other way than this.
pub(super) fn canonical_integer(word: &str) -> Option<i64> {
    let digits = word.strip_prefix('-').unwrap_or(word).as_bytes();
    let plain = match digits {
        [b'0'] => word.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if plain { word.parse().ok() } else { None }
}
