//! The whole of a fold in one process.

use rayon::ThreadPool;

use crate::error::{Context, Result};
use crate::fold::gram::Chunk;
use crate::fold::{Gram, Node};

use super::{Coordinator, Matrix};

/// How many chunks each thread folds before their partials are merged.
const CHUNKS_PER_THREAD: usize = 4;

/// The most bytes that partials take which are not merged yet, where one does not take more.
const PARTIAL_BYTES_MAX: usize = 1 << 28;

/// Folds the chunks of a Gram that are missing, in order.
///
/// `after` is told again and again how many rows were folded since it was told before; its error
/// ends the fold, whose coordinator holds all that was done.
///
/// # Errors
/// Those of reading the matrix, with the chunk, and of `after`.
pub fn fold_here(
    coordinator: &mut Coordinator<Gram>,
    matrix: &Matrix,
    threads: &ThreadPool,
    mut after: impl FnMut(&Coordinator<Gram>, u64) -> Result<()>,
) -> Result<()> {
    let columns = coordinator.statistic().columns();
    let partial_bytes = columns * (columns + 1) * 4;
    let fitting = (PARTIAL_BYTES_MAX / partial_bytes).max(1);
    let at_once = (threads.current_num_threads() * CHUNKS_PER_THREAD).min(fitting) as u64;
    for gap in coordinator.missing() {
        let mut first = gap.start;
        while first < gap.end {
            let last = gap.end.min(first + at_once);
            let rows = fold_chunks(coordinator, matrix, threads, first..last)
                .context(|| format!("chunks {first} to {}", last - 1))?;
            first = last;
            after(coordinator, rows)?;
        }
    }
    Ok(())
}

/// Folds some chunks; returns how many rows they have.
fn fold_chunks(
    coordinator: &mut Coordinator<Gram>,
    matrix: &Matrix,
    threads: &ThreadPool,
    chunks: std::ops::Range<u64>,
) -> Result<u64> {
    let job = coordinator.job();
    let read = chunks.clone().map(|chunk| matrix.read(job.rows_of(chunk)));
    let read = read.collect::<Result<Vec<_>>>()?;
    let rows = read.iter().map(|numbers| Ok(Chunk::of(numbers.rows()?)));
    let rows = rows.collect::<Result<Vec<_>>>()?;
    let partials = coordinator.statistic().leaves(&rows, threads)?;
    let row_count = job.rows_of(chunks.end - 1).end - job.rows_of(chunks.start).start;
    for (chunk, partial) in chunks.zip(partials) {
        coordinator.insert(Node::leaf(chunk)?, partial)?;
    }
    Ok(row_count)
}
