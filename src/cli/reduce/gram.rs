//! `headwater-reduce gram`.

use std::path::Path;

use clap::Args;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::{Folded, RowsArgs, Written};
use crate::Digest;
use crate::durable::{Disk, write_file};
use crate::error::Result;
use crate::fold::{Gram, Triangle};
use crate::reducer::{Job, OfMatrix, Source, npy_bytes};

/// What `headwater-reduce gram` is told of its statistic.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct GramArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// Refuse a NaN or infinity, by its file, row and column.
    #[arg(long)]
    reject_nonfinite: bool,
}

impl Folded for GramArgs {
    type Source = OfMatrix<Gram>;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, OfMatrix<Gram>)> {
        let matrix = self.rows.open()?;
        let job = self.rows.job("gram", &matrix, &[])?;
        let gram = Gram::new(matrix.columns())?;
        let source = OfMatrix::new(gram, matrix, job.clone(), threads);
        Ok((job, if self.reject_nonfinite { source.finite_only() } else { source }))
    }

    fn chunk_operations(&self, source: &OfMatrix<Gram>) -> f64 {
        let columns = source.statistic().columns() as f64;
        columns * (columns + 1.0) * f64::from(self.rows.chunk_rows)
    }

    fn write(&self, out: &Path, source: &OfMatrix<Gram>, gram: &Triangle) -> Result<Written> {
        let columns = source.statistic().columns();
        write_file(&Disk, out, &whole(gram, columns)?)?;
        let own = (0..columns).map(|column| gram.values()[place(columns, column, column)]);
        // Columns that hold a NaN, an infinity, or numbers whose squares are too great.
        let nonfinite = own.filter(|sum| !sum.is_finite()).count();
        let mut more = serde_json::Map::new();
        more.insert("nonfinite_columns".to_owned(), nonfinite.into());
        let digest = Digest::of(bytemuck::cast_slice(gram.values()));
        Ok(Written { digest, columns, more, result: None })
    }
}

/// Where the sum of products of two columns, the lower first, stands in a triangle.
fn place(columns: usize, low: usize, high: usize) -> usize {
    low * (2 * columns - low + 1) / 2 + (high - low)
}

/// Both halves of a Gram matrix, as a `.npy` file.
fn whole(gram: &Triangle, columns: usize) -> Result<Vec<u8>> {
    let places = (0..columns).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let values =
        places.map(|(row, column)| gram.values()[place(columns, row.min(column), row.max(column))]);
    npy_bytes(columns, columns, values)
}
