//! `headwater-reduce moments`, `histogram`, `exponents`, `distinct` and `top`: statistics of columns, as
//! JSON.

use std::path::Path;

use clap::Args;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Folded, RowsArgs, Written};
use crate::Digest;
use crate::error::{Error, Result};
use crate::fold::{
    ColumnMoments, Counts, Distinct, End, ExponentHistogram, Histogram, MomentSums, Ranking,
    Registers, SignExponents, Statistic, TopRows,
};
use crate::reducer::{Job, Matrix, OfMatrix, OfRows, Source};

/// What a column that only counts costs for each of its numbers.
const OPERATIONS: f64 = 10.0;

/// What `headwater-reduce moments` is told of its statistic.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct MomentsArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// A number near the mean, for all columns or for each: sums are of powers of what is above it.
    /// Part of what is computed. Say it where numbers are far from 0 against their spread.
    #[arg(long, num_args = 1.., value_name = "S", default_value = "0", allow_negative_numbers = true)]
    shift: Vec<f64>,
}

/// What `headwater-reduce histogram` is told of its statistic.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct HistogramArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// The edges of the bins of every column, in increasing order.
    #[arg(long, required = true, num_args = 1.., value_name = "E", allow_negative_numbers = true)]
    edges: Vec<f64>,
}

/// What `headwater-reduce exponents` is told of its statistic.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct ExponentsArgs {
    #[command(flatten)]
    rows: RowsArgs,
}

/// What `headwater-reduce distinct` is told of its statistic.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct DistinctArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// 2^P registers for each column: the error is some 104 % / sqrt(2^P), 0.8 % for 14.
    #[arg(long, value_name = "P", default_value_t = Distinct::PRECISION,
          value_parser = clap::value_parser!(u32).range(4..=18))]
    precision: u32,
}

/// What `headwater-reduce top` is told of its statistic.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct TopArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// The column, counted from 0.
    #[arg(long, value_name = "J")]
    column: usize,
    /// How many rows.
    #[arg(long, value_name = "N", default_value_t = 10)]
    count: usize,
    /// The least numbers instead.
    #[arg(long)]
    smallest: bool,
}

/// A job over one matrix, with what else determines it.
fn open<S: OfRows>(
    rows: &RowsArgs,
    threads: ThreadPool,
    name: &str,
    settings: &[(&str, crate::plan::Value)],
    statistic: impl FnOnce(&Matrix) -> Result<S>,
) -> Result<(Job, OfMatrix<S>)> {
    let matrix = rows.open()?;
    let statistic = statistic(&matrix)?;
    let job = rows.job(name, &matrix, settings)?;
    Ok((job.clone(), OfMatrix::new(statistic, matrix, job, threads)))
}

/// What is told of a result that is in the .json alone.
fn told<S: Statistic>(statistic: &S, partial: &S::Partial, columns: Vec<Value>) -> Written {
    Written {
        digest: Digest::of(&statistic.encode(partial)),
        columns: columns.len(),
        more: serde_json::Map::new(),
        result: Some(columns.into()),
    }
}

/// The bits of numbers as a setting.
fn of_numbers(numbers: &[f64]) -> crate::plan::Value {
    Digest::of(bytemuck::cast_slice(numbers)).0.into()
}

/// A number, of which JSON knows only the finite ones.
fn number(value: f64) -> Value {
    match value {
        _ if value.is_finite() => value.into(),
        _ if value.is_nan() => "NaN".into(),
        _ if value > 0.0 => "Infinity".into(),
        _ => "-Infinity".into(),
    }
}

impl Folded for MomentsArgs {
    type Source = OfMatrix<ColumnMoments>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        let settings = [("shifts", of_numbers(&self.shift))];
        open(&self.rows, threads, "moments", &settings, |matrix| {
            let shifts = match self.shift[..] {
                [one] => vec![one; matrix.columns()],
                _ => self.shift.clone(),
            };
            if shifts.len() != matrix.columns() {
                return Err(Error::invalid(format!(
                    "expected one shift, or one for each of {} columns, found {}",
                    matrix.columns(),
                    shifts.len()
                )));
            }
            ColumnMoments::new(shifts)
        })
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().shifts().len(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, sums: &MomentSums) -> Result<Written> {
        let moments = source.statistic();
        let columns = sums.columns().iter().zip(moments.summaries(sums)).zip(moments.shifts());
        let columns = columns.map(|((sums, summary), shift)| {
            // Of no numbers there is no least.
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
                "mean": number(summary.mean),
                "variance": number(summary.variance),
                "std": number(summary.std),
                "skewness": number(summary.skewness),
                "kurtosis": number(summary.kurtosis),
            })
        });
        Ok(told(&**moments, sums, columns.collect()))
    }
}

impl Folded for HistogramArgs {
    type Source = OfMatrix<Histogram>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        let settings = [("edges", of_numbers(&self.edges))];
        open(&self.rows, threads, "histogram", &settings, |matrix| {
            Histogram::new(vec![self.edges.clone(); matrix.columns()])
        })
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().edges().len(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, counts: &Counts) -> Result<Written> {
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
        Ok(told(&**histogram, counts, columns.collect()))
    }
}

impl Folded for ExponentsArgs {
    type Source = OfMatrix<ExponentHistogram>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()? })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        open(&self.rows, threads, "exponents", &[], |matrix| {
            ExponentHistogram::new(matrix.columns())
        })
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().column_count(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, counts: &Counts) -> Result<Written> {
        let histogram = source.statistic();
        let columns = histogram.columns(counts).map(|counts| {
            json!({
                "positive": of_sign(&counts.positive),
                "negative": of_sign(&counts.negative),
                "nans": counts.nans,
                "nulls": counts.nulls,
            })
        });
        Ok(told(&**histogram, counts, columns.collect()))
    }
}

/// The counts of one sign; of exponents those that there are.
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

impl Folded for DistinctArgs {
    type Source = OfMatrix<Distinct>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        let settings = [("precision", u64::from(self.precision).into())];
        open(&self.rows, threads, "distinct", &settings, |matrix| {
            Distinct::new(matrix.columns(), self.precision)
        })
    }

    fn chunk_operations(&self, source: &Self::Source) -> f64 {
        self.rows.operations(source.statistic().column_count(), OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, registers: &Registers) -> Result<Written> {
        let distinct = source.statistic();
        let columns = distinct.estimates(registers).into_iter().map(number);
        let columns = columns.map(|estimate| json!({ "distinct": estimate }));
        Ok(told(&**distinct, registers, columns.collect()))
    }
}

impl Folded for TopArgs {
    type Source = OfMatrix<TopRows>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)> {
        let end = if self.smallest { End::Smallest } else { End::Largest };
        let settings = [
            ("column", (self.column as u64).into()),
            ("kept", (self.count as u64).into()),
            ("smallest", self.smallest.into()),
        ];
        open(&self.rows, threads, "top", &settings, |matrix| {
            TopRows::new(matrix.columns(), self.column, self.count, end)
        })
    }

    fn chunk_operations(&self, _: &Self::Source) -> f64 {
        self.rows.operations(1, OPERATIONS)
    }

    fn write(&self, _: &Path, source: &Self::Source, ranking: &Ranking) -> Result<Written> {
        let rows = ranking.rows().iter();
        let rows = rows.map(|ranked| json!({ "row": ranked.row, "value": number(ranked.value) }));
        Ok(Written { columns: 1, ..told(&**source.statistic(), ranking, rows.collect()) })
    }
}
