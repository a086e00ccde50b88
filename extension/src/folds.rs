//! The jobs of `headwater.reduce`: any statistic behind one face.

use std::sync::Arc;

use headwater::fold::columns::ColumnQuantiles;
use headwater::fold::gram::{Order, Speed};
use headwater::fold::statistic::TryClone;
use headwater::fold::sums::Width;
use headwater::fold::{
    ArraySums, ColumnMoments, Cross, Distinct, End, Exact, ExponentHistogram, Gram, Histogram,
    Quantiles, Statistic, TopRows,
};
use headwater::internal::{check_columns, filled, pool, reserve};
use headwater::matrix::{Element, Matrix, Numbers};
use headwater::plan::Plan;
use headwater::reducer::{
    Arrays, Begun, Form, Job, OfArrays, OfRows, Reduction, Settings, Stream, fold_portion,
    order_setting, quantile_width,
};
use headwater::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::Whole;
use crate::arguments::{Arguments, one_of};
use crate::errors::PyResult;

/// The types of numbers, by their names in NumPy.
pub(super) const ELEMENTS: [(&str, Element); 4] = [
    ("float64", Element::F64),
    ("float32", Element::F32),
    ("float16", Element::F16),
    ("bfloat16", Element::Bf16),
];

/// The names in plans of what [`Cross`] and [`ArraySums`] fold.
const CROSS: &str = "cross";
const SUMS: &str = "sums";

/// Tells whether to stop.
pub(super) type Stop<'a> = &'a dyn Fn() -> bool;

/// A job of any statistic.
pub(super) trait AnyJob: Send + Sync {
    fn job(&self) -> &Job;
    fn stream(&self, first_row: u64, threads: Option<usize>) -> Result<Box<dyn AnyStream>>;
    /// Returns the stream of the rows of a part.
    fn part(&self, part: u64, threads: Option<usize>) -> Result<Box<dyn AnyStream>>;
    fn reduction(&self) -> Box<dyn AnyReduction>;
    /// Returns the portion of all rows of files: X, then Y.
    fn fold_files(
        &self,
        files: Vec<Arc<Matrix>>,
        threads: Option<usize>,
        stop: Stop<'_>,
    ) -> Result<Vec<u8>>;
}

/// A [`Stream`] of any statistic.
pub(super) trait AnyStream: Send {
    fn next_row(&self) -> u64;
    fn operations(&self, count: u64) -> u64;
    fn skip_to(&mut self, row: u64) -> Result<()>;
    /// Appends the rows of each array: their bytes, their number, and the bytes of each.
    fn push(&mut self, arrays: &[(&[u8], (usize, usize))], stop: Stop<'_>) -> Result<()>;
    fn portion(&mut self) -> Result<Vec<u8>>;
    fn begun(&self) -> Result<Begun>;
    fn go_on(&mut self, begun: Begun) -> Result<()>;
}

/// A [`Reduction`] of any statistic.
pub(super) trait AnyReduction: Send {
    fn receive(&mut self, portion: &[u8]) -> Result<usize>;
    fn portion(&self) -> Result<Vec<u8>>;
    /// The rows that are missing: for each range the first row, and the end.
    fn missing(&self) -> Vec<(u64, u64)>;
    fn is_complete(&self) -> bool;
    /// Returns the partial of all rows as bytes; of quantiles, the result.
    fn whole(&self) -> Result<Vec<u8>>;
    /// Returns what the next pass over the rows begins with; none after the last.
    fn next(&self) -> Result<Option<Vec<u8>>>;
    /// Returns the numbers of the result that are not in the bytes of the partial.
    fn figures(&self) -> Result<Vec<f64>>;
}

/// A statistic whose results Python shows.
trait Shown: Statistic<Partial: Send + TryClone> + Send + Sync + 'static {
    /// Returns the bytes of the result, whose digest is that of the result.
    fn whole(&self, whole: &Self::Partial) -> Result<Vec<u8>> {
        let mut bytes = reserve(self.partial_bytes())?;
        self.write(whole, &mut bytes);
        Ok(bytes)
    }

    /// Returns what the next pass over the rows begins with; none after the last.
    fn next(&self, _: &Self::Partial) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Returns the numbers that a result has besides those of the partial.
    fn figures(&self, _: &Self::Partial) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }
}

