//! What the statistics of the command have in common: rows on disk, and the trait of a statistic.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rayon::ThreadPool;

use super::place::Kind;
use crate::Digest;
use crate::error::{Error, Result};
use crate::fold::Statistic;
use crate::matrix::{Element, Matrix, MatrixFormat, sort_by_name};
use crate::plan::Setting;
use crate::reducer::{Job, Source};

/// Rows on disk, as they are cut into chunks.
#[derive(Args, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct RowsArgs {
    #[command(flatten)]
    #[serde(flatten)]
    pub(super) files: FilesArgs,
    /// Rows that are summed in one chain. Part of what is computed: other chunks, other bits.
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) chunk_rows: u32,
}

/// Files of rows.
#[derive(Args, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct FilesArgs {
    /// Files that are one matrix, in their order: .npy, .safetensors, .parquet, or raw numbers with
    /// --columns; or one .json, a manifest that lists them.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Take the files in the order of their names.
    #[arg(long)]
    pub(super) sorted: bool,
    /// The tensor of a .safetensors file that has several.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["select", "dtype"])]
    tensor: Option<String>,
    /// Columns of a .parquet file, in this order; all of them where none is named.
    #[arg(long, num_args = 1.., value_name = "COLUMN", conflicts_with = "dtype")]
    select: Option<Vec<String>>,
    /// The type of the numbers, where the files do not say it: raw files, and bfloat16 in .npy.
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// The files are raw: nothing but numbers, so many in a row.
    #[arg(long, value_name = "K", requires = "dtype",
          value_parser = clap::value_parser!(u32).range(1..))]
    columns: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum, serde::Serialize, serde::Deserialize)]
pub(super) enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
}

/// A statistic that the command folds.
pub(super) trait StatisticCommand: Sized {
    /// Its rows.
    type Source: Source;

    /// What becomes of it.
    const KIND: Kind = Kind::Columns;

    /// The same with paths that hold in every folder.
    ///
    /// # Errors
    /// `Io`.
    fn absolute(self) -> Result<Self>;

    /// The files that it is of.
    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone;

    /// The job, and its rows as this process reads them.
    ///
    /// # Errors
    /// Those of the files.
    fn open(&self, threads: ThreadPool) -> Result<(Job, Self::Source)>;

    /// About how many operations a chunk takes, which decides how many make a block.
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

/// A result that was written, for the summary.
pub(super) struct WrittenResult {
    pub(super) digest: Digest,
    pub(super) columns: usize,
    /// What only this statistic adds to the summary.
    pub(super) more: serde_json::Map<String, serde_json::Value>,
    /// The result, where it is kept in the .json beside `out` alone.
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

    /// The job of folding `statistic` over these rows; `settings` are what else determines it.
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

    /// The operations of a chunk of which each number takes so many.
    pub(super) fn operations(&self, columns: usize, each: f64) -> f64 {
        f64::from(self.chunk_rows) * columns as f64 * each
    }

    /// The same with paths that hold in every folder.
    pub(super) fn absolute(mut self) -> Result<Self> {
        absolute(&mut self.files.input)?;
        Ok(self)
    }
}

/// The setting of a job whose rows are all looked through for a NaN or infinity. Sums do not tell that
/// of theirs somebody has: what was folded without is another job's.
pub(super) fn refusal(reject_nonfinite: bool) -> Vec<(&'static str, Setting)> {
    reject_nonfinite.then(|| ("reject_nonfinite", true.into())).into_iter().collect()
}

/// What was said and named of a file tells its format.
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

/// Files in the order in which they were named, or in that of their names.
pub(super) fn in_order(files: &[PathBuf], sorted: bool) -> Vec<PathBuf> {
    let mut files = files.to_vec();
    if sorted {
        sort_by_name(&mut files);
    }
    files
}

pub(super) fn absolute(paths: &mut [PathBuf]) -> Result<()> {
    for path in paths {
        *path = std::path::absolute(&*path).map_err(|e| Error::io(path, "looking for", e))?;
    }
    Ok(())
}
