//! `headwater-reduce cross`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::args::{
    Dtype, RowsArgs, StatisticCommand, SumsArgs, WrittenResult, absolute, format_of, in_order,
};
use super::place::Kind;
use crate::Digest;
use crate::durable::{Disk, write_file_by};
use crate::error::Result;
use crate::fold::Cross;
use crate::fold::gram::{Rectangle, Speed};
use crate::matrix::{Matrix, npy_header};
use crate::reducer::{CrossOfMatrices, Job, nonfinite_setting, order_setting};

/// The arguments of `headwater-reduce cross` without those that all statistics share.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct CrossArgs {
    #[command(flatten)]
    rows: RowsArgs,
    /// The files of Y, of the same formats as --input; --sorted applies to both.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    with: Vec<PathBuf>,
    /// The tensor of Y.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["with_select", "with_dtype"])]
    with_tensor: Option<String>,
    /// The columns of Y.
    #[arg(long, num_args = 1.., value_name = "COLUMN", conflicts_with = "with_dtype")]
    with_select: Option<Vec<String>>,
    /// The type of Y's numbers, as --dtype.
    #[arg(long, value_enum)]
    with_dtype: Option<Dtype>,
    /// The files of Y are raw numbers without a header, K in each row.
    #[arg(long, value_name = "K", requires = "with_dtype",
          value_parser = clap::value_parser!(u32).range(1..))]
    with_columns: Option<u32>,
    #[command(flatten)]
    #[serde(flatten)]
    sums: SumsArgs,
    /// Fail at the first NaN or infinity, with its file, row and column.
    #[arg(long)]
    reject_nonfinite: bool,
}

impl StatisticCommand for CrossArgs {
    type Source = CrossOfMatrices;

    const KIND: Kind = Kind::Matrix;

    fn absolute(mut self) -> Result<Self> {
        absolute(&mut self.with)?;
        Ok(Self { rows: self.rows.absolute()?, ..self })
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.rows.files.inputs().chain(self.with.iter().map(PathBuf::as_path))
    }

    fn open(&self, threads: ThreadPool) -> Result<(Job, CrossOfMatrices)> {
        let x = self.rows.open()?;
        let named = (self.with_tensor.as_ref(), self.with_select.as_ref());
        let format = format_of(named, self.with_dtype, self.with_columns);
        let y = Matrix::open(&in_order(&self.with, self.rows.files.sorted), &format)?;
        let order = self.sums.order(&[x.element(), y.element()])?;
        let cross = Cross::with_order(x.columns(), y.columns(), order, &Speed::default())?;
        let mut settings = nonfinite_setting(self.reject_nonfinite);
        settings.extend(order_setting(order));
        settings.extend([
            ("with_columns", (y.columns() as u64).into()),
            ("with_element", y.element().name().into()),
            ("with_data", y.identity().0.into()),
        ]);
        let job = self.rows.job("cross", &x, &settings)?;
        let sides = [Arc::new(x), Arc::new(y)];
        let source = CrossOfMatrices::of_shared(Arc::new(cross), sides, job.clone(), threads)?;
        Ok((job, if self.reject_nonfinite { source.finite_only() } else { source }))
    }

    fn chunk_operations(&self, source: &CrossOfMatrices) -> f64 {
        let [x, y] = source.columns();
        self.rows.operations(x, 2.0 * y as f64)
    }

    fn write(
        &self,
        out: &Path,
        source: &CrossOfMatrices,
        cross: &Rectangle,
    ) -> Result<WrittenResult> {
        let [x, y] = source.columns();
        write_file_by(&Disk, out, &mut |file| {
            file.write_all(&npy_header(x, y))?;
            file.write_all(bytemuck::cast_slice(cross.values()))
        })?;
        let digest = Digest::of(bytemuck::cast_slice(cross.values()));
        let mut more = serde_json::Map::new();
        more.insert("with_columns".to_owned(), y.into());
        Ok(WrittenResult { digest, columns: x, more, result: None })
    }
}
