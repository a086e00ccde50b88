//! Count, mean, variance, minimum and maximum of one column.

/// The running moments of a sequence of finite numbers.
///
/// # Determinism
/// One chain in the order of [`Moments::push`]: the values and their order determine every bit;
/// batches do not matter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean, by Welford's recurrence.
    squares: f64,
    min: f64,
    max: f64,
}

impl Default for Moments {
    fn default() -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Self { count: 0, mean: 0.0, squares: 0.0, min, max }
    }
}

impl Moments {
    /// Adds `value`, which must be finite.
    #[inline]
    pub fn push(&mut self, value: f64) {
        debug_assert!(value.is_finite());
        self.count += 1;
        let from_old_mean = value - self.mean;
        self.mean += from_old_mean / self.count as f64;
        self.squares += from_old_mean * (value - self.mean);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean; 0 without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the standard deviation of the population; 0 without values.
    #[must_use]
    pub fn std(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64).max(0.0).sqrt() }
    }

    /// Returns the minimum; 0 without values.
    #[must_use]
    pub fn min(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.min }
    }

    /// Returns the maximum; 0 without values.
    #[must_use]
    pub fn max(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.max }
    }

    /// Whether the values differ by more than the rounding of their sums, and by so much that z-scores of
    /// other values are of use: their standard deviation is a normal number of 32 bits.
    #[cfg(any(test, feature = "prepare"))]
    pub(crate) fn is_scaled(&self) -> bool {
        let greatest = self.min().abs().max(self.max().abs());
        self.std() >= f64::from(f32::MIN_POSITIVE) && self.std() > 8.0 * f64::EPSILON * greatest
    }

    /// Returns the conversion of values to z-scores by these moments.
    #[must_use]
    pub fn z_score(&self) -> ZScore {
        ZScore { mean: self.mean, std: self.std() }
    }
}

/// The z-score `(value - mean) / std`, at most the greatest number of 32 bits; 0 if all values are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZScore {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub std: f64,
}

impl ZScore {
    /// Returns the z-score of `value`.
    #[inline]
    #[must_use]
    pub fn of(&self, value: f64) -> f32 {
        let score = if self.std > 0.0 { ((value - self.mean) / self.std) as f32 } else { 0.0 };
        score.clamp(f32::MIN, f32::MAX)
    }

    /// Returns the value of a z-score.
    #[must_use]
    pub fn value(&self, score: f32) -> f64 {
        f64::from(score) * self.std + self.mean
    }

    /// Returns the value of a z-score, rounded for display to the digits that its 32 bits
    /// determine.
    #[must_use]
    pub fn certain_value(&self, score: f32) -> f64 {
        rounded_to_width(self.value(score), 2.0 * self.error(score))
    }

    /// Returns the greatest error of the value of a z-score: half a step of f32 for the score, a
    /// step of f64 for the sums.
    #[must_use]
    pub fn error(&self, score: f32) -> f64 {
        let of_score = f64::from(score.abs() * f32::EPSILON / 2.0) * self.std;
        let of_sums = (self.value(score).abs() + self.mean.abs()) * f64::EPSILON;
        of_score + of_sums
    }
}

/// Returns a value that is certain to `width`, rounded to the smallest power of ten that is at
/// least the width.
#[must_use]
pub fn rounded_to_width(value: f64, width: f64) -> f64 {
    let exponent = width.log10().ceil();
    let rounded = if exponent > 0.0 {
        let step = 10_f64.powf(exponent);
        (value / step).round() * step
    } else {
        // As text, because f64 does not hold powers of ten below 1 exactly.
        let places = (-exponent).min(400.0) as usize;
        format!("{value:.places$}").parse().unwrap_or(value)
    };
    // Turns -0, the result of a mean that cancels, into +0.
    rounded + 0.0
}

#[cfg(test)]
mod tests {
    use super::{Moments, ZScore, rounded_to_width};

    #[test]
    fn moments_are_those_of_the_two_pass_formula() {
        let values: Vec<f64> = (0..1000_u32).map(|i| f64::from(i * i % 97) * 1e3 + 1e9).collect();
        let mut moments = Moments::default();
        values.iter().for_each(|&v| moments.push(v));
        let mean = values.iter().sum::<f64>() / 1000.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1000.0;
        assert!((moments.mean() - mean).abs() < 1e-6);
        assert!((moments.std() - variance.sqrt()).abs() < 1e-6);
        assert_eq!((moments.min(), moments.max()), (1e9, 1e9 + 96e3));
        assert_eq!(moments.count(), 1000);
    }

