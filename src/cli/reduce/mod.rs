//! The `headwater-reduce` command: statistics over matrices on disk, by one process or by many.

mod columns;
mod cross;
mod gram;
mod place;
mod run;
mod spool;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand, ValueEnum};
use rayon::ThreadPool;

use super::{Interrupted, exit_status, refused, status_of};
use crate::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::fold::Statistic;
use crate::matrix::{Element, Manifest, Matrix, MatrixFormat, sort_by_name};
use crate::plan::Setting;
use crate::reducer::{Job, Source};

use columns::{DistinctArgs, ExponentsArgs, HistogramArgs, MomentsArgs, TopArgs};
use cross::CrossArgs;
use gram::GramArgs;
use place::{Kind, check_file, json_of};
use run::{RunArgs, launched_rank, run};

const AFTER_HELP: &str = "\
The Gram matrix X^T X of a matrix, with the same bits for any number of ranks and threads, on any
processor, however often it was interrupted:
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck --resume
  mpirun -n 64 headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck
  headwater-reduce moments --input T.parquet --select price tax --out moments.json
Without MPI, as three kinds of jobs over a folder that all of them see:
  headwater-reduce gram --input X.npy --out gram.npy --spool S
  headwater-reduce work --spool S --rank 0 --of 64    (and so on, in any order and at any time)
  headwater-reduce fold --spool S

The last line of standard output is one JSON object; its digest is that of the result's bits.
That of work tells how many blocks it folded, and has no digest; --spool prints what to run next,
and manifest nothing.

Open MPI's mpirun refuses more ranks than cores without --oversubscribe, and root without
OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.

Files are mapped into memory: one that is cut short while it is folded ends the command with
SIGBUS. Write new files beside the old, and rename them.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 damaged or foreign file, 130 interrupted.";

/// How long a rank with wrong arguments waits for rank 0 to say so; then they are its own.
const RANK_0_SPEAKS: Duration = Duration::from_secs(10);

const WRONG_USAGE: u8 = 2;

/// Folds statistics over the rows of matrices, the same bits every time.
#[derive(Parser)]
#[command(name = "headwater-reduce", version, after_help = AFTER_HELP, max_term_width = 100)]
struct ReduceCommand {
    #[command(subcommand)]
    wanted: Wanted,
}

