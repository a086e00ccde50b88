//! The rows of a job as a process can read them, and how blocks of them become portions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rayon::ThreadPool;

use crate::error::{Context, Error, Result};
use crate::fold::gram::Chunk;
use crate::fold::{Gram, Node, Statistic, Tree, Triangle};

use super::{Job, Matrix, Numbers, Portion};

/// What turns the chunks of a job into partials.
pub trait Source: Sync {
    /// What is folded.
    type Statistic: Statistic;

    /// The statistic.
    fn statistic(&self) -> &Arc<Self::Statistic>;

    /// The partials of some chunks, in their order.
    ///
    /// # Errors
    /// Those of reading the rows and of [`Statistic::leaf`].
    fn leaves(&self, chunks: Range<u64>) -> Result<Vec<<Self::Statistic as Statistic>::Partial>>;

    /// How many chunks are folded at a time, so that all threads have work and memory suffices.
    fn at_once(&self) -> u64;

    /// The chunks that this process can read.
    fn readable(&self) -> Vec<Range<u64>>;

    /// The chunks at which others may begin, or cease, to be able to read.
    fn cuts(&self) -> BTreeSet<u64>;
}

/// Folds some chunks of a job, and yields their portion; between the chunks it asks whether to stop.
///
/// # Errors
/// Those of the source, with the chunks; `Interrupted` when it was to stop.
pub fn fold_portion<S: Source>(
    job: &Job,
    source: &S,
    chunks: Range<u64>,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<u8>> {
    let mut tree = Tree::new(job.chunk_count());
    let mut first = chunks.start;
    while first < chunks.end {
        if stop() {
            return Err(Error::interrupted("stopped"));
        }
        let some = first..chunks.end.min(first.saturating_add(source.at_once().max(1)));
        let leaves = source
            .leaves(some.clone())
            .context(|| format!("chunks {} to {}", some.start, some.end - 1))?;
        for (chunk, leaf) in some.clone().zip(leaves) {
            tree.insert(Node::leaf(chunk)?, leaf)?;
        }
        first = some.end;
    }
    Portion::of(job, &**source.statistic()).encode(tree.nodes())
}

/// How many chunks each thread folds before their partials are merged.
const CHUNKS_PER_THREAD: usize = 4;

/// The most bytes that partials take which are not merged yet, where one does not take more.
const PARTIAL_BYTES_MAX: usize = 1 << 28;

/// How many chunks of a Gram are folded at a time.
pub(super) fn chunks_at_once(gram: &Gram, threads: &ThreadPool) -> u64 {
    let columns = gram.columns();
    let fitting = (PARTIAL_BYTES_MAX / (columns * (columns + 1) * 4)).max(1);
    (threads.current_num_threads() * CHUNKS_PER_THREAD).min(fitting) as u64
}

/// The partial of each chunk, of which these are the rows.
pub(super) fn leaves_of(
    gram: &Gram,
    chunks: &[Numbers<'_>],
    threads: &ThreadPool,
) -> Result<Vec<Triangle>> {
    let rows = chunks.iter().map(|numbers| Ok(Chunk::of(numbers.rows()?)));
    gram.leaves(&rows.collect::<Result<Vec<_>>>()?, threads)
}

/// The Gram of the columns of a matrix.
pub struct GramOfMatrix {
    matrix: Matrix,
    job: Job,
    gram: Arc<Gram>,
    threads: ThreadPool,
}

impl GramOfMatrix {
    /// The Gram of `matrix`, as `job` cuts it into chunks, made by `threads`.
    ///
    /// # Errors
    /// Those of [`Gram::new`].
    pub fn new(matrix: Matrix, job: Job, threads: ThreadPool) -> Result<Self> {
        let gram = Arc::new(Gram::new(matrix.columns())?);
        Ok(Self { matrix, job, gram, threads })
    }
}

impl Source for GramOfMatrix {
    type Statistic = Gram;

    fn statistic(&self) -> &Arc<Gram> {
        &self.gram
    }

    fn leaves(&self, chunks: Range<u64>) -> Result<Vec<Triangle>> {
        let read = chunks.map(|chunk| self.matrix.read(self.job.rows_of(chunk)));
        let read = read.collect::<Result<Vec<_>>>()?;
        leaves_of(&self.gram, &read, &self.threads)
    }

    fn at_once(&self) -> u64 {
        chunks_at_once(&self.gram, &self.threads)
    }

    fn readable(&self) -> Vec<Range<u64>> {
        self.job.chunks_within(self.matrix.readable())
    }

    fn cuts(&self) -> BTreeSet<u64> {
        self.job.chunks_around(self.matrix.file_starts())
    }
}
