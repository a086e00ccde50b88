//! A keyed shuffle of `0..n` with random access to every element and no table.

use crate::random::{Purpose, Stream};
use crate::{Error, Result};

/// The longest sequence that can be shuffled.
const COUNT_MAX: u64 = 1 << 48;
/// Shorter sequences take more rounds: their halves are so small that rounds mix little.
const SHORT_BELOW: u64 = 1024;
const ROUNDS_SHORT: usize = 24;
const ROUNDS_LONG: usize = 12;

/// A bijection of `0..count`: the item at each position of a shuffle.
///
/// A Feistel network over Z_a x Z_b, walked until it lands in the range; `plan/FORMAT.md` has
/// the arithmetic and the evidence for its number of rounds.
///
/// # Determinism
/// The bijection depends on (count, seed, purpose, identity), on nothing else.
///
/// # Cost
/// About 200 bytes for any count; every element costs the same, however far from the start.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    /// a = ceil(sqrt(count)), the range of the left half.
    left_count: u64,
    /// b = ceil(count / a), the range of the right half.
    right_count: u64,
    round_keys: [u64; ROUNDS_SHORT],
    rounds: usize,
}

impl Permutation {
    /// Makes the shuffle of `0..count` that belongs to a seed, a purpose and an identity.
    ///
    /// # Errors
    /// `InvalidArgument` unless `count` is 1 to 2^48.
    pub fn new(count: u64, seed: u64, purpose: Purpose, identity: [u64; 3]) -> Result<Self> {
        if count == 0 || count > COUNT_MAX {
            return Err(Error::invalid(format!(
                "expected a sequence of 1 to {COUNT_MAX} (2^48) items to shuffle, found {count}; \
                 an empty sequence has no shuffle, and a longer one must be divided first"
            )));
        }
        let root = count.isqrt();
        let left_count = if root * root < count { root + 1 } else { root };
        let mut stream = Stream::new(seed, purpose, identity);
        let mut round_keys = [0; ROUNDS_SHORT];
        let rounds = if count < SHORT_BELOW { ROUNDS_SHORT } else { ROUNDS_LONG };
        round_keys[..rounds].fill_with(|| stream.next_u64());
        Ok(Self { count, left_count, right_count: count.div_ceil(left_count), round_keys, rounds })
    }

    /// Returns the number of items.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the item at `position`.
    ///
    /// # Panics
    /// When `position` is not below `count`.
    #[must_use]
    pub fn at(&self, position: u64) -> u64 {
        assert!(position < self.count, "position {position} of a shuffle of {} items", self.count);
        let mut item = position;
        // The domain exceeds the range by less than a, so that a second turn is rare; from within
        // the range a cycle always comes back to it.
        loop {
            item = self.turn(item);
            if item < self.count {
                return item;
            }
        }
    }

    fn turn(&self, item: u64) -> u64 {
        let mut left = item / self.right_count;
        let mut right = item % self.right_count;
        for keys in self.round_keys[..self.rounds].chunks_exact(2) {
            left += scatter(right, keys[0], self.left_count);
            if left >= self.left_count {
                left -= self.left_count;
            }
            right += scatter(left, keys[1], self.right_count);
            if right >= self.right_count {
                right -= self.right_count;
            }
        }
        left * self.right_count + right
    }
}

/// Returns a number below `bound` that depends on half of an item and a round key.
fn scatter(half: u64, round_key: u64, bound: u64) -> u64 {
    let mut mixed = (half ^ round_key).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    ((u128::from(mixed) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(count: u64, key: u64) -> Permutation {
        Permutation::new(count, key, Purpose::Permutation, [0; 3]).unwrap()
    }

    #[test]
    fn p5_every_short_length_is_a_bijection() {
        for count in 1..=600 {
            let mut seen = vec![false; count as usize];
            let permutation = shuffled(count, count);
            (0..count).for_each(|p| seen[permutation.at(p) as usize] = true);
            assert!(seen.iter().all(|&s| s), "{count}");
        }
    }

    #[test]
    fn the_domain_exceeds_the_range_by_less_than_its_side() {
        for count in (1..2000).chain([COUNT_MAX - 1, COUNT_MAX, (1 << 46) + 1, 999_999_999_999]) {
            let p = shuffled(count, 0);
            let domain = p.left_count * p.right_count;
            assert!(domain >= count && domain - count < p.left_count, "{count}");
        }
    }

    #[test]
    fn lengths_out_of_range_are_rejected() {
        for count in [0, COUNT_MAX + 1, u64::MAX] {
            let error = Permutation::new(count, 0, Purpose::Permutation, [0; 3]).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(&format!("found {count};")), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "position 5 of a shuffle of 5 items")]
    fn a_position_past_the_end_panics() {
        let _ = shuffled(5, 0).at(5);
    }
}