#[derive(Subcommand)]
enum Wanted {
    /// The Gram matrix: the sum over all rows of the products of each two columns.
    ///
    /// The result is a .npy of 64-bit numbers.
    Gram(Asked<GramArgs>),
    /// The cross products X^T Y: the sum over all rows of the products of each column of X with each of Y.
    ///
    /// X is --input and Y --with; row n of one belongs to row n of the other. The result is a .npy of
    /// 64-bit numbers, a row for each column of X. Columns of one Parquet file with another:
    ///
    ///   headwater-reduce cross --input T.parquet --select a b --with T.parquet --with-select y --out c.npy
    #[command(verbatim_doc_comment)]
    Cross(Asked<CrossArgs>),
    /// Count, range, mean, deviation, skewness and kurtosis of each column.
    ///
    /// NULL, NaN and infinities are counted apart; all else is of the finite numbers. Variance and
    /// deviation are those of a population (ddof 0), kurtosis is excess kurtosis, 0 of the normal
    /// distribution; what the sums do not tell is null, as the skewness of a constant. The result is the
    /// .json: for each column its name, where the file has one, the sums, whose bits never differ, and
    /// what they come to.
    Moments(Asked<MomentsArgs>),
    /// How many numbers of each column lie between given edges.
    ///
    /// A number on an edge counts as above it, and infinities as numbers; NaN and NULL are counted apart.
    /// The counts are the same for any order of the rows. The result is the .json.
    Histogram(Asked<HistogramArgs>),
    /// How many numbers of each column have each sign and binary exponent.
    ///
    /// Exponent 3 counts the numbers from 8 to 16: where the numbers lie, before any edges are known. The
    /// counts are the same for any order of the rows. The result is the .json.
    Exponents(Asked<ExponentsArgs>),
    /// About how many different numbers each column has (HyperLogLog).
    ///
    /// -0 is 0, all NaN are one number, NULL is none. The result is the .json; the digest is that of the
    /// registers, which are the same for any order of the rows.
    Distinct(Asked<DistinctArgs>),
    /// The rows with the greatest numbers in one column, or the least.
    ///
    /// Of equal numbers the row that comes first is named first; NULL and NaN are left out. The result is
    /// the .json, whose rows count from 0.
    Top(Asked<TopArgs>),
    Manifest(ManifestArgs),
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

/// Rows on disk, as they are cut into chunks.
#[derive(Args, Clone, serde::Serialize, serde::Deserialize)]
struct RowsArgs {
    #[command(flatten)]
    #[serde(flatten)]
    files: FilesArgs,
    /// Rows that are summed in one chain. Part of what is computed: other chunks, other bits.
    #[arg(long, value_name = "N", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..))]
    chunk_rows: u32,
}

/// Files of rows.
#[derive(Args, Clone, serde::Serialize, serde::Deserialize)]
struct FilesArgs {
    /// Files that are one matrix, in their order: .npy, .safetensors, .parquet, or raw numbers with
    /// --columns; or one .json, a manifest that lists them.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Take the files in the order of their names.
    #[arg(long)]
    sorted: bool,
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

/// Write a manifest: the list of all files of a matrix, for ranks that each see some of them.
///
/// Where no machine sees all files, make one on each, bring them together, and make one of them all:
///   headwater-reduce manifest --input shard-0.npy --out shard-0.json      (on each machine)
///   headwater-reduce manifest --input shard-0.json shard-1.json --out all.json
/// Then fold with --input all.json on every rank. The rows of each file should fill whole chunks.
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct ManifestArgs {
    #[command(flatten)]
    files: FilesArgs,
    /// Where the manifest goes: a name that ends in .json.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl ManifestArgs {
    fn run(&self) -> Result<()> {
        check_file(&self.out, &self.out, self.files.inputs())?;
        if json_of(&self.out) != self.out {
            return Err(Error::invalid(format!(
                "--out {}: expected a name that ends in .json, by which a manifest is known as --input",
                self.out.display()
            )));
        }
        Manifest::write(&self.out, &self.files.in_order(), &self.files.format())
    }
}

#[derive(Clone, Copy, ValueEnum, serde::Serialize, serde::Deserialize)]
enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
}

/// A statistic that the command folds.
trait Folded: Sized {
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
    /// The result, where it is kept in the .json beside `out` alone.
    result: Option<serde_json::Value>,
}

/// Runs the command with `arguments`, the first of which is its own name.
///
/// Returns the exit status.
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    interrupted: Option<&Interrupted<'_>>,
) -> u8 {
    // Signals are heard from the first time on that they are asked for.
    let _ = interrupted.is_some_and(|stopped| stopped());
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = match ReduceCommand::try_parse_from(&arguments) {
        Ok(command) => command,
        Err(error) => return refused_as_rank(&error, interrupted),
    };
    let ended = match command.wanted {
        Wanted::Gram(asked) => asked.run(&arguments, interrupted),
        Wanted::Cross(asked) => asked.run(&arguments, interrupted),
        Wanted::Moments(asked) => asked.run(&arguments, interrupted),
        Wanted::Histogram(asked) => asked.run(&arguments, interrupted),
        Wanted::Exponents(asked) => asked.run(&arguments, interrupted),
        Wanted::Distinct(asked) => asked.run(&arguments, interrupted),
        Wanted::Top(asked) => asked.run(&arguments, interrupted),
        // Each machine lists its own files, and writes nothing in parts.
        Wanted::Manifest(manifest) => manifest.run().map(Ok),
        Wanted::Work(work) => work.run(interrupted).map(Ok),
        Wanted::Fold(fold) => once(|| fold.run(&arguments, interrupted)),
    };
    match ended {
        // Rank 0 has told why, if there is a why.
        Ok(end) => end.map_or_else(status_of, |()| 0),
        Err(error) => exit_status("headwater-reduce", Err(error)),
    }
}

