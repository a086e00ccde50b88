//! Counts of many bins of which few may be used: the partial of quantiles.

use std::ops::Range;

use crate::bytes::{copied, filled, reserve};
use crate::error::Result;

use super::words;
use crate::fold::statistic::{Partial, TryClone};

/// The counts of the bins of all columns.
///
/// In memory, only the bins with a count above 0 are kept while they are few; the bytes have all bins.
/// Merging adds and saturates at 2^64 - 1: it is exact in any order.
#[derive(Clone, Debug)]
pub struct DigitCounts {
    bins: usize,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// The bins with a count above 0, each with its count, in order.
    Few(Vec<(u32, u64)>),
    /// The counts of all bins.
    All(Vec<u64>),
}

impl DigitCounts {
    /// Returns counts of 0. There are at most 2^32 bins.
    pub(super) fn zeros(bins: usize) -> Self {
        Self { bins, form: Form::Few(Vec::new()) }
    }

    /// Returns the bins with a count above 0, in order, each with its count.
    pub fn used(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.used_of(0..self.bins)
    }

    /// Returns those of some bins.
    pub(super) fn used_of(&self, bins: Range<usize>) -> impl Iterator<Item = (usize, u64)> + '_ {
        let (few, all) = match &self.form {
            Form::Few(few) => {
                let place = |bin: usize| few.partition_point(|(used, _)| (*used as usize) < bin);
                (&few[place(bins.start)..place(bins.end)], &[][..])
            }
            Form::All(all) => (&[][..], &all[bins.clone()]),
        };
        let few = few.iter().map(|(bin, count)| (*bin as usize, *count));
        let all = bins.zip(all.iter().copied());
        few.chain(all.filter(|(_, count)| *count > 0))
    }

    /// Returns the count of one bin.
    pub(super) fn of_bin(&self, bin: usize) -> u64 {
        self.of_bins(bin..bin + 1)
    }

    /// Returns the sum of the counts of some bins.
    pub(super) fn of_bins(&self, bins: Range<usize>) -> u64 {
        self.used_of(bins).fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Adds one to the bin of each hit, and empties `hits`.
    pub(super) fn count_each(&mut self, hits: &mut Vec<u32>) {
        if let Form::All(all) = &mut self.form {
            for &bin in &*hits {
                all[bin as usize] += 1;
            }
        } else {
            hits.sort_unstable();
            let runs = hits.chunk_by(|a, b| a == b);
            self.add(runs.map(|run| (run[0], run.len() as u64)).collect());
        }
        hits.clear();
    }

    /// Adds counts above 0 of some bins, in order.
    pub(super) fn add(&mut self, more: Vec<(u32, u64)>) {
        match &mut self.form {
            Form::All(all) => {
                for (bin, count) in more {
                    let sum = &mut all[bin as usize];
                    *sum = sum.saturating_add(count);
                }
            }
            Form::Few(few) if few.is_empty() => *few = more,
            Form::Few(few) => *few = merged(few, &more),
        }
        self.spread();
    }

    /// Keeps all bins as soon as they take less memory. Without memory for that, the few stay.
    fn spread(&mut self) {
        let Form::Few(few) = &self.form else { return };
        if few.len() * size_of::<(u32, u64)>() < self.bins * size_of::<u64>() {
            return;
        }
        if let Ok(mut all) = filled(0, self.bins) {
            for &(bin, count) in few {
                all[bin as usize] = count;
            }
            self.form = Form::All(all);
        }
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        match &self.form {
            Form::All(all) => words::write(all.iter().copied(), bytes),
            Form::Few(few) => {
                let start = bytes.len();
                bytes.resize(start + self.bins * size_of::<u64>(), 0);
                let words = bytes[start..].as_chunks_mut().0;
                for &(bin, count) in few {
                    words[bin as usize] = count.to_le_bytes();
                }
            }
        }
    }

    pub(super) fn decode(bytes: &[u8], bins: usize) -> Result<Self> {
        let words = words::decode(bytes, bins, "counts")?;
        let used = bytes.as_chunks::<8>().0.iter().filter(|word| **word != [0; 8]).count();
        if used * size_of::<(u32, u64)>() < bins * size_of::<u64>() {
            let mut few = reserve(used)?;
            few.extend((0..).zip(words).filter(|(_, count)| *count > 0));
            return Ok(Self { bins, form: Form::Few(few) });
        }
        let mut all = reserve(bins)?;
        all.extend(words);
        Ok(Self { bins, form: Form::All(all) })
    }
}

/// Returns the sums of two lists of counts of bins, each in order.
fn merged(left: &[(u32, u64)], right: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut sums = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left, right);
    while let ([a, after_a @ ..], [b, after_b @ ..]) = (left, right) {
        if a.0 == b.0 {
            sums.push((a.0, a.1.saturating_add(b.1)));
            (left, right) = (after_a, after_b);
        } else if a.0 < b.0 {
            sums.push(*a);
            left = after_a;
        } else {
            sums.push(*b);
            right = after_b;
        }
    }
    sums.extend(left);
    sums.extend(right);
    sums
}

impl TryClone for DigitCounts {
    fn try_clone(&self) -> Result<Self> {
        let form = match &self.form {
            Form::Few(few) => Form::Few(copied(few)?),
            Form::All(all) => Form::All(copied(all)?),
        };
        Ok(Self { bins: self.bins, form })
    }
}

impl Partial for DigitCounts {
    fn merge(&mut self, right: &Self) {
        assert_eq!(self.bins, right.bins, "partials of one statistic have one size");
        match (&mut self.form, &right.form) {
            (Form::All(left), Form::All(right)) => {
                for (left, right) in left.iter_mut().zip(right) {
                    *left = left.saturating_add(*right);
                }
            }
            (_, Form::Few(few)) => self.add(few.clone()),
            (Form::Few(_), Form::All(_)) => {
                let few = std::mem::replace(self, right.clone());
                self.add(few.used().map(|(bin, count)| (bin as u32, count)).collect());
            }
        }
    }

    fn same_bits(&self, other: &Self) -> bool {
        self.bins == other.bins && self.used().eq(other.used())
    }
}

impl PartialEq for DigitCounts {
    fn eq(&self, other: &Self) -> bool {
        self.same_bits(other)
    }
}
