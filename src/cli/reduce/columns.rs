//! `headwater-reduce moments`, `exact`, `histogram`, `exponents`, `distinct` and `top`: statistics of
//! columns, as JSON.

use std::convert::Infallible;
use std::path::Path;
use std::str::FromStr;

use clap::Args;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::args::{RowsArgs, StatisticCommand, WrittenResult};
use crate::Digest;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::fold::columns::{
    ColumnSummary, Counts, ExactSums, MomentSums, Ranking, Registers, SignExponents,
};
use crate::fold::{
    ColumnMoments, Distinct, End, Exact, ExponentHistogram, Histogram, Statistic, TopRows,
};
use crate::matrix::Matrix;
use crate::reducer::{Job, OfMatrix, OfRows, Source, moments_of_files};

/// The operations for each number of a column, about.
pub(super) const OPERATIONS: f64 = 10.0;

/// How many columns a warning names.
const COLUMNS_SHOWN: usize = 20;

/// The arguments of `headwater-reduce moments` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct MomentsArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// A number near the mean, for all columns or for each: the sums are of powers of the differences
    /// from it. Another number gives other bits. Default: the median of the column's finite numbers among the
    /// first 1,024 rows, or 0 without any; each rank must then have these rows.
    #[arg(long, num_args = 1.., value_name = "S", allow_negative_numbers = true)]
    shift: Option<Vec<f64>>,
}

/// The arguments of `headwater-reduce exact` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct ExactArgs {
    #[command(flatten)]
    rows: RowsArgs,
}

/// The arguments of `headwater-reduce histogram` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct HistogramArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// The edges of the bins of every column, in increasing order.
    #[arg(long, required = true, num_args = 1.., value_name = "E", allow_negative_numbers = true)]
    edges: Vec<f64>,
}

/// The arguments of `headwater-reduce exponents` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct ExponentsArgs {
    #[command(flatten)]
    rows: RowsArgs,
}

/// The arguments of `headwater-reduce distinct` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct DistinctArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// 2^P registers for each column: the error is some 104 % / sqrt(2^P), 0.8 % for 14.
    #[arg(long, value_name = "P", default_value_t = Distinct::PRECISION,
          value_parser = clap::value_parser!(u32).range(4..=18))]
    precision: u32,
}

/// The arguments of `headwater-reduce top` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct TopArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// The column: its number, counted from 0, or its name in a .parquet.
    #[arg(long, value_name = "J")]
    column: Column,
    /// The number of rows.
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: usize,
    /// Take the smallest numbers instead of the greatest.
    #[arg(long)]
    smallest: bool,
}

/// A column, by its number or its name.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Column {
    Number(usize),
    Name(String),
}

impl FromStr for Column {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        // "02" can only be a name: a number has no leading zeros.
        let number = text.parse().ok().filter(|number: &usize| number.to_string() == text);
        Ok(number.map_or_else(|| Self::Name(text.to_owned()), Self::Number))
    }
}

impl Column {
    /// Returns the number of the column.
    fn of(&self, matrix: &Matrix) -> Result<usize> {
        let number = match self {
            Self::Name(name) => return matrix.column_of(name),
            Self::Number(number) => *number,
        };
        let names = matrix.names().unwrap_or_default();
        let text = number.to_string();
        let named = names.iter().position(|name| *name == text);
        match (named, names.get(number)) {
            (Some(named), Some(numbered)) if *numbered != text => Err(Error::invalid(format!(
                "--column {number}: expected one column, found two: column {number} is named \
                 {numbered:?}, and column {named} is named {text:?}; choose columns with --select \
                 so that number and name agree"
            ))),
            (Some(named), None) => Ok(named),
            _ => Ok(number),
        }
    }
}

/// Opens a job over one matrix; `statistic` returns the statistic.
pub(super) fn open<S: OfRows>(
    rows: &RowsArgs,
    threads: ThreadPool,
    statistic: impl FnOnce(&Matrix) -> Result<S>,
) -> Result<(Job, OfMatrix<S>)> {
    let matrix = rows.open()?;
    let statistic = statistic(&matrix)?;
    let job = rows.job(S::NAME, &matrix, &statistic.settings())?;
    Ok((job.clone(), OfMatrix::new(statistic, matrix, job, threads)))
}

