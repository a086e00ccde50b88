//! Counts the numbers of a column by magnitude, to find a heavy tail.

use crate::prepare::schema::ScaleName;

/// A tail is heavy where the largest magnitude is this many times the median magnitude.
const HEAVY: f64 = 50.0;
/// Fewer numbers do not show the shape of their tail.
const FEWEST: u64 = 100;
/// The values of the exponent field of a 64-bit float.
const EXPONENTS: usize = 1 << 11;

/// The numbers of a column other than 0, by the binary exponent of their magnitude.
#[derive(Default)]
pub(in crate::prepare::draft) struct Magnitudes {
    counts: Vec<u64>,
    count: u64,
    largest: f64,
    any_negative: bool,
}

impl Magnitudes {
    pub(super) fn add(&mut self, number: f64) {
        if number == 0.0 || !number.is_finite() {
            return;
        }
        let magnitude = number.abs();
        self.counts.resize(EXPONENTS, 0);
        self.counts[(magnitude.to_bits() >> 52) as usize] += 1;
        self.count += 1;
        self.largest = self.largest.max(magnitude);
        self.any_negative |= number < 0.0;
    }

    /// Returns the scale for a heavy tail, and about how many times the median of the magnitudes other
    /// than 0 the largest is; `None` if the tail is not heavy.
    pub(in crate::prepare::draft) fn heavy_tail(&self) -> Option<(ScaleName, f64)> {
        if self.count < FEWEST {
            return None;
        }
        let median = self.median();
        let times = self.largest / median;
        // Logarithms of 1 + x leave numbers below 1 nearly as they are, and part positive from
        // negative ones.
        let scale = match self.any_negative || median < 1.0 {
            true => ScaleName::Rank,
            false => ScaleName::Log,
        };
        (times > HEAVY).then_some((scale, times))
    }

    /// Returns the median magnitude, to a factor of 1.5.
    fn median(&self) -> f64 {
        let mut below = 0;
        let exponent = self.counts.iter().position(|count| {
            below += count;
            2 * below >= self.count
        });
        // The middle of the numbers with this exponent.
        f64::from_bits((exponent.unwrap_or(0) as u64) << 52 | 1 << 51)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: impl Iterator<Item = f64>) -> Option<ScaleName> {
        let mut magnitudes = Magnitudes::default();
        numbers.for_each(|number| magnitudes.add(number));
        magnitudes.heavy_tail().map(|(scale, _)| scale)
    }

    #[test]
    fn a_heavy_tail_gets_a_scale_by_sign_and_size() {
        let powers = || (0..200).map(|n| 1.1_f64.powi(n));
        assert_eq!(of(powers().map(|x| 1000.0 * x)), Some(ScaleName::Log));
        assert_eq!(of(powers().map(|x| 1e-9 * x)), Some(ScaleName::Rank));
        assert_eq!(of(powers().map(|x| -1000.0 * x)), Some(ScaleName::Rank));
        assert_eq!(of(powers().take(99)), None);
        assert_eq!(of((1..1000).map(f64::from)), None);
        assert_eq!(of((1..1000).map(|n| f64::from(n) - 500.0)), None);
        // Most numbers are 0.
        assert_eq!(of((0..9000).map(|n| f64::from(n % 3 / 2))), None);
    }
}