/// Does what is to be done once, whoever was launched together: as rank 0 alone. The others say so.
fn once(work: impl FnOnce() -> Result<()>) -> Result<Result<(), ErrorKind>> {
    match launched_rank() {
        None | Some(0) => work().map(Ok),
        Some(rank) => {
            eprintln!("headwater-reduce: rank {rank} leaves this to rank 0, which does it once");
            Ok(Ok(()))
        }
    }
}

/// Says what is wrong with the arguments, once for all ranks that have the same.
fn refused_as_rank(error: &clap::Error, interrupted: Option<&Interrupted<'_>>) -> u8 {
    if launched_rank().unwrap_or(0) > 0 {
        if error.exit_code() == 0 {
            return 0;
        }
        // The first end ends the job, and it is to be rank 0's, which has spoken.
        let waiting = Instant::now();
        while waiting.elapsed() < RANK_0_SPEAKS {
            if interrupted.is_some_and(|stopped| stopped()) {
                return WRONG_USAGE;
            }
            sleep(Duration::from_millis(20));
        }
    }
    refused(error)
}

impl<F: Folded + Args> Asked<F>
where
    spool::Planned: From<F>,
{
    fn run(
        self,
        arguments: &[OsString],
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<Result<(), ErrorKind>> {
        match &self.run.spool {
            Some(folder) => once(|| spool::plan(folder, self.statistic, &self.run)),
            None => run(&self.statistic, &self.run, arguments, interrupted),
        }
    }
}

impl Dtype {
    fn element(self) -> Element {
        match self {
            Self::F64 => Element::F64,
            Self::F32 => Element::F32,
            Self::F16 => Element::F16,
            Self::Bf16 => Element::Bf16,
        }
    }
}

impl FilesArgs {
    fn format(&self) -> MatrixFormat {
        let named = (self.tensor.as_ref(), self.select.as_ref());
        said_format(named, self.dtype, self.columns)
    }

    fn in_order(&self) -> Vec<PathBuf> {
        in_order(&self.input, self.sorted)
    }

    fn inputs(&self) -> impl Iterator<Item = &Path> + Clone {
        self.input.iter().map(PathBuf::as_path)
    }
}

impl RowsArgs {
    fn open(&self) -> Result<Matrix> {
        Matrix::open(&self.files.in_order(), &self.files.format())
    }

    /// The job of folding `statistic` over these rows; `settings` are what else determines it.
    fn job(&self, statistic: &str, matrix: &Matrix, settings: &[(&str, Setting)]) -> Result<Job> {
        let form = (matrix.columns(), matrix.element());
        let rows = (matrix.rows(), u64::from(self.chunk_rows));
        Job::of_matrix(statistic, form, matrix.identity().0, rows, settings)
    }

    /// The operations of a chunk of which each number takes so many.
    fn operations(&self, columns: usize, each: f64) -> f64 {
        f64::from(self.chunk_rows) * columns as f64 * each
    }

    /// The same with paths that hold in every folder.
    fn absolute(mut self) -> Result<Self> {
        absolute(&mut self.files.input)?;
        Ok(self)
    }
}

/// The setting of a job whose rows are all looked through for a NaN or infinity. Sums do not tell that
/// of theirs somebody has: what was folded without is another job's.
fn refusal(reject_nonfinite: bool) -> Vec<(&'static str, Setting)> {
    reject_nonfinite.then(|| ("reject_nonfinite", true.into())).into_iter().collect()
}

/// What was said and named of a file tells its format.
fn said_format(
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
fn in_order(files: &[PathBuf], sorted: bool) -> Vec<PathBuf> {
    let mut files = files.to_vec();
    if sorted {
        sort_by_name(&mut files);
    }
    files
}

fn absolute(paths: &mut [PathBuf]) -> Result<()> {
    for path in paths {
        *path = std::path::absolute(&*path).map_err(|e| Error::io(path, "looking for", e))?;
    }
    Ok(())
}
