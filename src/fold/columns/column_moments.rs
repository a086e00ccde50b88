//! Count, range and the first four moments of each column.

use crate::bytes::{copied, filled, reserve};
use crate::error::{Error, Result};

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
use super::column_sums::{self, COLUMN_WORDS, ColumnSums};
use super::words;
use crate::environment::in_default_environment;
use crate::fold::rows::Rows;
use crate::fold::statistic::{Partial, Statistic, TryClone, canonical, same_count};

/// The error of a moment about the mean, relative to the sums whose difference it is: the roundings
/// of some thousand rows of a chunk.
const SUM_ERROR: f64 = 1024.0 * f64::EPSILON;
/// The greatest relative error of a summary: three digits remain.
const ERROR_MAX: f64 = 1e-3;
/// Powers below this, or their terms, lose digits to subnormal numbers, or become 0.
const LEAST_POWER: f64 = f64::MIN_POSITIVE / SUM_ERROR;

/// The moments of each column about a number near its mean.
///
/// A partial holds the sums of the powers of `x - shift` over the finite numbers `x` of a column.
/// The shift is part of the statistic: the nearer it is to the mean, the more exact are the
/// summaries. A shift of 0 serves numbers near 0 relative to their spread; [`ColumnMoments::near`]
/// serves most others.
pub struct ColumnMoments {
    shifts: Vec<f64>,
}

/// The moments of all columns over the rows of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct MomentSums {
    rows: u64,
    columns: Vec<ColumnSums>,
}

/// The summary of one column. The promise of the same bits does not cover it.
///
/// A value is NaN if fewer than three digits of it are exact: the shift is too far from the mean
/// relative to the deviation, or the numbers are too large or too small for sums of their powers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnSummary {
    /// The number of finite numbers, which the other values summarize; without any, these are NaN.
    pub finite: u64,
    /// The mean.
    pub mean: f64,
    /// The variance of the population.
    pub variance: f64,
    /// The standard deviation of the population.
    pub std: f64,
    /// The third moment about the mean, in standard deviations; NaN also if the deviation is 0.
    pub skewness: f64,
    /// The fourth moment about the mean, in standard deviations, minus the normal distribution's 3;
    /// NaN also if the deviation is 0.
    pub kurtosis: f64,
}

impl ColumnSummary {
    /// Whether a value is NaN because its digits are lost, and for no other reason.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        let is_constant = self.variance == 0.0;
        self.finite > 0 && !is_constant && (self.skewness.is_nan() || self.kurtosis.is_nan())
    }
}

impl ColumnMoments {
    /// Returns the statistic about these shifts, one for each column.
    ///
    /// # Errors
    /// `InvalidArgument` for 0 columns, and for a shift that is not finite.
    pub fn new(shifts: Vec<f64>) -> Result<Self> {
        if shifts.is_empty() {
            return Err(Error::invalid("expected at least 1 column, found 0"));
        }
        match shifts.iter().position(|shift| !shift.is_finite()) {
            None => Ok(Self { shifts }),
            Some(column) => Err(Error::invalid(format!(
                "expected a finite shift for column {column}, found {}",
                shifts[column]
            ))),
        }
    }

    /// Returns the statistic about one shift for all of `columns` columns, or about one for each.
    ///
    /// # Errors
    /// As [`ColumnMoments::new`], for another number of shifts, and `LimitExceeded` when memory runs out.
    pub fn about(shifts: &[f64], columns: usize) -> Result<Self> {
        match shifts {
            [one] => Self::new(filled(*one, columns)?),
            _ if shifts.len() == columns => Self::new(copied(shifts)?),
            _ => Err(Error::invalid(format!(
                "expected one shift, or one for each of {columns} columns, found {}",
                shifts.len()
            ))),
        }
    }

    /// Returns the statistic about the lower median of each column's finite numbers in `rows`;
    /// about 0 for a column without finite numbers.
    ///
    /// # Errors
    /// As [`ColumnMoments::new`], and `LimitExceeded` when memory runs out.
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

    /// Returns the sums of each column, in which NaN may have any bits.
    fn sums(&self, rows: &Rows<'_>) -> Result<Vec<ColumnSums>> {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return avx2.sums(rows, &self.shifts);
        }
        column_sums::plain(rows, &self.shifts)
    }

    /// Returns the shift of each column.
    #[must_use]
    pub fn shifts(&self) -> &[f64] {
        &self.shifts
    }

    /// Returns mean, spread and shape of each column. The promise of the same bits does not cover
    /// them.
    #[must_use]
    pub fn summaries(&self, partial: &MomentSums) -> Vec<ColumnSummary> {
        let columns = partial.columns.iter().zip(&self.shifts);
        columns
            .map(|(sums, shift)| summary(partial.rows - sums.not_finite(), sums, *shift))
            .collect()
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
    // The ratio of the second moment about the shift to the variance.
    let excess = second / variance;
    let known = |power: f64, of_deviation: f64, value: f64| {
        let error = SUM_ERROR * excess.powf(power / 2.0);
        // A variance that cancels may be negative.
        let is_known = value.is_finite() && (0.0..=ERROR_MAX).contains(&error);
        if is_known && of_deviation >= LEAST_POWER { value } else { f64::NAN }
    };
    // Infinities are in no sum: all finite numbers may still equal the shift.
    let has_infinities = sums.negative_infinities > 0 || sums.positive_infinities > 0;
    let is_constant = has_infinities && first == 0.0 && second == 0.0;
    let variance = if is_constant { 0.0 } else { known(2.0, second, variance) };
    let std = variance.sqrt();
    // The third powers may cancel to a small sum, but their terms are large enough if the deviation
    // is.
    let (cube, fourth_power) = (variance * std, variance * variance);
    ColumnSummary {
        skewness: known(3.0, cube, about_mean[0] / cube),
        kurtosis: known(4.0, fourth_power, about_mean[1] / fourth_power - 3.0),
        ..of_variance(if first.is_finite() { shift + first } else { f64::NAN }, variance)
    }
}

impl MomentSums {
    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the sums of each column.
    #[must_use]
    pub fn columns(&self) -> &[ColumnSums] {
        &self.columns
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

impl TryClone for MomentSums {
    fn try_clone(&self) -> Result<Self> {
        Ok(Self { rows: self.rows, columns: copied(&self.columns)? })
    }
}

impl Statistic for ColumnMoments {
    type Chunk<'a> = Rows<'a>;
    type Partial = MomentSums;
    type Incoming<'a> = MomentSums;

    fn leaf(&self, rows: &Rows<'_>) -> Result<MomentSums> {
        same_count("columns", self.shifts.len(), rows.columns())?;
        let mut columns = self.sums(rows)?;
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

    fn fits_rows(&self, partial: &MomentSums, rows: u64) -> bool {
        partial.rows == rows
    }

    fn read(&self, bytes: &[u8]) -> Result<MomentSums> {
        let count = 1 + self.shifts.len().saturating_mul(COLUMN_WORDS);
        let words: Vec<u64> = words::decode(bytes, count, "moments")?.collect();
        let columns = words[1..].as_chunks().0.iter().copied().map(ColumnSums::from_words);
        let columns: Vec<_> = columns.collect();
        match columns.iter().position(|sums| !sums.fits_rows(words[0])) {
            None => Ok(MomentSums { rows: words[0], columns }),
            Some(column) => Err(Error::corrupt(format!(
                "the moments of column {column} are impossible for {} rows",
                words[0]
            ))),
        }
    }
}
