//! The product of two sides over the rows of a chunk: packing, tiles, threads.
//!
//! ```text
//! for each block of rows: pack it; for each job: for each of its tiles: multiply
//! gather the needed sums from the tiles
//! ```
//!
//! A tile's sums pass from block to block unchanged, so that neither blocks nor jobs change a bit.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::ThreadPool;
use rayon::iter::{IntoParallelIterator, ParallelIterator};

use crate::bytes::reserve;
use crate::environment::in_default_environment;
use crate::error::{Context, Result};
use crate::fold::statistic::canonical;

use super::buffer::Buffer;
use super::kernel::{Packed, Processor, Speed};
use super::pack::{Packing, Part, Reader};
use super::tiles::{Job, Shape, Tile};

/// The panels that one thread packs at a time.
const PACKED_TOGETHER: usize = 8;

/// The tiles of narrow matrices stay in the second-level cache, beside a block of rows. Wider ones
/// must be prefetched themselves, and would evict a prefetched block of rows before it is packed.
const NEAR_TILES_BYTES_MAX: usize = 1 << 19;

/// More rows do not fit into any cache.
const BLOCK_ROWS_MAX: usize = 4096;

/// The left side of a product.
#[derive(Clone, Copy)]
pub(super) enum Left<'a, T> {
    /// The same as on the right.
    SameAsRight,
    /// The same as on the right, each row multiplied by its weight.
    Weighted(&'a [T]),
    /// Other columns of the same rows.
    Columns(&'a [Part<'a>]),
}

/// A product of one shape, for any rows, whose chains are of numbers `T`.
pub(super) struct Product<T> {
    processor: Processor,
    shape: Shape,
    jobs: Vec<Job>,
    block_rows: usize,
    idle: Mutex<Vec<Workspace<T>>>,
}

/// A block of rows, packed.
struct Block<'a, T> {
    rows: usize,
    /// Whether it is the first block, which starts from sums of +0.
    fresh: bool,
    left: &'a [T],
    right: &'a [T],
    /// The next block before it is packed, and the bytes of it that are prefetched with each tile:
    /// packing mostly waits for memory.
    next: Vec<&'a [u8]>,
    share: usize,
}

impl<'a, T> Block<'a, T> {
    /// Returns the part of the next block to prefetch with this tile.
    fn share_of_next(&self, tile: usize) -> &'a [u8] {
        let mut start = self.share * tile;
        for part in &self.next {
            if start < part.len() {
                return &part[start..(start + self.share).min(part.len())];
            }
            start -= part.len();
        }
        &[]
    }
}

/// Memory for one chunk.
struct Workspace<T> {
    /// Empty if the left side is the same as the right.
    left: Buffer<T>,
    right: Buffer<T>,
    tiles: Buffer<f64>,
}

impl<T: Packed> Product<T> {
    /// Returns the product of `right_columns` columns with themselves (without sums below the
    /// diagonal), or with `left_columns` others.
    pub(super) fn new(
        left_columns: Option<usize>,
        right_columns: usize,
        speed: &Speed,
    ) -> Result<Self> {
        let processor = Processor::choose(speed.kernel)?;
        let (lanes, group) = (processor.lanes::<T>(), processor.group());
        let (triangle, left_columns) =
            (left_columns.is_none(), left_columns.unwrap_or(right_columns));
        let shape = Shape { lanes, group, left_columns, right_columns, triangle };
        let jobs = shape.jobs(speed.block_columns.div_ceil(group).max(1));
        Ok(Self {
            processor,
            shape,
            jobs,
            // A chain does not go on in the next block.
            block_rows: T::ROWS.unwrap_or(speed.block_rows.clamp(1, BLOCK_ROWS_MAX)),
            idle: Mutex::default(),
        })
    }

    pub(super) fn processor(&self) -> Processor {
        self.processor
    }

