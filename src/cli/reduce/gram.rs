//! `headwater-reduce gram`.

use std::path::Path;

use clap::Args;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::{Folded, RowsArgs, Written};
use crate::Digest;
use crate::durable::{Disk, write_file};
use crate::error::Result;
use crate::fold::Triangle;
use crate::reducer::{GramOfMatrix, Job, Source, npy_bytes};

/// The Gram matrix: the sum over all rows of the products of each two columns.
///
/// The result is a .npy of 64-bit numbers.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct GramArgs {
    #[command(flatten)]
    pub(super) rows: RowsArgs,
}

impl Folded for GramArgs {
    type Source = GramOfMatrix;

    fn open(&self, threads: ThreadPool) -> Result<(Job, GramOfMatrix)> {
        let matrix = self.rows.open()?;
        let job = self.rows.job("gram", &matrix)?;
        let source = GramOfMatrix::new(matrix, job.clone(), threads)?;
        Ok((job, source))
    }

    fn chunk_operations(&self, source: &GramOfMatrix) -> f64 {
        let columns = source.statistic().columns() as f64;
        columns * (columns + 1.0) * f64::from(self.rows.chunk_rows)
    }

    fn write(&self, out: &Path, source: &GramOfMatrix, gram: &Triangle) -> Result<Written> {
        let columns = source.statistic().columns();
        write_file(&Disk, out, &whole(gram, columns))?;
        let own = (0..columns).map(|column| gram.values()[place(columns, column, column)]);
        // Columns that hold a NaN, an infinity, or numbers whose squares are too great.
        let nonfinite = own.filter(|sum| !sum.is_finite()).count();
        let mut more = serde_json::Map::new();
        more.insert("nonfinite_columns".to_owned(), nonfinite.into());
        Ok(Written { digest: Digest::of(bytemuck::cast_slice(gram.values())), columns, more })
    }
}

/// Where the sum of products of two columns, the lower first, stands in a triangle.
fn place(columns: usize, low: usize, high: usize) -> usize {
    low * (2 * columns - low + 1) / 2 + (high - low)
}

/// Both halves of a Gram matrix, as a `.npy` file.
fn whole(gram: &Triangle, columns: usize) -> Vec<u8> {
    let places = (0..columns).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let values =
        places.map(|(row, column)| gram.values()[place(columns, row.min(column), row.max(column))]);
    npy_bytes(columns, columns, values)
}
