//! Statistics of rows that a program pushes: those of one array, or of several side by side.

use std::sync::Arc;

use rayon::ThreadPool;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::bytes::Digest;
use crate::error::{Error, Result};
use crate::fold::columns::NumberedRows;
use crate::fold::gram::{Chunk, Rectangle, Triangle};
use crate::fold::statistic::TryClone;
use crate::fold::{
    ColumnMoments, Cross, Distinct, Exact, ExponentHistogram, Gram, Histogram, Quantiles,
    Statistic, TopRows, Values,
};
use crate::matrix::{Element, Matrix, Numbers};

use super::job::{Job, Settings};
use super::matrices::{CrossOfMatrices, OfMatrix, OfRows, sourced};
use super::source::Source;
use super::sourced::{Sourced, of_siblings};

/// Returns the setting of a job that refuses NaN and infinities. It belongs to the plan, because sums do not
/// show whether their rows were checked: a checkpoint without the check is of another job.
#[must_use]
pub fn nonfinite_setting(finite_only: bool) -> Settings {
    finite_only.then(|| ("reject_nonfinite", true.into())).into_iter().collect()
}

/// The columns of an array, and the type of its numbers.
pub type Form = (usize, Element);

/// The arrays that have the rows of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrays {
    /// X.
    pub x: Form,
    /// Y, whose columns follow those of X, or are multiplied with them.
    pub y: Option<Form>,
    /// Whether a column of ones follows X.
    pub ones: bool,
    /// Whether each row has a weight, a 64-bit float.
    pub weighted: bool,
    /// Whether NaN and infinities are refused.
    pub finite_only: bool,
}

impl Arrays {
    /// X alone.
    #[must_use]
    pub fn of_x(columns: usize, element: Element) -> Self {
        Self { x: (columns, element), y: None, ones: false, weighted: false, finite_only: false }
    }

    /// The columns of `[X | 1 | Y]`.
    #[must_use]
    pub fn columns(&self) -> usize {
        let of_y = self.y.map_or(0, |(columns, _)| columns);
        self.x.0.saturating_add(usize::from(self.ones)).saturating_add(of_y)
    }

    /// The settings of a job with these arrays, besides those of X.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let mut settings = nonfinite_setting(self.finite_only);
        if let Some((columns, element)) = self.y {
            settings.push(("with_columns", (columns as u64).into()));
            settings.push(("with_element", element.name().into()));
        }
        if self.ones {
            settings.push(("ones", true.into()));
        }
        if self.weighted {
            settings.push(("weighted", true.into()));
        }
        settings
    }

    /// The arrays that are pushed, in their order, with their names for messages.
    #[must_use]
    pub fn pushed(&self) -> Vec<(&'static str, Form)> {
        let y = self.y.map(|form| ("Y", form));
        let weights = self.weighted.then_some(("weights", (1, Element::F64)));
        [Some(("rows", self.x)), y, weights].into_iter().flatten().collect()
    }
}

/// The rows of one chunk.
pub struct ChunkOfArrays<'a> {
    /// The number of the first row.
    first: u64,
    x: Numbers<'a>,
    y: Option<Numbers<'a>>,
    weights: Option<Numbers<'a>>,
}

impl<'a> ChunkOfArrays<'a> {
    /// Returns the chunk of `arrays`, in the order of [`Arrays::pushed`]; none if one is missing.
    pub(super) fn of(form: &Arrays, first: u64, arrays: Vec<Numbers<'a>>) -> Option<Self> {
        let mut arrays = arrays.into_iter();
        let x = arrays.next()?;
        let y = form.y.and_then(|_| arrays.next());
        Some(Self { first, x, y, weights: arrays.next() })
    }

    /// Returns the digest of the rows of all arrays.
    fn digest(&self) -> Digest {
        let more = self.y.iter().chain(&self.weights);
        more.fold(self.x.digest(), |digest, array| of_siblings(digest, array.digest()))
    }

    /// Returns the columns of all arrays, side by side.
    fn side_by_side(&self, form: &Arrays) -> Result<Chunk<'_>> {
        let mut chunk = Chunk::of(self.x.rows()?);
        if form.ones {
            chunk = chunk.and_ones();
        }
        if let Some(y) = &self.y {
            chunk = chunk.and(y.rows()?)?;
        }
        match self.weights.as_ref().map(Numbers::values) {
            Some(Values::F64(weights)) => chunk.weighted(weights),
            _ => Ok(chunk),
        }
    }
}