impl Shown for Gram {
    /// The whole matrix, both halves.
    fn figures(&self, gram: &Self::Partial) -> Result<Vec<f64>> {
        let mut whole = filled(0.0, self.columns() * self.columns())?;
        gram.unfold(0, &mut whole);
        Ok(whole)
    }
}

impl Shown for ColumnMoments {
    /// Six numbers of each column.
    fn figures(&self, sums: &Self::Partial) -> Result<Vec<f64>> {
        let columns = self.summaries(sums).into_iter().zip(self.shifts());
        Ok(columns
            .flat_map(|(of, shift)| {
                [*shift, of.mean, of.variance, of.std, of.skewness, of.kurtosis]
            })
            .collect())
    }
}

impl Shown for Exact {
    /// Five numbers of each column.
    fn figures(&self, sums: &Self::Partial) -> Result<Vec<f64>> {
        let columns = self.summaries(sums).into_iter();
        Ok(columns
            .flat_map(|of| [of.sum, of.mean, of.sum_of_squares, of.variance, of.std])
            .collect())
    }
}

impl Shown for Distinct {
    /// The estimate of each column.
    fn figures(&self, registers: &Self::Partial) -> Result<Vec<f64>> {
        Ok(self.estimates(registers))
    }
}

impl Shown for Quantiles {
    /// The counts and the quantiles of each column.
    fn whole(&self, counts: &Self::Partial) -> Result<Vec<u8>> {
        Ok(ColumnQuantiles::encode(&self.found(counts)?))
    }

    fn next(&self, counts: &Self::Partial) -> Result<Option<Vec<u8>>> {
        self.known_after(counts)
    }
}

impl Shown for ArraySums {}
impl Shown for Cross {}
impl Shown for Histogram {}
impl Shown for ExponentHistogram {}
impl Shown for TopRows {}

/// A job and its statistic.
struct Of<S> {
    job: Job,
    form: Arrays,
    statistic: Arc<S>,
}

impl<S: Shown + OfArrays> AnyJob for Of<S> {
    fn job(&self) -> &Job {
        &self.job
    }

    fn stream(&self, first_row: u64, threads: Option<usize>) -> Result<Box<dyn AnyStream>> {
        let statistic = Arc::clone(&self.statistic);
        let stream = Stream::new(self.job.clone(), self.form, statistic, first_row, threads)?;
        Ok(Box::new(stream))
    }

    fn part(&self, part: u64, threads: Option<usize>) -> Result<Box<dyn AnyStream>> {
        let statistic = Arc::clone(&self.statistic);
        Ok(Box::new(Stream::of_part(&self.job, self.form, statistic, part, threads)?))
    }

    fn reduction(&self) -> Box<dyn AnyReduction> {
        Box::new(Reduction::new(self.job.clone(), Arc::clone(&self.statistic)))
    }

    fn fold_files(
        &self,
        files: Vec<Arc<Matrix>>,
        threads: Option<usize>,
        stop: Stop<'_>,
    ) -> Result<Vec<u8>> {
        let source =
            Arc::clone(&self.statistic).of_files(&self.form, files, &self.job, pool(threads)?)?;
        fold_portion(&self.job, &*source, 0..self.job.chunk_count(), stop)
    }
}

impl<S: OfArrays> AnyStream for Stream<S> {
    fn next_row(&self) -> u64 {
        self.next_row()
    }

    fn operations(&self, count: u64) -> u64 {
        self.operations(count)
    }

    fn skip_to(&mut self, row: u64) -> Result<()> {
        self.skip_to(row)
    }

    fn push(&mut self, arrays: &[(&[u8], (usize, usize))], stop: Stop<'_>) -> Result<()> {
        let form = self.form().pushed();
        let read = arrays.iter().zip(&form).map(|((bytes, (count, row_bytes)), (_, form))| {
            let columns = row_bytes / form.1.bytes();
            Ok((Numbers::of_bytes([*bytes], form.1, (*count, columns))?, columns))
        });
        let read: Vec<_> = read.collect::<Result<_>>()?;
        let rows: Vec<_> = read.iter().map(|(of, columns)| (of.values(), *columns)).collect();
        self.push(&rows, stop)
    }

