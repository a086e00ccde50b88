//! Count, range and the first four moments of each column.

use crate::bytes::{filled, reserve};
use crate::error::{Error, Result};

use super::control::in_default_environment;
use super::rows::Rows;
use super::statistic::{Partial, Statistic, add, canonical, same_count};
use super::words;

/// The words of a column in a partial: four counts, least, greatest, four sums.
const COLUMN_WORDS: usize = 10;

/// What is lost of a moment about the mean, of the size of a sum that it is what is left of: the
/// roundings of some thousand rows of a chunk.
const LOST: f64 = 1024.0 * f64::EPSILON;
/// The part of a summary that may be lost: three digits stay.
const LOST_MAX: f64 = 1e-3;
/// Powers below this, or terms of theirs, are rounded to fewer digits than others, or to 0.
const LEAST_POWER: f64 = f64::MIN_POSITIVE / LOST;

/// The moments of each column about a number near its mean.
///
/// The sums are over its finite numbers `x`, of powers of `x - shift`. The shift is part of what is
/// computed: the nearer the mean, the less is lost when the moments about the mean are taken from it.
/// 0 does where the numbers are not far from 0 against their spread, [`ColumnMoments::near`] mostly.
pub struct ColumnMoments {
    shifts: Vec<f64>,
}

/// What is known of the rows of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct MomentSums {
    rows: u64,
    columns: Vec<ColumnSums>,
}

/// What is known of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSums {
    /// Numbers that are not there.
    pub nulls: u64,
    /// NaN.
    pub nans: u64,
    /// Infinities with a minus sign.
    pub negative_infinities: u64,
    /// Infinities without one.
    pub positive_infinities: u64,
    /// The least of all that are no NaN, in the total order of numbers: -0 below +0. Infinity when
    /// there are none.
    pub min: f64,
    /// The greatest, likewise; minus infinity when there are none.
    pub max: f64,
    /// The sums of the first four powers of `x - shift`.
    pub powers: [f64; 4],
}

/// What the sums of one column come to. Outside the promise of the same bits.
///
/// NaN is what the sums do not tell: too few digits are left of it, since the shift is too far from the
/// mean against the deviation, or the numbers are too great or too small for sums of their powers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSummary {
    /// How many finite numbers there are, which all that follows is of; without any it is NaN.
    pub finite: u64,
    /// Their mean.
    pub mean: f64,
    /// Their variance as a population.
    pub variance: f64,
    /// Its square root.
    pub std: f64,
    /// The third moment about the mean, in standard deviations; NaN where these are 0, too.
    pub skewness: f64,
    /// The fourth moment about the mean, in standard deviations, above the normal distribution's 3;
    /// NaN where these are 0, too.
    pub kurtosis: f64,
}

impl ColumnSummary {
    /// Whether something of it is NaN for no other reason than that the digits are lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let is_constant = self.variance == 0.0;
        self.finite > 0 && !is_constant && (self.skewness.is_nan() || self.kurtosis.is_nan())
    }
}

impl ColumnMoments {
    /// About these shifts, one for each column.
    ///
    /// # Errors
    /// `InvalidArgument` for no columns, and for a shift that is not finite.
    pub fn new(shifts: Vec<f64>) -> Result<Self> {
        if shifts.is_empty() {
            return Err(Error::invalid("expected at least one column, found none"));
        }
        match shifts.iter().position(|shift| !shift.is_finite()) {
            None => Ok(Self { shifts }),
            Some(column) => Err(Error::invalid(format!(
                "expected a finite shift for column {column}, found {}",
                shifts[column]
            ))),
        }
    }

    /// About the median of each column's finite numbers among some rows, of two the lower; about 0
    /// where there are none.
    ///
    /// # Errors
    /// As [`ColumnMoments::new`], and `LimitExceeded` when memory is not to be had.
    pub fn near(rows: &Rows<'_>) -> Result<Self> {
        let mut shifts = filled(0.0, rows.columns())?;
        let mut finite = reserve(rows.count())?;
        for (column, shift) in shifts.iter_mut().enumerate() {
            finite.clear();
            in_default_environment(|| {
                rows.each(column..column + 1, |_, _, value| {
                    finite.extend(value.filter(|value| value.is_finite()));
                });
            });
            if let Some(last) = finite.len().checked_sub(1) {
                *shift = *finite.select_nth_unstable_by(last / 2, f64::total_cmp).1;
            }
        }
        Self::new(shifts)
    }

