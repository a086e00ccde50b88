//! The arguments that all statistics share, and the trait of a statistic.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rayon::ThreadPool;
use serde::{Deserialize, Serialize};

use super::place::Kind;
use crate::Digest;
use crate::error::{Error, Result};
use crate::fold::Statistic;
use crate::fold::gram::Order;
use crate::matrix::{Element, Matrix, MatrixFormat, sort_by_name};
use crate::plan::Setting;
use crate::reducer::{Job, Source};

/// Files of rows, and the size of their chunks.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct RowsArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) files: FilesArgs,
    /// The number of rows of a chunk, summed in one chain. Another number gives other bits.
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) chunk_rows: u32,
}

/// Files of rows.
#[derive(Args, Clone, Serialize, Deserialize)]
pub(super) struct FilesArgs {
    /// The files of one matrix, in their order: .npy, .safetensors, .parquet, or raw numbers with
    /// --columns; or manifests, which end in .json.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Take the files in the order of their names, byte by byte: p-10 comes before p-2.
    #[arg(long)]
    pub(super) sorted: bool,
    /// The tensor of a .safetensors file that has several.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["select", "dtype"])]
    tensor: Option<String>,
    /// Columns of a .parquet file, in this order (default: all columns).
    #[arg(long, num_args = 1.., value_name = "COLUMN", conflicts_with = "dtype")]
    select: Option<Vec<String>>,
    /// The type of the numbers in files that do not name it: raw files, and bfloat16 in .npy.
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// The files are raw numbers without a header, K in each row.
    #[arg(long, value_name = "K", requires = "dtype",
          value_parser = clap::value_parser!(u32).range(1..))]
    columns: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum, Serialize, Deserialize)]
pub(super) enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
}

/// How products are summed.
#[derive(Args, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SumsArgs {
    /// How the products of a chunk are summed: in 64 bits, or in 32 bits over each 128 rows, the sums of which
    /// are added in 64 bits.
    ///
    /// f32x128 takes about half the time. Its error is 1e-8 to 2e-7 of the product of the lengths of both
    /// columns where numbers vary, some 2e-6 where a column has one or few values, and never above 7.7e-6; that
    /// of f64 is some 1e-15. It is for rows of f32, f16 or bf16. Products, and sums over 128 rows, beyond the
    /// range of f32 become infinite, and products below it 0. Another choice gives other bits.
    #[arg(long, value_enum, default_value_t)]
    #[serde(default, skip_serializing_if = "Sums::is_default")]
    sums: Sums,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
enum Sums {
    #[default]
    F64,
    #[value(name = "f32x128")]
    F32x128,
}

impl Sums {
    /// A job in a spool names them only if they are others, as before there was a choice.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl SumsArgs {
    /// Returns the order of the sums of rows of these types.
    ///
    /// # Errors
    /// `InvalidArgument` for rows that the order does not take.
    pub(super) fn order(self, elements: &[Element]) -> Result<Order> {
        let order = match self.sums {
            Sums::F64 => Order::F64,
            Sums::F32x128 => Order::F32x128,
        };
        order.check(elements.contains(&Element::F64), false)?;
        Ok(order)
    }
}

/// A statistic that the command folds.
pub(super) trait StatisticCommand: Sized + Clone {
    /// The source of its rows.
    type Source: Source;

    /// The files that the result has.
    const KIND: Kind = Kind::Columns;

    /// The most passes over the rows.
    const PASSES: u32 = 1;

    /// The number of this pass, from 1.
    fn pass(&self) -> u32 {
        1
    }

    /// The number of passes over these rows.
    fn passes(&self, _: &Self::Source) -> u32 {
        Self::PASSES
    }

    /// Returns what the next pass begins with, given the partial of this pass; none after the last.
    ///
    /// # Errors
    /// Those of the statistic.
    fn next(&self, _: &Self::Source, _: &PartialOf<Self>) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Returns the pass that begins with `known`, which [`StatisticCommand::next`] has returned.
    #[must_use]
    fn beginning_with(&self, _known: &[u8]) -> Self {
        self.clone()
    }

    /// Makes its paths absolute.
    ///
    /// # Errors
    /// `Io`.
    fn absolute(self) -> Result<Self>;