    fn portion(&mut self) -> Result<Vec<u8>> {
        self.portion()
    }

    fn begun(&self) -> Result<Begun> {
        self.begun()
    }

    fn go_on(&mut self, begun: Begun) -> Result<()> {
        self.go_on(begun)
    }
}

impl<S: Shown> AnyReduction for Reduction<S> {
    fn receive(&mut self, portion: &[u8]) -> Result<usize> {
        self.receive(portion)
    }

    fn portion(&self) -> Result<Vec<u8>> {
        self.checkpoint()
    }

    fn missing(&self) -> Vec<(u64, u64)> {
        let rows = |chunk| self.job().rows_of(chunk).start;
        self.missing().into_iter().map(|chunks| (rows(chunks.start), rows(chunks.end))).collect()
    }

    fn is_complete(&self) -> bool {
        self.is_complete()
    }

    fn whole(&self) -> Result<Vec<u8>> {
        self.statistic().whole(&self.whole()?)
    }

    fn next(&self) -> Result<Option<Vec<u8>>> {
        self.statistic().next(&self.whole()?)
    }

    fn figures(&self) -> Result<Vec<f64>> {
        self.statistic().figures(&self.whole()?)
    }
}

/// A job from the fields of a Python job.
struct Fields<'a, 'py>(Arguments<'a, 'py>);

impl Fields<'_, '_> {
    /// Returns the columns of an array and the type of its numbers.
    fn form(&self, columns: &str, dtype: &str) -> PyResult<Form> {
        let element = one_of(dtype, &self.0.get::<String>(dtype)?, &ELEMENTS)?;
        let columns = self.0.number(columns)?;
        check_columns(columns)?;
        Ok((columns, element))
    }

    /// Returns the job of folding `statistic`, which has this name and these settings of its own.
    fn job<S: Shown + OfArrays>(
        &self,
        form: Arrays,
        (name, mut settings): (&str, Settings),
        statistic: S,
    ) -> PyResult<Box<dyn AnyJob>> {
        let data = self.0.get::<String>("data")?;
        settings.extend(form.settings());
        let plan = Job::plan_of_matrix(name, form.x, data.as_str(), &settings)?;
        let (rows, parts) = (self.0.optional_number("rows")?, self.0.optional_number("parts")?);
        let chunk_rows = self.0.number("chunk_rows")?;
        let job = match (rows, parts) {
            (Some(rows), None) => Job::new(plan, rows, chunk_rows)?,
            (None, Some(parts)) => Job::of_parts(plan, parts, chunk_rows)?,
            _ => {
                return Err(Error::invalid(
                    "expected a job of rows or of parts, found none of them or both; give the number of \
                     rows, or make a PartitionedJob of a job with rows=None",
                )
                .into());
            }
        };
        Ok(Box::new(Of { job, form, statistic: Arc::new(statistic) }))
    }

    /// Returns the job of a statistic of X.
    fn of_x<S: Shown + OfArrays + OfRows>(
        &self,
        x: Form,
        statistic: S,
    ) -> PyResult<Box<dyn AnyJob>> {
        self.job(Arrays::of_x(x.0, x.1), (S::NAME, statistic.settings()), statistic)
    }

    /// Returns the order of the sums of rows in these arrays.
    fn order(&self, form: &Arrays) -> PyResult<Order> {
        let order: Order = self.0.get::<String>("sums")?.parse()?;
        let wide = [Some(form.x), form.y].iter().flatten().any(|of| of.1 == Element::F64);
        order.check(wide, form.weighted)?;
        Ok(order)
    }

    fn gram(&self, x: Form) -> PyResult<Box<dyn AnyJob>> {
        let has_y = self.0.get::<Option<Whole>>("y_columns")?.is_some();
        let y = has_y.then(|| self.form("y_columns", "y_dtype")).transpose()?;
        let (ones, weighted) = (self.0.get("ones")?, self.0.get("weighted")?);
        let finite_only = self.0.get("reject_nonfinite")?;
        let form = Arrays { x, y, ones, weighted, finite_only };
        let gram = Gram::with_order(form.columns(), self.order(&form)?, &Speed::default())?;
        let gram = if weighted { gram.weighted() } else { gram };
        self.job(form, (Gram::NAME, gram.settings()), gram)
    }

