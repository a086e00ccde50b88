//! The `headwater-reduce` command: statistics over matrices on disk, by one process or by many.

mod gram;
mod run;
mod spool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use rayon::ThreadPool;

use super::{Hooks, exit_status, parsed, status_of};
use crate::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::fold::Statistic;
use crate::plan::Fields;
use crate::reducer::{Element, Job, Matrix, MatrixFormat, Source};

use gram::GramArgs;
use run::{RunArgs, launched_rank, run};

const AFTER_HELP: &str = "\
The Gram matrix X^T X of a matrix, with the same bits for any number of ranks and threads, on any
processor, however often it was interrupted:
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck --resume
  mpirun -n 64 headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck
Without MPI, as three kinds of jobs over a folder that all of them see:
  headwater-reduce gram --input X.npy --out gram.npy --spool S
  headwater-reduce work --spool S --rank 0 --of 64          (and so on, in any order and at any time)
  headwater-reduce fold --spool S

The last line of standard output is one JSON object; its digest is that of the result's bits.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 damaged or foreign file, 130 interrupted.";

/// Folds statistics over the rows of matrices, the same bits every time.
#[derive(Parser)]
#[command(name = "headwater-reduce", version, after_help = AFTER_HELP, max_term_width = 100)]
struct ReduceCommand {
    #[command(subcommand)]
    wanted: Wanted,
}

#[derive(Subcommand)]
enum Wanted {
    Gram(Asked<GramArgs>),
    Work(spool::WorkArgs),
    Fold(spool::FoldArgs),
}

/// A statistic and how it is to be folded.
#[derive(Args)]
struct Asked<S: Args> {
    #[command(flatten)]
    statistic: S,
    #[command(flatten)]
    run: RunArgs,
}

/// Rows on disk.
#[derive(Args, Clone, serde::Serialize, serde::Deserialize)]
struct RowsArgs {
    /// A .npy file, or several that are one matrix, in their order; raw numbers with --columns.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    input: Vec<PathBuf>,
    /// The type of the numbers, where the files do not say it: raw files, and bfloat16 in .npy.
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// The files are raw: nothing but numbers, so many in a row.
    #[arg(long, value_name = "K", requires = "dtype",
          value_parser = clap::value_parser!(u32).range(1..))]
    columns: Option<u32>,
    /// Rows that are summed in one chain. Part of what is computed: other chunks, other bits.
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    chunk_rows: u32,
}

#[derive(Clone, Copy, ValueEnum, serde::Serialize, serde::Deserialize)]
enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
}

/// A statistic that the command folds.
trait Folded {
    /// Its rows.
    type Source: Source;

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
    ) -> Result<Written>;
}

type StatisticOf<F> = <<F as Folded>::Source as Source>::Statistic;
type PartialOf<F> = <StatisticOf<F> as Statistic>::Partial;

/// What is told of a result.
struct Written {
    digest: Digest,
    columns: usize,
    /// What only this statistic has to tell.
    more: serde_json::Map<String, serde_json::Value>,
}

/// Runs the command with `arguments`, the first of which is its own name.
///
/// Returns the exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>, hooks: &Hooks<'_>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Of many processes with the same wrong arguments, one says so.
    let speaks = launched_rank().unwrap_or(0) == 0;
    let command: ReduceCommand = match parsed(arguments.iter().cloned(), speaks) {
        Ok(command) => command,
        Err(status) => return status,
    };
    let ended = match command.wanted {
        Wanted::Gram(asked) => asked.run(&arguments, hooks),
        Wanted::Work(work) => work.run(hooks).map(Ok),
        Wanted::Fold(fold) => fold.run(&arguments).map(Ok),
    };
    match ended {
        // Rank 0 has told why, if there is a why.
        Ok(end) => end.map_or_else(status_of, |()| 0),
        Err(error) => exit_status("headwater-reduce", Err(error)),
    }
}

impl Asked<GramArgs> {
    fn run(self, arguments: &[OsString], hooks: &Hooks<'_>) -> Result<Result<(), ErrorKind>> {
        match &self.run.spool {
            Some(folder) => spool::plan(folder, self.statistic, &self.run).map(Ok),
            None => run(&self.statistic, &self.run, arguments, hooks),
        }
    }
}

impl RowsArgs {
    fn open(&self) -> Result<Matrix> {
        let element = self.dtype.map(|dtype| match dtype {
            Dtype::F64 => Element::F64,
            Dtype::F32 => Element::F32,
            Dtype::F16 => Element::F16,
            Dtype::Bf16 => Element::Bf16,
        });
        let format = match (element, self.columns) {
            (Some(element), Some(columns)) => {
                MatrixFormat::Raw { element, columns: columns as usize }
            }
            (None, _) => MatrixFormat::ByName,
            (element, _) => MatrixFormat::Npy(element),
        };
        Matrix::open(&self.input, &format)
    }

    /// The job of folding `statistic` over these rows.
    fn job(&self, statistic: &str, matrix: &Matrix) -> Result<Job> {
        let mut what = Fields::new();
        what.add("statistic", statistic)?;
        what.add("columns", matrix.columns() as u64)?;
        what.add("element", matrix.element().name())?;
        what.add("data", matrix.identity().0)?;
        Job::new(what, matrix.rows(), u64::from(self.chunk_rows))
    }

    /// The same with paths that hold in every folder.
    fn absolute(mut self) -> Result<Self> {
        for path in &mut self.input {
            *path = std::path::absolute(&*path).map_err(|e| Error::io(path, "looking for", e))?;
        }
        Ok(self)
    }
}
