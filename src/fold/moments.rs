//! Count, mean, variance, least and greatest of one column.

/// The running moments of a sequence of finite numbers.
///
/// # Determinism
/// One chain in the order of [`Moments::push`]: the values and their order determine every bit, how
/// they were cut into batches does not.
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
    /// Takes in `value`, which is finite.
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

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 when there were none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Their standard deviation as a population; 0 when there were none.
    #[must_use]
    pub fn std(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64).max(0.0).sqrt() }
    }

    /// The least; 0 when there were none.
    #[must_use]
    pub fn min(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.min }
    }

    /// The greatest; 0 when there were none.
    #[must_use]
    pub fn max(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.max }
    }

    /// What turns values into z-scores by these moments.
    #[must_use]
    pub fn z_score(&self) -> ZScore {
        ZScore { mean: self.mean, std: self.std() }
    }
}

/// `(value - mean) / std`, and 0 where all values are the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZScore {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub std: f64,
}

impl ZScore {
    /// The z-score of `value`.
    #[inline]
    #[must_use]
    pub fn of(&self, value: f64) -> f32 {
        if self.std > 0.0 { ((value - self.mean) / self.std) as f32 } else { 0.0 }
    }

    /// The value of a z-score.
    #[must_use]
    pub fn value(&self, score: f32) -> f64 {
        f64::from(score) * self.std + self.mean
    }

    /// The value of a z-score to the decimal digits that its 32 bits determine, to show to people.
    #[must_use]
    pub fn certain_value(&self, score: f32) -> f64 {
        let value = self.value(score);
        // A score is rounded by half a step of f32, all sums by a step of f64.
        let of_score = f64::from(score.abs() * f32::EPSILON / 2.0) * self.std;
        let of_sums = (value.abs() + self.mean.abs()) * f64::EPSILON;
        // The smallest power of ten that is no less than what lies within both errors.
        let exponent = (2.0 * (of_score + of_sums)).log10().ceil();
        let rounded = if exponent > 0.0 {
            let step = 10_f64.powf(exponent);
            (value / step).round() * step
        } else {
            // As text, since the powers of ten below 1 are no numbers of f64.
            let places = (-exponent).min(400.0) as usize;
            format!("{value:.places$}").parse().unwrap_or(value)
        };
        // Minus zero is what is left of a mean that cancels.
        rounded + 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::Moments;

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
    fn as_many_digits_are_shown_as_are_certain() {
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
        // Beside 1e12 nothing below some thousands is certain.
        assert_eq!(shown(&[1e12, 1_234_567.0, 0.0]), [1e12, 1_200_000.0, 0.0]);
    }

    #[test]
    fn nothing_and_constants_have_z_score_zero() {
        let mut moments = Moments::default();
        assert_eq!((moments.z_score().of(5.0), moments.min(), moments.max()), (0.0, 0.0, 0.0));
        moments.push(3.0);
        moments.push(3.0);
        assert_eq!((moments.z_score().of(3.0), moments.std()), (0.0, 0.0));
    }
}