/// Returns the summary of a result that is in the .json only.
fn output_of<S: Statistic>(
    statistic: &S,
    partial: &S::Partial,
    result: Vec<Value>,
) -> WrittenResult {
    WrittenResult {
        digest: Digest::of(&statistic.encode(partial)),
        columns: result.len(),
        more: serde_json::Map::new(),
        result: Some(result.into()),
    }
}

/// Returns the summary of one result for each column, with the names of the columns if they have any.
pub(super) fn output_of_columns<S: OfRows>(
    source: &OfMatrix<S>,
    partial: &S::Partial,
    mut columns: Vec<Value>,
) -> WrittenResult {
    for (column, name) in columns.iter_mut().zip(source.matrix().names().unwrap_or_default()) {
        column["name"] = name.as_str().into();
    }
    output_of(&**source.statistic(), partial, columns)
}

/// Returns a number as JSON; text if it is not finite, for which JSON has no numbers.
pub(super) fn number(value: f64) -> Value {
    match value {
        _ if value.is_finite() => value.into(),
        _ if value.is_nan() => "NaN".into(),
        _ if value > 0.0 => "Infinity".into(),
        _ => "-Infinity".into(),
    }
}

/// Returns a number as JSON; null if it is unknown (NaN).
pub(super) fn known(value: f64) -> Value {
    if value.is_nan() { Value::Null } else { number(value) }
}

impl MomentsArgs {
    fn statistic(&self, matrix: &Matrix) -> Result<ColumnMoments> {
        match self.shift.as_deref() {
            None => {
                let moments = moments_of_files(matrix).map_err(suggest_shift);
                moments.context(|| "without --shift, the shift is taken from the first rows")
            }
            Some(shifts) => ColumnMoments::about(shifts, matrix.columns()),
        }
    }
}

/// Adds --shift to the remedies of an error when the first rows are on another machine.
fn suggest_shift(error: Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidArgument => Error::new(error.kind(), format!("{error}, or set --shift")),
        _ => error,
    }
}

/// Warns of columns whose results have lost all digits.
fn warn_of_lost_digits(summaries: &[ColumnSummary]) {
    let lost = summaries.iter().zip(0_usize..).filter(|(summary, _)| summary.is_lost());
    let lost: Vec<String> = lost.map(|(_, column)| column.to_string()).collect();
    if lost.is_empty() {
        return;
    }
    eprintln!(
        "headwater-reduce: {} {}{}: values that are null in the result have lost all digits: the \
         mean is far from the shift compared with the deviation (set --shift to a number near the \
         mean), or the numbers are too large or too small for sums of their powers",
        if lost.len() == 1 { "column" } else { "columns" },
        lost[..lost.len().min(COLUMNS_SHOWN)].join(", "),
        if lost.len() > COLUMNS_SHOWN { " and more" } else { "" }
    );
}

impl StatisticCommand for MomentsArgs {
    type Source = OfMatrix<ColumnMoments>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        open(&self.rows, threads, |matrix| self.statistic(matrix))
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().shifts().len(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, sums: &MomentSums) -> Result<WrittenResult> {
        let moments = source.statistic();
        let summaries = moments.summaries(sums);
        warn_of_lost_digits(&summaries);
        let columns = sums.columns().iter().zip(summaries).zip(moments.shifts());
        let columns = columns.map(|((sums, summary), shift)| {
            // Without numbers there is no smallest one.
            let range = |value| if sums.min > sums.max { Value::Null } else { number(value) };
            json!({
                "nulls": sums.nulls,
                "nans": sums.nans,
                "negative_infinities": sums.negative_infinities,
                "positive_infinities": sums.positive_infinities,
                "finite": summary.finite,
                "min": range(sums.min),
                "max": range(sums.max),
                "shift": shift,
                "power_sums": sums.powers.map(number),
                "mean": known(summary.mean),
                "variance": known(summary.variance),
                "std": known(summary.std),
                "skewness": known(summary.skewness),
                "kurtosis": known(summary.kurtosis),
            })
        });
        let mut written = output_of_columns(source, sums, columns.collect());
        written.more.insert("ddof".to_owned(), 0.into());
        written.more.insert("excess_kurtosis".to_owned(), true.into());
        Ok(written)
    }
}