    #[test]
    fn certain_value_shows_the_digits_that_the_score_determines() {
        let shown = |values: &[f64]| {
            let mut moments = Moments::default();
            values.iter().for_each(|&v| moments.push(v));
            let score = moments.z_score();
            values.iter().map(|&v| score.certain_value(score.of(v))).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[12.5, 80.0, 7.25, 31.0]), [12.5, 80.0, 7.25, 31.0]);
        assert_eq!(shown(&[-1.0, 0.0, 1.0]), [-1.0, 0.0, 1.0]);
        assert_eq!(shown(&[0.1, 0.1]), [0.1, 0.1]);
        assert_eq!(shown(&[0.0, 1e-100]), [0.0, 1e-100]);
        // One standard deviation from the mean, seven digits are certain.
        assert_eq!(shown(&[1_234_567.8, -1_234_567.8]), [1_234_568.0, -1_234_568.0]);
        assert_eq!(shown(&[1.234_567_891, -5.0]), [1.234_568, -5.0]);
        // With values of 1e12, digits below some thousands are lost.
        assert_eq!(shown(&[1e12, 1_234_567.0, 0.0]), [1e12, 1_200_000.0, 0.0]);
    }

    #[test]
    fn an_error_is_half_a_step_of_the_score_and_a_step_of_the_sums() {
        let score = ZScore { mean: 1e6, std: 2.0 };
        let expected = 2.5 * f64::from(f32::EPSILON) + (1e6 + 5.0 + 1e6) * f64::EPSILON;
        assert!((score.error(2.5) / expected - 1.0).abs() < 1e-9);
        let sums_alone = ZScore { mean: 3.0, std: 0.0 };
        assert_eq!(sums_alone.error(2.5), 6.0 * f64::EPSILON);
    }

    #[test]
    fn rounding_to_a_width_is_that_of_printed_digits_up_to_one() {
        let rounded = |value, width| rounded_to_width(value, width);
        assert_eq!([rounded(2.5, 1.0), rounded(3.5, 0.9)], [2.0, 4.0]);
        assert_eq!([rounded(25.0, 9.0), rounded(-17.0, 10.0)], [30.0, -20.0]);
        assert_eq!(rounded(-0.0, 0.1).to_bits(), 0);
    }

    #[test]
    fn values_that_are_equal_but_for_rounding_are_no_scale() {
        let is_scaled = |values: &[f64]| {
            let mut moments = Moments::default();
            values.iter().for_each(|&v| moments.push(v));
            moments.is_scaled()
        };
        assert!(!is_scaled(&[]) && !is_scaled(&[5.0]) && !is_scaled(&[5.0, 5.0]));
        assert!(!is_scaled(&[0.3, 0.1 + 0.2]) && !is_scaled(&[-0.3, -0.1 - 0.2, -0.3]));
        assert!(!is_scaled(&[0.0, 1e-40, 2e-40]));
        assert!(
            is_scaled(&[0.0, 1e-30]) && is_scaled(&[1e9, 1e9 + 1e-4]) && is_scaled(&[-1.0, 1.0])
        );
        assert!(is_scaled(&[0.0, 1e300]));
    }

    #[test]
    fn z_scores_end_at_the_ends_of_32_bits() {
        let score = ZScore { mean: -1e308, std: 1e-30 };
        assert_eq!([score.of(1e308), score.of(1e20)], [f32::MAX; 2]);
        assert_eq!(ZScore { mean: 1e308, std: 1.0 }.of(-1e308), f32::MIN);
        assert_eq!(ZScore { mean: 0.0, std: 1.0 }.of(2.5), 2.5);
    }

    #[test]
    fn constants_and_no_values_have_z_score_zero() {
        let mut moments = Moments::default();
        assert_eq!((moments.z_score().of(5.0), moments.min(), moments.max()), (0.0, 0.0, 0.0));
        moments.push(3.0);
        moments.push(3.0);
        assert_eq!((moments.z_score().of(3.0), moments.std()), (0.0, 0.0));
    }
}
