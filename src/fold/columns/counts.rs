//! Counts: the partial of every histogram.

use std::ops::Range;

use crate::bytes::{copied, filled, reserve};
use crate::error::{Error, Result};

use super::words;
use crate::fold::statistic::{Partial, TryClone};

/// The most counts: 512 MiB.
const COUNTS_MAX: usize = 1 << 26;

/// The counts of the bins of all columns.
///
/// Merging adds and saturates at 2^64 - 1: it is exact in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts(Vec<u64>);

impl Counts {
    /// Returns the counts, column by column.
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.0
    }

    /// Returns the counts, to be changed in place.
    pub(super) fn values_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    pub(super) fn zeros(count: usize) -> Result<Self> {
        filled(0, count).map(Self)
    }

    /// Returns the sum of the counts of some bins.
    pub(super) fn of_bins(&self, bins: Range<usize>) -> u64 {
        self.0[bins].iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        words::write(self.0.iter().copied(), bytes);
    }

    pub(super) fn decode(bytes: &[u8], count: usize) -> Result<Self> {
        let words = words::decode(bytes, count, "counts")?;
        let mut counts = reserve(count)?;
        counts.extend(words);
        Ok(Self(counts))
    }
}

/// Adds one to a count of a leaf. There are fewer rows than 2^64, and a check would take time.
#[inline]
pub(super) fn add_one(count: &mut u64) {
    *count = count.wrapping_add(1);
}

/// Returns the number of counts of a histogram with these bins in each column.
///
/// # Errors
/// `InvalidArgument` for no columns, `LimitExceeded` for too many counts.
pub(super) fn check_counts(bins: impl Iterator<Item = usize>) -> Result<usize> {
    match bins.fold(0, usize::saturating_add) {
        0 => Err(Error::invalid("expected at least 1 column, found 0")),
        count @ 1..=COUNTS_MAX => Ok(count),
        count => Err(Error::limit(format!(
            "expected at most {COUNTS_MAX} counts, found {count}; take fewer columns or bins"
        ))),
    }
}

impl TryClone for Counts {
    fn try_clone(&self) -> Result<Self> {
        copied(&self.0).map(Self)
    }
}

impl Partial for Counts {
    fn merge(&mut self, right: &Self) {
        assert_eq!(self.0.len(), right.0.len(), "partials of one statistic have one size");
        for (left, right) in self.0.iter_mut().zip(&right.0) {
            *left = left.saturating_add(*right);
        }
    }

    fn same_bits(&self, other: &Self) -> bool {
        self == other
    }
}
