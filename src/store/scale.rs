//! How the numbers of a column become the z-scores of a store, and back.

use serde::{Deserialize, Serialize};

use crate::fold::{ZScore, rounded_to_width};

/// The scale on which a column's numbers are compared.
///
/// With a heavy tail, such as that of salaries, the largest numbers determine mean and standard
/// deviation, and the z-scores of all others are nearly equal. On another scale they differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The numbers as they are.
    #[default]
    Linear,
    /// `ln(1 + x)`, and `-ln(1 - x)` for a negative number.
    Log,
    /// The share of the column's numbers that are smaller.
    Rank {
        /// Numbers in ascending order, between two of which lies the same share of all; two or more.
        quantiles: Vec<f64>,
    },
}

impl Scale {
    /// Whether the numbers stay as they are.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        *self == Self::Linear
    }

    /// Returns the place of `value` on the scale.
    #[must_use]
    pub fn of(&self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => libm::log1p(value.abs()).copysign(value),
            Self::Rank { quantiles } => rank(quantiles, value),
        }
    }

    /// Returns the value at `place` on the scale.
    #[must_use]
    pub fn value(&self, place: f64) -> f64 {
        match self {
            Self::Linear => place,
            Self::Log => libm::expm1(place.abs()).copysign(place),
            Self::Rank { quantiles } => quantile(quantiles, place),
        }
    }

    /// Returns the value of a z-score of places, rounded for display to the digits that its 32 bits
    /// determine.
    #[must_use]
    pub fn certain_value(&self, z_score: ZScore, score: f32) -> f64 {
        if self.is_linear() {
            return z_score.certain_value(score);
        }
        let (place, error) = (z_score.value(score), z_score.error(score));
        let width = self.value(place + error) - self.value(place - error);
        rounded_to_width(self.value(place), width)
    }

    /// Whether every number has a place, and every place a number.
    pub(super) fn is_sound(&self) -> bool {
        match self {
            Self::Linear | Self::Log => true,
            // JSON has no infinities.
            Self::Rank { quantiles } => quantiles.len() > 1 && quantiles.is_sorted(),
        }
    }
}

/// Returns the share of numbers below `value`; of numbers equal to `value`, half count as below.
fn rank(quantiles: &[f64], value: f64) -> f64 {
    let steps = (quantiles.len() - 1) as f64;
    let below = quantiles.partition_point(|&quantile| quantile < value);
    let until = quantiles.partition_point(|&quantile| quantile <= value);
    if below < until {
        (below + until - 1) as f64 / 2.0 / steps
    } else if below == 0 {
        0.0
    } else if below == quantiles.len() {
        1.0
    } else {
        let (low, high) = (quantiles[below - 1], quantiles[below]);
        // Halves, because the difference of two finite numbers may be infinite.
        let share = (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
        ((below - 1) as f64 + share) / steps
    }
}

/// Returns the number below which lies the share `rank` of all.
fn quantile(quantiles: &[f64], rank: f64) -> f64 {
    let last = quantiles.len() - 1;
    let at = rank.clamp(0.0, 1.0) * last as f64;
    let low = (at as usize).min(last - 1);
    let share = at - low as f64;
    quantiles[low] * (1.0 - share) + quantiles[low + 1] * share
}

/// The conversion of the numbers of a column to z-scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Scorer {
    /// The scale.
    pub scale: Scale,
    /// The z-score of a place on the scale.
    pub z_score: ZScore,
}

impl Scorer {
    /// Returns the z-score of `value`.
    #[inline]
    #[must_use]
    pub fn score(&self, value: f64) -> f32 {
        self.z_score.of(self.scale.of(value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranks(mut quantiles: Vec<f64>) -> Scale {
        quantiles.sort_unstable_by(f64::total_cmp);
        Scale::Rank { quantiles }
    }

    #[test]
    fn a_score_shows_the_number_it_was_made_from() {
        let shown = |scale: Scale, z_score, values: &[f64]| {
            let scorer = Scorer { scale, z_score };
            let shown = |&value| scorer.scale.certain_value(z_score, scorer.score(value));
            values.iter().map(shown).collect::<Vec<_>>()
        };
        let values = [0.0, 1.0, -1.0, 12.5, 250_000.0, -3e6];
        assert_eq!(shown(Scale::Log, ZScore { mean: 2.0, std: 3.0 }, &values), values);
        // The mean of a rank is a half, its deviation 1 / sqrt(12).
        let z_score = ZScore { mean: 0.5, std: 12_f64.sqrt().recip() };
        let values = [1.0, 2.0, 500.0, 1.25, 300.0];
        assert_eq!(shown(ranks(vec![1.0, 2.0, 2.0, 2.0, 500.0]), z_score, &values), values);
    }

    #[test]
    fn numbers_beyond_all_quantiles_have_the_ranks_0_and_1() {
        let scale = ranks(vec![-1.0, 3.0]);
        assert_eq!((scale.of(-5.0), scale.of(9.0)), (0.0, 1.0));
        assert_eq!((scale.value(-0.1), scale.value(1.1)), (-1.0, 3.0));
        let constant = ranks(vec![7.0, 7.0, 7.0]);
        assert_eq!((constant.of(7.0), constant.value(0.5)), (0.5, 7.0));
    }

    proptest! {
        #[test]
        fn a_scale_keeps_the_order(
            quantiles in prop::collection::vec(-1e6..1e6_f64, 2..20),
            a in -1e7..1e7_f64,
            b in -1e7..1e7_f64,
        ) {
            let (low, high) = (a.min(b), a.max(b));
            for scale in [Scale::Log, ranks(quantiles)] {
                prop_assert!(scale.of(low) <= scale.of(high));
                let (first, second) = (scale.value(scale.of(low)), scale.value(scale.of(high)));
                prop_assert!(first <= second);
            }
        }

        #[test]
        fn a_rank_is_undone_between_the_quantiles(
            quantiles in prop::collection::vec(-1e6..1e6_f64, 2..20),
            share in 0.0..1.0_f64,
        ) {
            let scale = ranks(quantiles.clone());
            let (low, high) = (scale.value(0.0), scale.value(1.0));
            let value = low + (high - low) * share;
            let found = scale.value(scale.of(value));
            prop_assert!((found - value).abs() <= 1e-9 * (high - low).max(1.0));
        }
    }
}