    /// Returns the sums over `rows` rows, row by row; of a triangle, those from the diagonal on.
    pub(super) fn sums(
        &self,
        rows: usize,
        left: Left<'_, T>,
        right: &[Part<'_>],
        reader: Option<Reader<'_>>,
        threads: Option<&ThreadPool>,
    ) -> Result<Vec<f64>> {
        let columns = self.shape.right_columns;
        in_default_environment(|| self.sums_by_blocks(rows, left, right, reader, threads))
            .context(|| format!("the sums of products with {columns} columns"))
    }

    fn sums_by_blocks(
        &self,
        rows: usize,
        left: Left<'_, T>,
        right: &[Part<'_>],
        reader: Option<Reader<'_>>,
        threads: Option<&ThreadPool>,
    ) -> Result<Vec<f64>> {
        let mut space = self.take_workspace(&left)?;
        let others = if let Left::Columns(parts) = left { parts } else { &[] };
        let sides = others.iter().chain(right);
        // Without rows there is an empty block, which makes the sums +0.
        for start in (0..rows.max(1)).step_by(self.block_rows) {
            let block = start..(start + self.block_rows).min(rows);
            if let Some(reader) = reader {
                right.iter().for_each(|part| reader(part.bytes(block.clone())));
            }
            self.pack(&block, left, right, &mut space, threads);
            let next = block.end..(block.end + self.block_rows).min(rows);
            let next: Vec<_> = sides.clone().map(|part| part.bytes(next.clone())).collect();
            let next_bytes = next.iter().map(|part| part.len()).sum::<usize>();
            let Workspace { left: packed_left, right: packed_right, tiles } = &mut space;
            let right = packed_right.values();
            let near = size_of_val(tiles.values()) <= NEAR_TILES_BYTES_MAX;
            let block = Block {
                rows: block.len(),
                fresh: start == 0,
                left: if let Left::SameAsRight = left { right } else { packed_left.values() },
                right,
                next: if near { next } else { Vec::new() },
                share: next_bytes.div_ceil(self.tile_count()),
            };
            self.multiply(&block, tiles.values_mut(), threads);
        }
        let sums = self.gather(space.tiles.values());
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(space);
        sums
    }

    fn take_workspace(&self, left: &Left<'_, T>) -> Result<Workspace<T>> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut space = match idle {
            Some(space) => space,
            None => Workspace {
                left: Buffer::zeros(0)?,
                right: Buffer::zeros(self.shape.right_panels() * self.panel_values())?,
                tiles: Buffer::zeros(self.tile_count() * self.shape.tile_values())?,
            },
        };
        if !matches!(left, Left::SameAsRight) && space.left.values().is_empty() {
            space.left = Buffer::zeros(self.shape.left_panels() * self.panel_values())?;
        }
        Ok(space)
    }

    fn tile_count(&self) -> usize {
        self.jobs.last().map_or(0, |job| job.tiles.end)
    }

    /// The distance from one panel to the next.
    fn panel_values(&self) -> usize {
        self.block_rows * self.shape.width()
    }

    fn pack(
        &self,
        rows: &Range<usize>,
        left: Left<'_, T>,
        right: &[Part<'_>],
        space: &mut Workspace<T>,
        threads: Option<&ThreadPool>,
    ) {
        self.pack_side(rows, right, &mut space.right, threads);
        match left {
            Left::SameAsRight => {}
            Left::Columns(parts) => self.pack_side(rows, parts, &mut space.left, threads),
            Left::Weighted(weights) => {
                let panel_values = self.panel_values();
                let panels = space.left.values_mut().chunks_mut(panel_values);
                let pairs = panels.zip(space.right.values().chunks(panel_values));
                let (weights, width) = (&weights[rows.clone()], self.shape.width());
                each(threads, pairs, |(out, panel)| weigh(panel, weights, width, out));
            }
        }
    }

    fn pack_side(
        &self,
        rows: &Range<usize>,
        parts: &[Part<'_>],
        out: &mut Buffer<T>,
        threads: Option<&ThreadPool>,
    ) {
        let panel_values = self.panel_values();
        let pieces = out.values_mut().chunks_mut(PACKED_TOGETHER * panel_values).enumerate();
        each(threads, pieces, |(piece, out)| {
            let first = piece * PACKED_TOGETHER;
            let panels = first..first + out.len() / panel_values;
            let packing = Packing { parts, rows: rows.clone(), panels, panel_values };
            T::pack(self.processor, &packing, out);
        });
    }

    fn multiply(&self, block: &Block<'_, T>, tiles: &mut [f64], threads: Option<&ThreadPool>) {
        let mut rest = tiles;
        let jobs = self.jobs.iter().map(|job| {
            let length = job.tiles.len() * self.shape.tile_values();
            let tiles;
            (tiles, rest) = std::mem::take(&mut rest).split_at_mut(length);
            (job, tiles)
        });
        each(threads, jobs, |(job, tiles)| self.multiply_job(block, job, tiles));
    }

    /// Multiplies all tiles of a job.
    fn multiply_job(&self, block: &Block<'_, T>, job: &Job, mut tiles: &mut [f64]) {
        let (used, panel_groups) = (block.rows * self.shape.width(), self.shape.panel_groups());
        let right = &block.right[job.panel * self.panel_values()..][..used];
        for (group, tile) in job.groups.clone().zip(job.tiles.clone()) {
            let (sums, later) = tiles.split_at_mut(self.shape.tile_values());
            if block.fresh {
                sums.fill(0.0);
            }
            let prefetch = if block.next.is_empty() {
                bytemuck::cast_slice(&later[..later.len().min(self.shape.tile_values())])
            } else {
                block.share_of_next(tile)
            };
            let mut tile = Tile {
                sums,
                left: &block.left[group / panel_groups * self.panel_values()..][..used],
                group: group % panel_groups,
                right,
                vectors: self.shape.vectors(group, job.panel),
                prefetch,
            };
            T::multiply(self.processor, &mut tile);
            tiles = later;
        }
    }

    /// Gathers the needed sums from their tiles.
    fn gather(&self, tiles: &[f64]) -> Result<Vec<f64>> {
        let Shape { left_columns, right_columns, triangle, .. } = self.shape;
        let count = if triangle {
            super::triangle::length(left_columns)
        } else {
            left_columns * right_columns
        };
        let mut sums = reserve(count)?;
        let starts = self.tile_starts();
        for i in 0..left_columns {
            let (group, row) = (i / self.shape.group, i % self.shape.group);
            let first = if triangle { i } else { 0 };
            let width = self.shape.width();
            for panel in first / width..self.shape.right_panels() {
                let columns = panel * width..right_columns.min((panel + 1) * width);
                let skipped = first.saturating_sub(columns.start);
                let from = starts[group * self.shape.right_panels() + panel] + row * width;
                let tile = &tiles[from + skipped..from + columns.len()];
                sums.extend(tile.iter().copied().map(canonical));
            }
        }
        debug_assert_eq!(sums.len(), count);
        Ok(sums)
    }

    /// Returns the start of each tile, by group and panel; undefined for tiles that are not made.
    fn tile_starts(&self) -> Vec<usize> {
        let panels = self.shape.right_panels();
        let groups = self.jobs.iter().map(|job| job.groups.end).max().unwrap_or(0);
        let mut starts = vec![0; groups * panels];
        for job in &self.jobs {
            for (group, tile) in job.groups.clone().zip(job.tiles.clone()) {
                starts[group * panels + job.panel] = tile * self.shape.tile_values();
            }
        }
        starts
    }
}

/// `out[n][j] = weights[n] * panel[n][j]`, each product rounded once.
fn weigh<T: Packed>(panel: &[T], weights: &[T], width: usize, out: &mut [T]) {
    let rows = panel.chunks_exact(width).zip(out.chunks_exact_mut(width));
    for ((values, out), weight) in rows.zip(weights) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = *weight * *value;
        }
    }
}

/// Calls `work` with each of `items`, in order, or on the threads of a pool.
fn each<T: Send>(
    threads: Option<&ThreadPool>,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) + Send + Sync,
) {
    match threads {
        None => items.for_each(work),
        Some(pool) => {
            let items: Vec<T> = items.collect();
            pool.install(|| {
                items.into_par_iter().for_each(|item| in_default_environment(|| work(item)));
            });
        }
    }
}
