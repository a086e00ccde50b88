//! `headwater-reduce gram`.

use std::io;
use std::path::Path;

use clap::Args;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::args::{RowsArgs, StatisticCommand, SumsArgs, WrittenResult};
use super::place::Kind;
use crate::Digest;
use crate::durable::{Disk, NewFile, write_file_by};
use crate::error::Result;
use crate::fold::Gram;
use crate::fold::gram::{Speed, Triangle};
use crate::matrix::npy_header;
use crate::reducer::{Job, OfMatrix, OfRows, Source, nonfinite_setting};

/// Rows that are written at a time.
const ROWS_WRITTEN: usize = 64;

/// The arguments of `headwater-reduce gram` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct GramArgs {
    #[command(flatten)]
    rows: RowsArgs,
    #[command(flatten)]
    #[serde(flatten)]
    sums: SumsArgs,
    /// Fail at the first NaN or infinity, with its file, row and column.
    #[arg(long)]
    reject_nonfinite: bool,
}

impl StatisticCommand for GramArgs {
    type Source = OfMatrix<Gram>;

    const KIND: Kind = Kind::Matrix;

    fn absolute(self) -> Result<Self> {
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs()
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, OfMatrix<Gram>)> {
        let matrix = self.rows.open()?;
        let order = self.sums.order(&[matrix.element()])?;
        let gram = Gram::with_order(matrix.columns(), order, &Speed::default())?;
        let settings = [nonfinite_setting(self.reject_nonfinite), gram.settings()].concat();
        let job = self.rows.job("gram", &matrix, &settings)?;
        let source = OfMatrix::new(gram, matrix, job.clone(), threads);
        Ok((job, if self.reject_nonfinite { source.finite_only() } else { source }))
    }

    fn chunk_operations(&self, source: &OfMatrix<Gram>) -> f64 {
        let columns = source.statistic().columns() as f64;
        columns * (columns + 1.0) * f64::from(self.rows.chunk_rows)
    }

    fn write(&self, out: &Path, source: &OfMatrix<Gram>, gram: &Triangle) -> Result<WrittenResult> {
        let columns = source.statistic().columns();
        write_file_by(&Disk, out, &mut |file| write_whole(gram, columns, file))?;
        // Columns with a NaN, an infinity, or numbers whose squares overflow.
        let nonfinite = gram.diagonal().filter(|sum| !sum.is_finite()).count();
        let mut more = serde_json::Map::new();
        more.insert("nonfinite_columns".to_owned(), nonfinite.into());
        let digest = Digest::of(bytemuck::cast_slice(gram.values()));
        Ok(WrittenResult { digest, columns, more, result: None })
    }
}

/// Writes both halves of a Gram matrix as a `.npy` file, a few rows at a time.
fn write_whole(gram: &Triangle, columns: usize, file: &mut dyn NewFile) -> io::Result<()> {
    file.write_all(&npy_header(columns, columns))?;
    let mut rows = vec![0.0; ROWS_WRITTEN.min(columns) * columns];
    for first in (0..columns).step_by(ROWS_WRITTEN) {
        let count = ROWS_WRITTEN.min(columns - first);
        let rows = &mut rows[..count * columns];
        gram.unfold(first, rows);
        file.write_all(bytemuck::cast_slice(rows))?;
    }
    Ok(())
}
