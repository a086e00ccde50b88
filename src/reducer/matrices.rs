//! Statistics of the rows of matrices.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rayon::ThreadPool;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use crate::bytes::Digest;
use crate::error::{Error, Result};
use crate::fold::columns::{KeyWidth, NumberedRows};
use crate::fold::gram::{Chunk, Order, Rectangle, Triangle};
use crate::fold::statistic::leaves;
use crate::fold::{
    ColumnMoments, Cross, Distinct, End, Exact, ExponentHistogram, Gram, Histogram, Quantiles,
    Statistic, TopRows,
};
use crate::matrix::{Element, Matrix, Numbers, RowsHasher};
use crate::plan::Setting;
use crate::stamp::Stamp;

use super::job::{Job, Settings};
use super::source::Source;
use super::sourced::{Sourced, of_siblings};
use super::versions::FileVersion;

/// Operations of a thread before the partials are merged and the fold checks whether to stop: less than
/// a tenth of a second.
const OPERATIONS_PER_THREAD: u64 = 4_000_000_000;
const CHUNKS_PER_THREAD_MAX: u64 = 32;

/// The most bytes of partials that wait to be merged, unless a single partial has more.
const PARTIAL_BYTES_MAX: u64 = 1 << 28;

/// The bytes of rows that a thread folds at a time: as many as fit into its cache.
const NEAR_BYTES: u64 = 1 << 19;

/// The first rows, from which the shifts of moments are taken by default.
const SHIFT_ROWS: usize = 1024;

/// A statistic of the rows of one matrix.
pub trait OfRows: Statistic + Send + Sync {
    /// Its name in the plans of jobs.
    const NAME: &'static str;

    /// Whether rows may have nulls.
    const TAKES_NULLS: bool = true;

    /// Returns the settings of a job that are its own: all that determine its bits, besides the rows.
    fn settings(&self) -> Settings;