impl StatisticCommand for ExactArgs {
    type Source = OfMatrix<Exact>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()? })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        open(&self.rows, threads, |matrix| Exact::new(matrix.columns()))
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().column_count(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, sums: &ExactSums) -> Result<WrittenResult> {
        let summaries = source.statistic().summaries(sums).into_iter();
        let columns = summaries.map(|of| {
            json!({
                "nulls": of.nulls,
                "nans": of.nans,
                "negative_infinities": of.negative_infinities,
                "positive_infinities": of.positive_infinities,
                "finite": of.finite,
                "sum": number(of.sum),
                "mean": known(of.mean),
                "sum_of_squares": number(of.sum_of_squares),
                "variance": known(of.variance),
                "std": known(of.std),
            })
        });
        let mut written = output_of_columns(source, sums, columns.collect());
        written.more.insert("ddof".to_owned(), 0.into());
        Ok(written)
    }
}

impl StatisticCommand for HistogramArgs {
    type Source = OfMatrix<Histogram>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        open(&self.rows, threads, |matrix| Histogram::of_all(matrix.columns(), &self.edges))
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().edges().len(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, counts: &Counts) -> Result<WrittenResult> {
        let histogram = source.statistic();
        let columns = histogram.columns(counts).map(|counts| {
            json!({
                "edges": self.edges,
                "below": counts.below,
                "between": counts.between,
                "above": counts.above,
                "nans": counts.nans,
                "nulls": counts.nulls,
            })
        });
        Ok(output_of_columns(source, counts, columns.collect()))
    }
}

impl StatisticCommand for ExponentsArgs {
    type Source = OfMatrix<ExponentHistogram>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()? })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        open(&self.rows, threads, |matrix| ExponentHistogram::new(matrix.columns()))
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().column_count(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, counts: &Counts) -> Result<WrittenResult> {
        let histogram = source.statistic();
        let columns = histogram.columns(counts).map(|counts| {
            json!({
                "positive": of_sign(&counts.positive),
                "negative": of_sign(&counts.negative),
                "nans": counts.nans,
                "nulls": counts.nulls,
            })
        });
        Ok(output_of_columns(source, counts, columns.collect()))
    }
}

/// Returns the counts of one sign; only exponents with a count above 0.
fn of_sign(counts: &SignExponents<'_>) -> Value {
    let exponents = counts.normal.iter().zip(-1022_i64..).filter(|(count, _)| **count > 0);
    let exponents: serde_json::Map<_, _> =
        exponents.map(|(count, exponent)| (exponent.to_string(), (*count).into())).collect();
    json!({
        "zeros": counts.zeros,
        "subnormals": counts.subnormals,
        "exponents": exponents,
        "infinities": counts.infinities,
    })
}

impl StatisticCommand for DistinctArgs {
    type Source = OfMatrix<Distinct>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        open(&self.rows, threads, |matrix| Distinct::new(matrix.columns(), self.precision))
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().column_count(), OPERATIONS)
    }

    fn write(
        &self,
        _: &Path,
        source: &Self::Source,
        registers: &Registers,
    ) -> Result<WrittenResult> {
        let distinct = source.statistic();
        let columns = distinct.estimates(registers).into_iter().map(number);
        let columns = columns.map(|estimate| json!({ "distinct": estimate }));
        Ok(output_of_columns(source, registers, columns.collect()))
    }
}

impl StatisticCommand for TopArgs {
    type Source = OfMatrix<TopRows>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        let end = if self.smallest { End::Smallest } else { End::Largest };
        open(&self.rows, threads, |matrix| {
            TopRows::new(matrix.columns(), self.column.of(matrix)?, self.count, end)
        })
    }

    fn chunk_operations(&self, _: &Self::Source) -> f64 {
        self.rows.operations(1, OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, ranking: &Ranking) -> Result<WrittenResult> {
        let rows = ranking.rows().iter();
        let rows = rows.map(|ranked| json!({ "row": ranked.row, "value": number(ranked.value) }));
        let mut written = output_of(&**source.statistic(), ranking, rows.collect());
        let column = source.statistic().column();
        written.columns = 1;
        written.more.insert("column".to_owned(), column.into());
        if let Some(names) = source.matrix().names() {
            written.more.insert("column_name".to_owned(), names[column].as_str().into());
        }
        Ok(written)
    }
}