    fn cross(&self, x: Form) -> PyResult<Box<dyn AnyJob>> {
        let y = self.form("y_columns", "y_dtype")?;
        let finite_only = self.0.get("reject_nonfinite")?;
        let form = Arrays { y: Some(y), finite_only, ..Arrays::of_x(x.0, x.1) };
        let order = self.order(&form)?;
        let cross = Cross::with_order(x.0, y.0, order, &Speed::default())?;
        self.job(form, (CROSS, order_setting(order)), cross)
    }
}

/// A job of sums, from the fields of a `SumJob`.
pub(super) struct SumJob {
    pub(super) job: Job,
    pub(super) sums: Arc<ArraySums>,
}

impl SumJob {
    pub(super) fn open(fields: &Bound<'_, PyDict>) -> PyResult<Self> {
        let fields = Arguments(fields);
        let arrays: Vec<(String, String, Vec<usize>)> = fields.get("arrays")?;
        let widths = [("float64", Width::F64), ("float32", Width::F32)];
        let form = arrays.iter().map(|(name, dtype, shape)| {
            let count = shape.iter().copied().fold(1, usize::saturating_mul);
            Ok((count, one_of(&format!("the dtype of {name}"), dtype, &widths)?))
        });
        let sums = ArraySums::new(form.collect::<Result<_>>()?)?;
        let names = arrays.iter().map(|(name, dtype, shape)| format!("{name:?} {dtype} {shape:?}"));
        let mut plan = Plan::new();
        plan.add("statistic", SUMS)?;
        plan.add("data", fields.get::<String>("data")?.as_str())?;
        plan.add("arrays", names.collect::<Vec<_>>().join(", ").as_str())?;
        Ok(Self { job: Job::of_arrays(plan, fields.number("leaves")?)?, sums: Arc::new(sums) })
    }
}

/// Returns the reduction of any job of `headwater.reduce`, from its fields.
pub(super) fn reduction(fields: &Bound<'_, PyDict>) -> PyResult<Box<dyn AnyReduction>> {
    if Arguments(fields).get::<String>("statistic")? == SUMS {
        let SumJob { job, sums } = SumJob::open(fields)?;
        return Ok(Box::new(Reduction::new(job, sums)));
    }
    Ok(open(fields)?.reduction())
}

/// Opens a job of rows or of parts from its fields.
pub(super) fn open(fields: &Bound<'_, PyDict>) -> PyResult<Box<dyn AnyJob>> {
    let fields = Fields(Arguments(fields));
    let x = fields.form("columns", "dtype")?;
    match fields.0.get::<String>("statistic")?.as_str() {
        Gram::NAME => fields.gram(x),
        CROSS => fields.cross(x),
        ColumnMoments::NAME => {
            let shifts: Vec<f64> = fields.0.get("shifts")?;
            fields.of_x(x, ColumnMoments::about(&shifts, x.0)?)
        }
        Histogram::NAME => {
            let edges: Vec<f64> = fields.0.get("edges")?;
            fields.of_x(x, Histogram::of_all(x.0, &edges)?)
        }
        Quantiles::NAME => {
            let at: Vec<String> = fields.0.get("at")?;
            let at = at.iter().map(|at| at.parse()).collect::<Result<_>>()?;
            let known: Vec<u8> = fields.0.get("known")?;
            fields.of_x(x, Quantiles::new(x.0, quantile_width(x.1), at)?.after(&known)?)
        }
        Exact::NAME => fields.of_x(x, Exact::new(x.0)?),
        ExponentHistogram::NAME => fields.of_x(x, ExponentHistogram::new(x.0)?),
        Distinct::NAME => fields.of_x(x, Distinct::new(x.0, fields.0.number("precision")?)?),
        TopRows::NAME => {
            let smallest: bool = fields.0.get("smallest")?;
            let end = if smallest { End::Smallest } else { End::Largest };
            let (column, kept) = (fields.0.number("column")?, fields.0.number("count")?);
            fields.of_x(x, TopRows::new(x.0, column, kept, end)?)
        }
        other => Err(Error::invalid(format!("expected a statistic, found {other:?}")).into()),
    }
}