    /// Returns the partial of each chunk, computed by the threads of a pool.
    ///
    /// # Errors
    /// As [`Statistic::leaf`].
    fn leaves_of(
        &self,
        chunks: &[NumberedRows<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Self::Partial>>;

    /// The same, and the digests of the rows, which are in `read`.
    ///
    /// # Errors
    /// As [`OfRows::leaves_of`].
    fn sourced_leaves(
        &self,
        chunks: &[NumberedRows<'_>],
        read: &[&Numbers<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Sourced<Self::Partial>>> {
        sourced_apart(self, chunks, read, threads)
    }
}

/// Returns the partials of chunks and the digests of their rows, which are read once for each.
fn sourced_apart<S: OfRows + ?Sized>(
    statistic: &S,
    chunks: &[NumberedRows<'_>],
    read: &[&Numbers<'_>],
    threads: &ThreadPool,
) -> Result<Vec<Sourced<S::Partial>>> {
    let rows = digests(read, threads);
    Ok(sourced(statistic.leaves_of(chunks, threads)?, rows))
}

impl OfRows for Gram {
    const NAME: &'static str = "gram";
    const TAKES_NULLS: bool = false;

    fn settings(&self) -> Settings {
        order_setting(self.order())
    }

    /// Where each thread has chunks of its own, it reads the rows for the digest block by block, between
    /// memory and the sums. Where all threads share a chunk, they would wait for that.
    fn sourced_leaves(
        &self,
        chunks: &[NumberedRows<'_>],
        read: &[&Numbers<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Sourced<Triangle>>> {
        if self.shares_chunks() {
            return sourced_apart(self, chunks, read, threads);
        }
        let hashers: Vec<_> = chunks.iter().map(|_| RowsHasher::default()).collect();
        let readers: Vec<_> =
            hashers.iter().map(|hasher| |bytes: &[u8]| hasher.add(bytes)).collect();
        let chunks: Vec<_> = chunks
            .iter()
            .zip(&readers)
            .map(|(chunk, reader)| Chunk::of(chunk.rows).read_by(reader))
            .collect();
        let partials = self.leaves(&chunks, threads)?;
        Ok(sourced(partials, hashers.iter().map(RowsHasher::finish).collect()))
    }

    fn leaves_of(
        &self,
        chunks: &[NumberedRows<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Self::Partial>> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Chunk::of(chunk.rows)).collect();
        self.leaves(&chunks, threads)
    }
}

impl OfRows for TopRows {
    const NAME: &'static str = "top";

    fn settings(&self) -> Settings {
        vec![
            ("column", (self.column() as u64).into()),
            ("kept", (self.kept() as u64).into()),
            ("smallest", (self.end() == End::Smallest).into()),
        ]
    }

    fn leaves_of(
        &self,
        chunks: &[NumberedRows<'_>],
        threads: &ThreadPool,
    ) -> Result<Vec<Self::Partial>> {
        leaves(self, chunks, threads)
    }
}

macro_rules! of_rows_without_numbers {
    ($($name:literal: $statistic:ty, $settings:expr;)*) => {$(
        impl OfRows for $statistic {
            const NAME: &'static str = $name;

            fn settings(&self) -> Settings {
                $settings(self)
            }

            fn leaves_of(
                &self,
                chunks: &[NumberedRows<'_>],
                threads: &ThreadPool,
            ) -> Result<Vec<Self::Partial>> {
                let chunks: Vec<_> = chunks.iter().map(|chunk| chunk.rows).collect();
                leaves(self, &chunks, threads)
            }
        }
    )*};
}

of_rows_without_numbers! {
    "moments": ColumnMoments, |moments: &Self| vec![("shifts", bits_of(moments.shifts()))];
    "exact": Exact, |_: &Self| Vec::new();
    "histogram": Histogram, |histogram: &Self| vec![("edges", edges_of(histogram.edges()))];
    "exponents": ExponentHistogram, |_: &Self| Vec::new();
    "distinct": Distinct, |distinct: &Self| {
        vec![("precision", u64::from(distinct.precision()).into())]
    };
    "quantiles": Quantiles, quantiles_of;
}

/// Returns the setting of a job for the order in which products are summed: none for 64 bits, as before
/// there was another.
#[must_use]
pub fn order_setting(order: Order) -> Settings {
    (order != Order::F64).then(|| ("sums", order.name().into())).into_iter().collect()
}

/// Returns the digest of the bits of numbers, as a setting.
fn bits_of(numbers: &[f64]) -> Setting {
    Digest::of(bytemuck::cast_slice(numbers)).0.into()
}

/// Returns the width of the keys of the numbers of a matrix.
#[must_use]
pub fn quantile_width(element: Element) -> KeyWidth {
    if element == Element::F64 { KeyWidth::Wide } else { KeyWidth::Narrow }
}

/// Returns the settings of a pass: the quantiles, its number, and the digest of what it knows.
fn quantiles_of(pass: &Quantiles) -> Settings {
    let at: Vec<String> = pass.at().iter().map(ToString::to_string).collect();
    vec![
        ("at", at.join(" ").as_str().into()),
        ("pass", u64::from(pass.pass()).into()),
        ("known", Digest::of(&pass.known()).0.into()),
    ]
}

/// Returns the setting of the edges that all columns have, or of those of each column.
fn edges_of(edges: &[Vec<f64>]) -> Setting {
    match edges {
        [first, others @ ..] if others.iter().all(|other| other == first) => bits_of(first),
        _ => {
            let each = edges.iter().map(|edges| Digest::of(bytemuck::cast_slice(edges)).0);
            Digest::of(each.collect::<Vec<_>>().as_flattened()).0.into()
        }
    }
}

/// Returns the moments about the median of each column among the first of these rows.
///
/// # Errors
/// Those of [`ColumnMoments::near`].
pub fn moments_near(rows: &Numbers<'_>) -> Result<ColumnMoments> {
    ColumnMoments::near(&rows.rows()?.first(SHIFT_ROWS))
}

/// The same for the rows of files.
///
/// # Errors
/// Those of [`Matrix::read`] and of [`moments_near`].
pub fn moments_of_files(matrix: &Matrix) -> Result<ColumnMoments> {
    moments_near(&matrix.read(0..matrix.rows().min(SHIFT_ROWS as u64))?)
}

/// What to do about a NaN or infinity that is refused.
pub(super) const FINITE_REMEDY: &str =
    "correct the data, or fold again without --reject-nonfinite (in Python: reject_nonfinite)";

/// A matrix on disk, of which a job folds chunks.
struct Chunks {
    matrix: Arc<Matrix>,
    takes_nulls: bool,
    finite_only: bool,
}

impl Chunks {
    fn read(&self, job: &Job, chunks: Range<u64>) -> Result<Vec<(u64, Numbers<'_>)>> {
        let read = chunks.map(|chunk| {
            let rows = job.rows_of(chunk);
            Ok((rows.start, self.matrix.read(rows)?))
        });
        read.collect()
    }

    /// Returns the rows of the chunks in `read`. Rejects nulls when the statistic cannot count them, and a
    /// NaN or infinity when `finite_only` is set, with file, row and column.
    fn rows<'a>(&self, read: &'a [(u64, Numbers<'_>)]) -> Result<Vec<NumberedRows<'a>>> {
        let rows = read.iter().map(|(first, numbers)| {
            let rows = numbers.rows()?;
            // Each check reads the rows once more, so it runs only when needed.
            if !self.takes_nulls
                && let Some((row, column)) = rows.first_null()
            {
                return Err(self.matrix.null_at(first + row as u64, column));
            }
            if self.finite_only
                && let Some((row, column, value)) = rows.first_nonfinite()
            {
                return Err(self.matrix.bad_number(
                    (first + row as u64, column),
                    &format!("expected a finite number, found {value}"),
                    FINITE_REMEDY,
                ));
            }
            Ok(NumberedRows { first: *first, rows })
        });
        rows.collect()
    }

    /// Returns the versions of the files that were opened; `place` is the place of the first among the
    /// files of the job.
    fn opened_versions(&self, place: u64) -> Vec<FileVersion> {
        self.matrix.opened().map(|file| version(place, file)).collect()
    }

    /// The same for the files of `rows`, after a check that they have not changed.
    fn versions_of(&self, rows: Range<u64>, place: u64) -> Result<Vec<FileVersion>> {
        let files = self.matrix.check_unchanged(rows)?;
        Ok(files.into_iter().map(|file| version(place, file)).collect())
    }

    fn chunk_bytes(&self, job: &Job) -> u64 {
        let row_bytes = self.matrix.columns() * self.matrix.element().bytes();
        job.chunk_rows().min(job.rows()).saturating_mul(row_bytes as u64)
    }

    fn readable(&self, job: &Job) -> Vec<Range<u64>> {
        job.chunks_within(self.matrix.readable())
    }

    fn cuts(&self, job: &Job) -> BTreeSet<u64> {
        job.chunks_around(self.matrix.file_starts())
    }
}

fn version(first: u64, (place, path, stamp): (u64, &Path, Stamp)) -> FileVersion {
    FileVersion { place: first + place, path: path.display().to_string(), stamp }
}

/// Returns the digest of the rows of each chunk, computed by the threads of a pool.
fn digests(read: &[&Numbers<'_>], threads: &ThreadPool) -> Vec<Digest> {
    threads.install(|| read.par_iter().map(|numbers| numbers.digest()).collect())
}

/// Returns the numbers alone of rows that were read.
fn numbers_of<'a, 'r>(read: &'a [(u64, Numbers<'r>)]) -> Vec<&'a Numbers<'r>> {
    read.iter().map(|(_, numbers)| numbers).collect()
}

/// Pairs the partials of chunks with the digests of their rows.
pub(super) fn sourced<P>(partials: Vec<P>, rows: Vec<Digest>) -> Vec<Sourced<P>> {
    partials.into_iter().zip(rows).map(|(partial, rows)| Sourced { partial, rows }).collect()
}

/// Cuts chunks into ranges that threads fold together, so small that rows are still in a cache between
/// their digest and their sums.
fn near(
    chunks: Range<u64>,
    chunk_bytes: u64,
    threads: &ThreadPool,
) -> impl Iterator<Item = Range<u64>> {
    let each = (NEAR_BYTES / chunk_bytes.max(1)).max(1);
    let together = each.saturating_mul(threads.current_num_threads() as u64);
    let starts = chunks.clone().step_by(together as usize);
    starts.map(move |start| start..chunks.end.min(start.saturating_add(together)))
}

/// About how many operations some rows take, as for sums of products: each row takes two for eight bytes of a
/// partial.
pub(super) fn operations(statistic: &impl Statistic, rows: u64) -> u64 {
    (statistic.partial_bytes() as u64 / 4).saturating_mul(rows)
}

/// The number of chunks that a statistic folds at a time.
pub(super) fn at_once(statistic: &impl Statistic, job: &Job, threads: &ThreadPool) -> u64 {
    let of_chunk = operations(statistic, job.rows_of(0).end).max(1);
    let each = (OPERATIONS_PER_THREAD / of_chunk).clamp(1, CHUNKS_PER_THREAD_MAX);
    let fitting = (PARTIAL_BYTES_MAX / statistic.partial_bytes().max(1) as u64).max(1);
    (threads.current_num_threads() as u64 * each).min(fitting)
}

/// A statistic of the rows of a matrix.
pub struct OfMatrix<S> {
    chunks: Chunks,
    job: Job,
    statistic: Arc<S>,
    threads: ThreadPool,
}

impl<S: OfRows> OfMatrix<S> {
    /// Returns the source of `job` over the rows of `matrix`, folded by `threads`.
    pub fn new(statistic: S, matrix: Matrix, job: Job, threads: ThreadPool) -> Self {
        Self::of_shared(Arc::new(statistic), Arc::new(matrix), job, threads)
    }

    pub(super) fn of_shared(
        statistic: Arc<S>,
        matrix: Arc<Matrix>,
        job: Job,
        threads: ThreadPool,
    ) -> Self {
        let chunks = Chunks { matrix, takes_nulls: S::TAKES_NULLS, finite_only: false };
        Self { chunks, job, statistic, threads }
    }

    /// Rejects a NaN or infinity with its file, row and column.
    #[must_use]
    pub fn finite_only(mut self) -> Self {
        self.chunks.finite_only = true;
        self
    }

    /// The matrix.
    #[must_use]
    pub fn matrix(&self) -> &Matrix {
        &self.chunks.matrix
    }
}

impl<S: OfRows> Source for OfMatrix<S> {
    type Statistic = S;

    fn statistic(&self) -> &Arc<S> {
        &self.statistic
    }

    fn leaves(&self, chunks: Range<u64>) -> Result<Vec<Sourced<S::Partial>>> {
        let mut leaves = Vec::new();
        for chunks in near(chunks, self.chunks.chunk_bytes(&self.job), &self.threads) {
            let read = self.chunks.read(&self.job, chunks)?;
            let rows = self.chunks.rows(&read)?;
            let read = numbers_of(&read);
            leaves.extend(self.statistic.sourced_leaves(&rows, &read, &self.threads)?);
        }
        Ok(leaves)
    }

    fn rows_digest(&self, chunk: u64) -> Result<Digest> {
        Ok(self.chunks.matrix.read(self.job.rows_of(chunk))?.digest())
    }

    fn opened_versions(&self) -> Vec<FileVersion> {
        self.chunks.opened_versions(0)
    }

    fn versions_of(&self, rows: Range<u64>) -> Result<Vec<FileVersion>> {
        self.chunks.versions_of(rows, 0)
    }

    fn at_once(&self) -> u64 {
        at_once(&*self.statistic, &self.job, &self.threads)
    }

    fn readable(&self) -> Vec<Range<u64>> {
        self.chunks.readable(&self.job)
    }

    fn files_of(&self, rows: Range<u64>) -> String {
        self.chunks.matrix.files_of(rows)
    }

    fn cuts(&self) -> BTreeSet<u64> {
        self.chunks.cuts(&self.job)
    }
}

/// The products of the columns of two matrices with the same rows.
pub struct CrossOfMatrices {
    sides: [Chunks; 2],
    job: Job,
    cross: Arc<Cross>,
    threads: ThreadPool,
}

impl CrossOfMatrices {
    /// Returns the source of `job` over the rows of `x` and `y`, folded by `threads`.
    ///
    /// # Errors
    /// `InvalidArgument` when the numbers of rows differ, and those of [`Cross::new`].
    pub fn new(
        x: impl Into<Arc<Matrix>>,
        y: impl Into<Arc<Matrix>>,
        job: Job,
        threads: ThreadPool,
    ) -> Result<Self> {
        let (x, y) = (x.into(), y.into());
        let cross = Arc::new(Cross::new(x.columns(), y.columns())?);
        Self::of_shared(cross, [x, y], job, threads)
    }

    /// Returns the source of a `cross` of its own.
    ///
    /// # Errors
    /// `InvalidArgument` when the numbers of rows differ.
    pub fn of_shared(
        cross: Arc<Cross>,
        [x, y]: [Arc<Matrix>; 2],
        job: Job,
        threads: ThreadPool,
    ) -> Result<Self> {
        if x.rows() != y.rows() {
            return Err(Error::invalid(format!(
                "expected {} rows in Y, as many as in X, found {}",
                x.rows(),
                y.rows()
            )));
        }
        let sides = [x, y].map(|matrix| Chunks { matrix, takes_nulls: false, finite_only: false });
        Ok(Self { sides, job, cross, threads })
    }

    /// Rejects a NaN or infinity with its file, row and column.
    #[must_use]
    pub fn finite_only(mut self) -> Self {
        self.sides.iter_mut().for_each(|side| side.finite_only = true);
        self
    }

    /// The number of columns of X and of Y.
    #[must_use]
    pub fn columns(&self) -> [usize; 2] {
        [&self.sides[0], &self.sides[1]].map(|side| side.matrix.columns())
    }
}

impl Source for CrossOfMatrices {
    type Statistic = Cross;

    fn statistic(&self) -> &Arc<Cross> {
        &self.cross
    }

    fn leaves(&self, chunks: Range<u64>) -> Result<Vec<Sourced<Rectangle>>> {
        let [x, y] = &self.sides;
        let mut leaves = Vec::new();
        let chunk_bytes = x.chunk_bytes(&self.job) + y.chunk_bytes(&self.job);
        for chunks in near(chunks, chunk_bytes, &self.threads) {
            let (x_read, y_read) = (x.read(&self.job, chunks.clone())?, y.read(&self.job, chunks)?);
            let rows = [&x_read, &y_read].map(|read| digests(&numbers_of(read), &self.threads));
            let [x_rows, y_rows] = rows;
            let rows = x_rows.into_iter().zip(y_rows).map(|(x, y)| of_siblings(x, y)).collect();
            let sides = x.rows(&x_read)?.into_iter().zip(y.rows(&y_read)?);
            let sides: Vec<_> =
                sides.map(|(x, y)| (Chunk::of(x.rows), Chunk::of(y.rows))).collect();
            leaves.extend(sourced(self.cross.leaves(&sides, &self.threads)?, rows));
        }
        Ok(leaves)
    }

    fn rows_digest(&self, chunk: u64) -> Result<Digest> {
        let rows = self.job.rows_of(chunk);
        let [x, y] = self.sides.each_ref().map(|side| side.matrix.read(rows.clone()));
        Ok(of_siblings(x?.digest(), y?.digest()))
    }

    fn opened_versions(&self) -> Vec<FileVersion> {
        let [x, y] = &self.sides;
        let of_x = x.opened_versions(0);
        of_x.into_iter().chain(y.opened_versions(x.matrix.file_count() as u64)).collect()
    }

    fn versions_of(&self, rows: Range<u64>) -> Result<Vec<FileVersion>> {
        let [x, y] = &self.sides;
        let of_x = x.versions_of(rows.clone(), 0)?;
        let of_y = y.versions_of(rows, x.matrix.file_count() as u64)?;
        Ok(of_x.into_iter().chain(of_y).collect())
    }

    fn at_once(&self) -> u64 {
        at_once(&*self.cross, &self.job, &self.threads)
    }

    /// The chunks that both sides can read.
    fn readable(&self) -> Vec<Range<u64>> {
        let [x, y] = [&self.sides[0], &self.sides[1]].map(|side| side.readable(&self.job));
        let pairs = x.iter().flat_map(|x| y.iter().map(move |y| (x, y)));
        let both = pairs.map(|(x, y)| x.start.max(y.start)..x.end.min(y.end));
        both.filter(|chunks| !chunks.is_empty()).collect()
    }

    fn files_of(&self, rows: Range<u64>) -> String {
        self.sides.each_ref().map(|side| side.matrix.files_of(rows.clone())).join(" and ")
    }

    fn cuts(&self) -> BTreeSet<u64> {
        self.sides.iter().flat_map(|side| side.cuts(&self.job)).collect()
    }
}