    /// The input files.
    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone;

    /// Opens the files; returns the job, and the rows that this process can read.
    ///
    /// # Errors
    /// Those of the files.
    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)>;

    /// The approximate number of operations of a chunk, which decides the size of a block.
    fn chunk_operations(&self, source: &Self::Source) -> f64;

    /// Writes the result.
    ///
    /// # Errors
    /// `Io`.
    fn write(
        &self,
        out: &Path,
        source: &Self::Source,
        partial: &PartialOf<Self>,
    ) -> Result<WrittenResult>;
}

pub(super) type StatisticOf<F> = <<F as StatisticCommand>::Source as Source>::Statistic;
pub(super) type PartialOf<F> = <StatisticOf<F> as Statistic>::Partial;

/// The parts of the summary that depend on the statistic.
pub(super) struct WrittenResult {
    pub(super) digest: Digest,
    pub(super) columns: usize,
    /// The fields that only this statistic adds to the summary.
    pub(super) more: serde_json::Map<String, serde_json::Value>,
    /// The result, if it is in the .json only.
    pub(super) result: Option<serde_json::Value>,
}

impl Dtype {
    pub(super) fn element(self) -> Element {
        match self {
            Self::F64 => Element::F64,
            Self::F32 => Element::F32,
            Self::F16 => Element::F16,
            Self::Bf16 => Element::Bf16,
        }
    }
}

impl FilesArgs {
    pub(super) fn format(&self) -> MatrixFormat {
        let named = (self.tensor.as_ref(), self.select.as_ref());
        format_of(named, self.dtype, self.columns)
    }

    pub(super) fn in_order(&self) -> Vec<PathBuf> {
        in_order(&self.input, self.sorted)
    }

    pub(super) fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.input.iter().map(PathBuf::as_path)
    }
}

impl RowsArgs {
    pub(super) fn open(&self) -> Result<Matrix> {
        Matrix::open(&self.files.in_order(), &self.files.format())
    }

    /// Returns the job of folding `statistic` over these rows; `settings` are the other settings of its
    /// plan.
    pub(super) fn job(
        &self,
        statistic: &str,
        matrix: &Matrix,
        settings: &[(&str, Setting)],
    ) -> Result<Job> {
        let form = (matrix.columns(), matrix.element());
        let rows = (matrix.rows(), u64::from(self.chunk_rows));
        Job::of_matrix(statistic, form, matrix.identity().0, rows, settings)
    }

    /// Returns the operations of a chunk when each number takes `each` operations.
    pub(super) fn operations(&self, columns: usize, each: f64) -> f64 {
        f64::from(self.chunk_rows) * columns as f64 * each
    }

    /// Makes the paths absolute.
    pub(super) fn absolute(mut self) -> Result<Self> {
        absolute(&mut self.files.input)?;
        Ok(self)
    }
}

/// Returns the format of files from the options that describe them.
pub(super) fn format_of(
    (tensor, select): (Option<&String>, Option<&Vec<String>>),
    dtype: Option<Dtype>,
    columns: Option<u32>,
) -> MatrixFormat {
    match (dtype.map(Dtype::element), columns) {
        (Some(element), Some(columns)) => MatrixFormat::Raw { element, columns: columns as usize },
        (Some(element), None) => MatrixFormat::Npy(Some(element)),
        (None, _) if tensor.is_some() => MatrixFormat::Safetensors(tensor.cloned()),
        (None, _) if select.is_some() => MatrixFormat::Parquet(select.cloned()),
        (None, _) => MatrixFormat::ByName,
    }
}

/// Returns the files in the order of the arguments, or sorted by name.
pub(super) fn in_order(files: &[PathBuf], sorted: bool) -> Vec<PathBuf> {
    let mut files = files.to_vec();
    if sorted {
        sort_by_name(&mut files);
    }
    files
}

/// Makes paths absolute.
pub(super) fn absolute(paths: &mut [PathBuf]) -> Result<()> {
    for path in paths {
        *path = std::path::absolute(&*path).map_err(|e| Error::io(path, "looking for", e))?;
    }
    Ok(())
}
