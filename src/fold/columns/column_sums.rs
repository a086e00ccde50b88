//! The counts, range and sums of powers of one column.

use crate::bytes::filled;
use crate::environment::in_default_environment;
use crate::error::Result;
use crate::fold::rows::Rows;
use crate::fold::statistic::{add, canonical};

/// The words of a column in a partial: four counts, minimum, maximum, four sums.
pub(super) const COLUMN_WORDS: usize = 10;

/// The counts, range and sums of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSums {
    /// NULLs.
    pub nulls: u64,
    /// NaNs.
    pub nans: u64,
    /// Infinities with a minus sign.
    pub negative_infinities: u64,
    /// Infinities without a minus sign.
    pub positive_infinities: u64,
    /// The minimum without NaNs, in the total order of numbers: -0 below +0. Infinity without
    /// numbers.
    pub min: f64,
    /// The maximum, likewise; minus infinity without numbers.
    pub max: f64,
    /// The sums of the first four powers of `x - shift`.
    pub powers: [f64; 4],
}

impl ColumnSums {
    pub(super) const EMPTY: Self = Self {
        nulls: 0,
        nans: 0,
        negative_infinities: 0,
        positive_infinities: 0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        powers: [0.0; 4],
    };

    #[inline]
    pub(super) fn push(&mut self, shift: f64, value: Option<f64>) {
        let Some(value) = value else {
            self.nulls += 1;
            return;
        };
        if value.is_nan() {
            self.nans += 1;
            return;
        }
        self.widen(value, value);
        if value.is_infinite() {
            let is_negative = value.is_sign_negative();
            self.negative_infinities += u64::from(is_negative);
            self.positive_infinities += u64::from(!is_negative);
            return;
        }
        let distance = value - shift;
        let square = distance * distance;
        let terms = [distance, square, square * distance, square * square];
        self.powers.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
    }

    fn widen(&mut self, min: f64, max: f64) {
        if min.total_cmp(&self.min).is_lt() {
            self.min = min;
        }
        if max.total_cmp(&self.max).is_gt() {
            self.max = max;
        }
    }

    /// Returns the number of rows without a finite number.
    pub(super) fn not_finite(&self) -> u64 {
        self.counts().into_iter().fold(0, u64::saturating_add)
    }

    fn counts(&self) -> [u64; 4] {
        [self.nulls, self.nans, self.negative_infinities, self.positive_infinities]
    }

    pub(super) fn merge(&mut self, right: &Self) {
        self.nulls = self.nulls.saturating_add(right.nulls);
        self.nans = self.nans.saturating_add(right.nans);
        self.negative_infinities =
            self.negative_infinities.saturating_add(right.negative_infinities);
        self.positive_infinities =
            self.positive_infinities.saturating_add(right.positive_infinities);
        self.widen(right.min, right.max);
        add(&mut self.powers, &right.powers);
    }

    pub(super) fn words(&self) -> [u64; COLUMN_WORDS] {
        let [nulls, nans, negative, positive] = self.counts();
        let [first, second, third, fourth] = self.powers.map(f64::to_bits);
        let (min, max) = (self.min.to_bits(), self.max.to_bits());
        [nulls, nans, negative, positive, min, max, first, second, third, fourth]
    }

    pub(super) fn from_words(words: [u64; COLUMN_WORDS]) -> Self {
        let [nulls, nans, negative_infinities, positive_infinities, min, max, powers @ ..] = words;
        let (min, max) = (f64::from_bits(min), f64::from_bits(max));
        let powers = powers.map(f64::from_bits);
        Self { nulls, nans, negative_infinities, positive_infinities, min, max, powers }
    }

    /// Whether `rows` rows can have these sums.
    pub(super) fn fits_rows(&self, rows: u64) -> bool {
        let numbers = rows.checked_sub(self.nulls.saturating_add(self.nans));
        let range = match numbers {
            Some(0) => (self.min, self.max) == (f64::INFINITY, f64::NEG_INFINITY),
            _ => self.min.total_cmp(&self.max).is_le() && !self.min.is_nan() && !self.max.is_nan(),
        };
        let is_canonical = |sum: &f64| canonical(*sum).to_bits() == sum.to_bits();
        self.not_finite() <= rows && range && self.powers.iter().all(is_canonical)
    }
}

/// Returns the sums of each column of `rows`, in which NaN may have any bits. What it does for each number
/// defines what a kernel for several columns does.
pub(super) fn plain(rows: &Rows<'_>, shifts: &[f64]) -> Result<Vec<ColumnSums>> {
    let mut columns = filled(ColumnSums::EMPTY, shifts.len())?;
    in_default_environment(|| {
        rows.each(0..shifts.len(), |_, column, value| columns[column].push(shifts[column], value));
    });
    Ok(columns)
}