    /// The shift of each column.
    #[must_use]
    pub fn shifts(&self) -> &[f64] {
        &self.shifts
    }

    /// Mean, spread and shape of each column. Outside the promise of the same bits.
    #[must_use]
    pub fn summaries(&self, partial: &MomentSums) -> Vec<ColumnSummary> {
        let columns = partial.columns.iter().zip(&self.shifts);
        columns.map(|(sums, shift)| summary(partial.rows - sums.apart(), sums, *shift)).collect()
    }
}

fn summary(finite: u64, sums: &ColumnSums, shift: f64) -> ColumnSummary {
    let of_variance = |mean: f64, variance: f64| ColumnSummary {
        finite,
        mean,
        variance,
        std: variance.sqrt(),
        skewness: f64::NAN,
        kurtosis: f64::NAN,
    };
    if finite > 0 && sums.min == sums.max {
        return of_variance(sums.min, 0.0);
    }
    let count = if finite == 0 { f64::NAN } else { finite as f64 };
    let [first, second, third, fourth] = sums.powers.map(|sum| sum / count);
    // The moments about the mean, from those about the shift.
    let square = first * first;
    let variance = second - square;
    let about_mean = [
        third - 3.0 * first * second + 2.0 * first * square,
        fourth - 4.0 * first * third + 6.0 * square * second - 3.0 * square * square,
    ];
    // How much greater the second moment about the shift is.
    let excess = second / variance;
    let known = |power: f64, of_deviation: f64, value: f64| {
        let lost = LOST * excess.powf(power / 2.0);
        // A variance that cancels may be below 0.
        let is_known = value.is_finite() && (0.0..=LOST_MAX).contains(&lost);
        if is_known && of_deviation >= LEAST_POWER { value } else { f64::NAN }
    };
    // Beside infinities, which are in no sum, all finite numbers may be the shift.
    let has_infinities = sums.negative_infinities > 0 || sums.positive_infinities > 0;
    let is_constant = has_infinities && first == 0.0 && second == 0.0;
    let variance = if is_constant { 0.0 } else { known(2.0, second, variance) };
    let std = variance.sqrt();
    // The sum of third powers may be small since they cancel; none of its greater terms is, where the
    // deviation's is not.
    let (cube, fourth_power) = (variance * std, variance * variance);
    ColumnSummary {
        skewness: known(3.0, cube, about_mean[0] / cube),
        kurtosis: known(4.0, fourth_power, about_mean[1] / fourth_power - 3.0),
        ..of_variance(if first.is_finite() { shift + first } else { f64::NAN }, variance)
    }
}

impl MomentSums {
    /// How many rows there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What is known of each column.
    #[must_use]
    pub fn columns(&self) -> &[ColumnSums] {
        &self.columns
    }
}

impl ColumnSums {
    const EMPTY: Self = Self {
        nulls: 0,
        nans: 0,
        negative_infinities: 0,
        positive_infinities: 0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        powers: [0.0; 4],
    };

