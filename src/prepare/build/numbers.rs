//! Summarises the numbers of a column: their moments on the column's scale, and their quantiles.

use crate::fold::{Moments, ZScore};
use crate::prepare::schema::ScaleName;
use crate::random::{Purpose, Stream};
use crate::store::{ColumnStats, Scale, Scorer};

/// The most numbers from which quantiles are taken: all of a column, or a sample of this size, in which
/// the share of smaller numbers is that of the column to within some tenths of a percent.
const SAMPLE: usize = 1 << 16;
/// The parts of equal size into which quantiles divide the numbers.
const PARTS: usize = 256;

/// A summary of the numbers of a column, still growing.
#[derive(Clone)]
pub(in crate::prepare) struct Numbers {
    /// The moments of the places on the scale; none for ranks, whose moments are known.
    pub moments: Moments,
    scale: ScaleName,
    min: f64,
    max: f64,
    sample: Sample,
    /// Whether these are the numbers of the training period alone.
    is_restricted: bool,
}

impl Numbers {
    pub(super) fn new(scale: ScaleName) -> Self {
        let (moments, sample) = (Moments::default(), Sample::default());
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { moments, scale, min, max, sample, is_restricted: false }
    }

    /// Returns an empty summary on the same scale.
    pub(super) fn emptied(&self) -> Self {
        Self::new(self.scale)
    }

    /// Says that other numbers of the column have no part in the statistics, so that these may have no scale.
    pub(super) fn restrict(&mut self) {
        self.is_restricted = true;
    }

    pub(super) fn push(&mut self, number: f64) {
        (self.min, self.max) = (self.min.min(number), self.max.max(number));
        match self.scale {
            ScaleName::Linear => self.moments.push(number),
            ScaleName::Log => self.moments.push(Scale::Log.of(number)),
            ScaleName::Rank => self.sample.push(number),
        }
    }

    /// Returns the conversion of the numbers to z-scores.
    pub(super) fn scorer(&self) -> Scorer {
        if self.is_restricted && !self.is_scaled() {
            // Logarithms are the scale that needs no numbers and makes none absurd. The known numbers, which
            // are all but equal, are at 0, as those of a constant are.
            let mean = Scale::Log.of(self.range().0);
            return Scorer { scale: Scale::Log, z_score: ZScore { mean, std: 1.0 } };
        }
        match self.scale {
            ScaleName::Linear => Scorer { scale: Scale::Linear, z_score: self.moments.z_score() },
            ScaleName::Log => Scorer { scale: Scale::Log, z_score: self.moments.z_score() },
            ScaleName::Rank => Scorer {
                scale: Scale::Rank { quantiles: self.sample.quantiles(self.range()) },
                // Of numbers evenly between 0 and 1, as ranks are.
                z_score: ZScore { mean: 0.5, std: 12_f64.sqrt().recip() },
            },
        }
    }

    pub(super) fn stats(&self) -> ColumnStats {
        let Scorer { scale, z_score: ZScore { mean, std } } = self.scorer();
        let (min, max) = self.range();
        ColumnStats::Numerical { scale, mean, std, min, max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.min > self.max
    }

    pub(super) fn is_one_number(&self) -> bool {
        self.min == self.max
    }

    /// Whether the numbers differ by more than rounding, so that they have a scale.
    pub(super) fn is_scaled(&self) -> bool {
        match self.scale {
            ScaleName::Linear | ScaleName::Log => self.moments.is_scaled(),
            ScaleName::Rank => self.min < self.max,
        }
    }

    /// Returns the minimum and the maximum; 0 of no numbers.
    pub(super) fn range(&self) -> (f64, f64) {
        if self.min > self.max { (0.0, 0.0) } else { (self.min, self.max) }
    }
}

/// A sample of the numbers of a column: those with the least keys, where the key of a number is the
/// random word of its place in the column. So the sample depends on the column alone.
#[derive(Clone)]
struct Sample {
    keys: Stream,
    /// Keys and numbers; after `trim` the least keys alone.
    kept: Vec<(u64, f64)>,
    /// A key from here on is not among the least.
    limit: Option<u64>,
}

impl Default for Sample {
    fn default() -> Self {
        let keys = Stream::new(0, Purpose::Quantiles, [0; 3]);
        Self { keys, kept: Vec::new(), limit: None }
    }
}

impl Sample {
    fn push(&mut self, number: f64) {
        let key = self.keys.next_u64();
        if self.limit.is_none_or(|limit| key < limit) {
            self.kept.push((key, number));
        }
        if self.kept.len() == 2 * SAMPLE {
            self.limit = Some(trim(&mut self.kept));
        }
    }

    /// Returns the numbers that divide the sample into parts of equal size, from the minimum of the
    /// column to its maximum.
    fn quantiles(&self, (min, max): (f64, f64)) -> Vec<f64> {
        let mut kept = self.kept.clone();
        if kept.len() > SAMPLE {
            trim(&mut kept);
        }
        let mut numbers: Vec<f64> = kept.into_iter().map(|(_, number)| number).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        let Some(last) = numbers.len().checked_sub(1) else { return vec![0.0, 0.0] };
        // Adding 0 turns -0 into +0, so that equal numbers have equal bits.
        let mut quantiles: Vec<f64> =
            (0..=PARTS).map(|part| numbers[part * last / PARTS] + 0.0).collect();
        (quantiles[0], quantiles[PARTS]) = (min + 0.0, max + 0.0);
        quantiles
    }
}

/// Keeps the least keys; returns the least key that goes.
fn trim(kept: &mut Vec<(u64, f64)>) -> u64 {
    let (_, first_out, _) = kept.select_nth_unstable_by_key(SAMPLE, |&(key, _)| key);
    let limit = first_out.0;
    kept.truncate(SAMPLE);
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_small_column_are_its_own() {
        let mut sample = Sample::default();
        (0..=1000).rev().for_each(|number| sample.push(f64::from(number)));
        let quantiles = sample.quantiles((0.0, 1000.0));
        assert_eq!(quantiles.len(), PARTS + 1);
        assert_eq!((quantiles[0], quantiles[128], quantiles[256]), (0.0, 500.0, 1000.0));
    }

    #[test]
    fn quantiles_of_a_large_column_are_near_its_own() {
        let mut sample = Sample::default();
        let count = 1_000_000_u32;
        (0..count).for_each(|number| sample.push(f64::from(number)));
        assert!(sample.kept.len() < 2 * SAMPLE);
        for (part, quantile) in sample.quantiles((0.0, 1e6)).into_iter().enumerate() {
            let error = quantile / f64::from(count) - part as f64 / PARTS as f64;
            assert!(error.abs() < 0.01, "{part}: {error}");
        }
    }
}