/// A statistic of the rows of arrays.
pub trait OfArrays: Statistic<Partial: Send + TryClone> + Send + Sync + 'static {
    /// Returns the partial of each chunk and the digest of its rows, computed by the threads of a pool.
    ///
    /// # Errors
    /// As [`Statistic::leaf`].
    fn leaves_of_arrays(
        &self,
        form: &Arrays,
        chunks: &[ChunkOfArrays<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Sourced<Self::Partial>>>;

    /// Returns the rows of files, X and then Y, as the source of `job`.
    ///
    /// # Errors
    /// `InvalidArgument` for other files than the statistic takes.
    fn of_files(
        self: Arc<Self>,
        form: &Arrays,
        files: Vec<Arc<Matrix>>,
        job: &Job,
        threads: ThreadPool,
    ) -> Result<Box<dyn Source<Statistic = Self>>>;
}

/// Returns the leaves of the rows of X.
fn leaves_of_x<S: OfRows>(
    statistic: &S,
    chunks: &[ChunkOfArrays<'_>],
    threads: &ThreadPool,
) -> Result<Vec<Sourced<S::Partial>>> {
    let read: Vec<_> = chunks.iter().map(|chunk| &chunk.x).collect();
    let rows = chunks
        .iter()
        .map(|chunk| chunk.x.rows().map(|rows| NumberedRows { first: chunk.first, rows }));
    statistic.sourced_leaves(&rows.collect::<Result<Vec<_>>>()?, &read, threads)
}

/// Returns the rows of X in files as a source.
fn x_of_files<S: OfRows + 'static>(
    statistic: Arc<S>,
    form: &Arrays,
    files: Vec<Arc<Matrix>>,
    job: &Job,
    threads: ThreadPool,
) -> Result<Box<dyn Source<Statistic = S>>> {
    let [x] = <[_; 1]>::try_from(files).map_err(|files| files_expected(1, files.len()))?;
    let source = OfMatrix::of_shared(statistic, x, job.clone(), threads);
    Ok(Box::new(if form.finite_only { source.finite_only() } else { source }))
}

/// Returns the digest of the rows of each chunk, computed by the threads of a pool.
fn digests(chunks: &[ChunkOfArrays<'_>], threads: &ThreadPool) -> Vec<Digest> {
    threads.install(|| chunks.par_iter().map(ChunkOfArrays::digest).collect())
}

fn files_expected(expected: usize, found: usize) -> Error {
    Error::invalid(format!("expected {expected} matrices in files, found {found}"))
}

macro_rules! of_x_alone {
    ($($statistic:ty),*) => {$(
        impl OfArrays for $statistic {
            fn leaves_of_arrays(
                &self,
                _: &Arrays,
                chunks: &[ChunkOfArrays<'_>],
                threads: &ThreadPool,
            ) -> Result<Vec<Sourced<Self::Partial>>> {
                leaves_of_x(self, chunks, threads)
            }

            fn of_files(
                self: Arc<Self>,
                form: &Arrays,
                files: Vec<Arc<Matrix>>,
                job: &Job,
                threads: ThreadPool,
            ) -> Result<Box<dyn Source<Statistic = Self>>> {
                x_of_files(self, form, files, job, threads)
            }
        }
    )*};
}

of_x_alone!(ColumnMoments, Exact, Histogram, ExponentHistogram, Distinct, Quantiles, TopRows);

impl OfArrays for Gram {
    fn leaves_of_arrays(
        &self,
        form: &Arrays,
        chunks: &[ChunkOfArrays<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Sourced<Triangle>>> {
        if form.pushed().len() == 1 && !form.ones {
            return leaves_of_x(self, chunks, threads);
        }
        let sides = chunks.iter().map(|chunk| chunk.side_by_side(form));
        let sums = self.leaves(&sides.collect::<Result<Vec<_>>>()?, threads)?;
        Ok(sourced(sums, digests(chunks, threads)))
    }

    fn of_files(
        self: Arc<Self>,
        form: &Arrays,
        files: Vec<Arc<Matrix>>,
        job: &Job,
        threads: ThreadPool,
    ) -> Result<Box<dyn Source<Statistic = Self>>> {
        x_of_files(self, form, files, job, threads)
    }
}

impl OfArrays for Cross {
    fn leaves_of_arrays(
        &self,
        _: &Arrays,
        chunks: &[ChunkOfArrays<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Sourced<Rectangle>>> {
        let sides = chunks.iter().map(|chunk| match &chunk.y {
            Some(y) => Ok((Chunk::of(chunk.x.rows()?), Chunk::of(y.rows()?))),
            None => Err(Error::invalid("expected the rows of X and of Y, found those of X")),
        });
        let sums = self.leaves(&sides.collect::<Result<Vec<_>>>()?, threads)?;
        Ok(sourced(sums, digests(chunks, threads)))
    }

    fn of_files(
        self: Arc<Self>,
        form: &Arrays,
        files: Vec<Arc<Matrix>>,
        job: &Job,
        threads: ThreadPool,
    ) -> Result<Box<dyn Source<Statistic = Self>>> {
        let sides = <[_; 2]>::try_from(files).map_err(|files| files_expected(2, files.len()))?;
        let source = CrossOfMatrices::of_shared(self, sides, job.clone(), threads)?;
        Ok(Box::new(if form.finite_only { source.finite_only() } else { source }))
    }
}