    #[inline]
    fn take(&mut self, shift: f64, value: Option<f64>) {
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

    /// How many rows have no finite number.
    fn apart(&self) -> u64 {
        self.counts().into_iter().fold(0, u64::saturating_add)
    }

    fn counts(&self) -> [u64; 4] {
        [self.nulls, self.nans, self.negative_infinities, self.positive_infinities]
    }

    fn merge(&mut self, right: &Self) {
        self.nulls = self.nulls.saturating_add(right.nulls);
        self.nans = self.nans.saturating_add(right.nans);
        self.negative_infinities =
            self.negative_infinities.saturating_add(right.negative_infinities);
        self.positive_infinities =
            self.positive_infinities.saturating_add(right.positive_infinities);
        self.widen(right.min, right.max);
        add(&mut self.powers, &right.powers);
    }

    fn words(&self) -> [u64; COLUMN_WORDS] {
        let [nulls, nans, negative, positive] = self.counts();
        let [first, second, third, fourth] = self.powers.map(f64::to_bits);
        let (min, max) = (self.min.to_bits(), self.max.to_bits());
        [nulls, nans, negative, positive, min, max, first, second, third, fourth]
    }

    fn from_words(words: [u64; COLUMN_WORDS]) -> Self {
        let [nulls, nans, negative_infinities, positive_infinities, min, max, powers @ ..] = words;
        let (min, max) = (f64::from_bits(min), f64::from_bits(max));
        let powers = powers.map(f64::from_bits);
        Self { nulls, nans, negative_infinities, positive_infinities, min, max, powers }
    }

    /// Whether some `rows` rows can have these sums.
    fn can_be_of(&self, rows: u64) -> bool {
        let numbers = rows.checked_sub(self.nulls.saturating_add(self.nans));
        let range = match numbers {
            Some(0) => (self.min, self.max) == (f64::INFINITY, f64::NEG_INFINITY),
            _ => self.min.total_cmp(&self.max).is_le() && !self.min.is_nan() && !self.max.is_nan(),
        };
        let is_canonical = |sum: &f64| canonical(*sum).to_bits() == sum.to_bits();
        self.apart() <= rows && range && self.powers.iter().all(is_canonical)
    }
}

impl Partial for MomentSums {
    fn merge(&mut self, right: &Self) {
        assert_eq!(self.columns.len(), right.columns.len(), "partials of one statistic");
        self.rows = self.rows.saturating_add(right.rows);
        self.columns.iter_mut().zip(&right.columns).for_each(|(left, right)| left.merge(right));
    }

    fn same_bits(&self, other: &Self) -> bool {
        let words = |sums: &Self| sums.columns.iter().map(ColumnSums::words).collect::<Vec<_>>();
        self.rows == other.rows && words(self) == words(other)
    }
}

impl Statistic for ColumnMoments {
    type Chunk<'a> = Rows<'a>;
    type Partial = MomentSums;
    type Arrived<'a> = MomentSums;

    fn leaf(&self, rows: &Rows<'_>) -> Result<MomentSums> {
        same_count("columns", self.shifts.len(), rows.columns())?;
        let mut columns = filled(ColumnSums::EMPTY, self.shifts.len())?;
        in_default_environment(|| {
            rows.each(0..self.shifts.len(), |_, column, value| {
                columns[column].take(self.shifts[column], value);
            });
        });
        for sums in &mut columns {
            sums.powers = sums.powers.map(canonical);
        }
        Ok(MomentSums { rows: rows.count() as u64, columns })
    }

    fn partial_bytes(&self) -> usize {
        (1 + self.shifts.len() * COLUMN_WORDS) * size_of::<u64>()
    }

    fn write(&self, partial: &MomentSums, bytes: &mut Vec<u8>) {
        let columns = partial.columns.iter().flat_map(ColumnSums::words);
        words::write(std::iter::once(partial.rows).chain(columns), bytes);
    }

    fn can_be_of(&self, partial: &MomentSums, rows: u64) -> bool {
        partial.rows == rows
    }

    fn read(&self, bytes: &[u8]) -> Result<MomentSums> {
        let count = 1 + self.shifts.len().saturating_mul(COLUMN_WORDS);
        let words: Vec<u64> = words::decode(bytes, count, "moments")?.collect();
        let columns = words[1..].as_chunks().0.iter().copied().map(ColumnSums::from_words);
        let columns: Vec<_> = columns.collect();
        match columns.iter().position(|sums| !sums.can_be_of(words[0])) {
            None => Ok(MomentSums { rows: words[0], columns }),
            Some(column) => Err(Error::corrupt(format!(
                "expected moments of {} rows in column {column}, found sums that no rows have",
                words[0]
            ))),
        }
    }
}
