//! Splits: training, validation and test rows, by a hash of names and keys.

use std::ops::Range;

use crate::random::{Purpose, Stream};
use crate::{Error, Result};

/// How far from 1 the sum of three ratios may lie.
const SUM_TOLERANCE: f64 = 1e-6;

/// One of the three parts of a task's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Split {
    /// For training.
    Train = 0,
    /// For choosing a model.
    Val = 1,
    /// For testing the chosen model.
    Test = 2,
}

impl Split {
    /// All three, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Train, Self::Val, Self::Test];

    /// Returns the name in files, messages and Python: `train`, `val` or `test`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}

/// The shares of the three splits, as whole buckets of a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitRatios {
    train_end: u64,
    val_end: u64,
}

impl SplitRatios {
    /// The number of buckets that rows fall into.
    pub(crate) const BUCKETS: u64 = 1000;

    /// Turns ratios that add up to 1 into bounds, each rounded to the nearest thousandth.
    ///
    /// # Errors
    /// `InvalidArgument` when a ratio is negative or not a number, when they do not add up to 1
    /// within 1e-6, or when a ratio above 0 rounds to no bucket at all.
    pub fn new(train: f64, val: f64, test: f64) -> Result<Self> {
        let sum = train + val + test;
        let fits = [train, val, test].iter().all(|r| r.is_finite() && *r >= 0.0)
            && (sum - 1.0).abs() <= SUM_TOLERANCE;
        if !fits {
            return Err(Error::invalid(format!(
                "expected split ratios of 0 or more that add up to 1, found train {train}, val \
                 {val}, test {test} (sum {sum}); give three parts such as 0.8, 0.1, 0.1"
            )));
        }
        let bound = |ratio: f64| ((ratio * Self::BUCKETS as f64).round() as u64).min(Self::BUCKETS);
        let ratios = Self { train_end: bound(train), val_end: bound(train + val) };
        for (split, ratio) in Split::ALL.into_iter().zip([train, val, test]) {
            if ratio > 0.0 && ratios.bucket_count(split) == 0 {
                return Err(Error::invalid(format!(
                    "the {} ratio {ratio} rounds to none of the {} buckets that rows are \
                     divided into; give it 0.001 or more, or 0 for an empty split",
                    split.name(),
                    Self::BUCKETS
                )));
            }
        }
        Ok(ratios)
    }

    /// Returns how many of the thousand buckets belong to `split`; the plan holds these numbers.
    #[must_use]
    pub fn bucket_count(self, split: Split) -> u64 {
        self.buckets(split).len() as u64
    }

    /// Returns the buckets of `split`.
    pub(crate) fn buckets(self, split: Split) -> Range<u16> {
        let [start, end] = match split {
            Split::Train => [0, self.train_end],
            Split::Val => [self.train_end, self.val_end],
            Split::Test => [self.val_end, Self::BUCKETS],
        };
        start as u16..end as u16
    }
}

impl Default for SplitRatios {
    /// Returns 0.8, 0.1, 0.1.
    fn default() -> Self {
        Self { train_end: 800, val_end: 900 }
    }
}

/// The rule that divides the rows of every task without recorded splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitRule {
    /// The seed of the split, which is not the seed of the run: runs share their test rows.
    pub seed: u64,
    /// The share of each split.
    pub ratios: SplitRatios,
}

impl Default for SplitRule {
    /// Returns the rule of the seed 123 and the default ratios.
    fn default() -> Self {
        Self { seed: Self::DEFAULT_SEED, ratios: SplitRatios::default() }
    }
}

impl SplitRule {
    /// The seed of the default rule, by which stores record the buckets of their tasks' seeds.
    pub(crate) const DEFAULT_SEED: u64 = 123;

    /// Returns the split of the row whose anchor has this key, in the task of this name.
    ///
    /// Both identities come from names and keys ([`name_identity`](crate::random::name_identity)),
    /// never from indices.
    ///
    /// # Determinism
    /// Depends on the rule and the two identities, not on other tasks, other rows or their order.
    #[inline]
    #[must_use]
    pub fn split_of(&self, task_identity: u64, anchor_key_identity: u64) -> Split {
        let bucket = bucket_of(self.seed, task_identity, anchor_key_identity);
        // Without branches, which a processor would guess wrong for every fifth seed.
        let passed =
            [self.ratios.train_end, self.ratios.val_end].map(|end| usize::from(bucket >= end));
        Split::ALL[passed[0] + passed[1]]
    }
}

/// Returns the bucket of the row whose anchor has this key, by the rule with this seed.
#[inline]
pub(crate) fn bucket_of(seed: u64, task_identity: u64, anchor_key_identity: u64) -> u64 {
    let stream = Stream::new(seed, Purpose::Split, [task_identity, anchor_key_identity, 0]);
    stream.word(0) % SplitRatios::BUCKETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(train: f64, val: f64, test: f64) -> [u64; 3] {
        let ratios = SplitRatios::new(train, val, test).unwrap();
        Split::ALL.map(|s| ratios.bucket_count(s))
    }

    #[test]
    fn ratios_become_whole_buckets() {
        assert_eq!(counts(0.8, 0.1, 0.1), [800, 100, 100]);
        assert_eq!(counts(1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0), [333, 334, 333]);
        assert_eq!(counts(0.7, 0.3, 0.0), [700, 300, 0]);
        assert_eq!(counts(0.0, 0.9986, 0.0014), [0, 999, 1]);
    }

    #[test]
    fn default_ratios_are_eight_tenths_one_tenth_one_tenth() {
        assert_eq!(SplitRatios::default(), SplitRatios::new(0.8, 0.1, 0.1).unwrap());
    }

    #[test]
    fn invalid_ratios_are_rejected() {
        let nan = f64::NAN;
        for (train, val, test) in [
            (-0.1, 1.0, 0.1),
            (nan, 0.5, 0.5),
            (0.8, 0.1, 0.2),
            (0.8, 0.1, 0.09999),
            (f64::INFINITY, 0.0, f64::NEG_INFINITY),
            (0.999, 0.0007, 0.0003),
            (0.0, 0.0, 0.0),
        ] {
            let error = SplitRatios::new(train, val, test).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument, "{error}");
        }
    }
}
