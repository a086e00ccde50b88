//! The `headwater-reduce` command: statistics over matrices on disk, for now in one process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

use super::output::{Output, count};
use super::progress::Bars;
use super::{Hooks, cpu_time, exit_status, parsed};
use crate::Digest;
use crate::durable::{Disk, write_file};
use crate::error::{Error, Result};
use crate::fold::{Gram, Triangle};
use crate::plan::Fields;
use crate::prepare::Progress;
use crate::reducer::{
    Checkpoints, Coordinator, Element, Job, Matrix, MatrixFormat, Resumed, fold_here, npy_bytes,
};

const AFTER_HELP: &str = "\
The Gram matrix X^T X of a matrix, with the same bits for any number of threads, on any processor,
however often it was interrupted:
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck --resume

The last line of standard output is one JSON object; its digest is that of the result's bits.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 damaged or foreign file, 130 interrupted.";

/// Folds statistics over the rows of matrices, the same bits every time.
#[derive(Parser)]
#[command(name = "headwater-reduce", version, after_help = AFTER_HELP, max_term_width = 100)]
struct ReduceCommand {
    #[command(subcommand)]
    statistic: Wanted,
}

#[derive(Subcommand)]
enum Wanted {
    Gram(GramArgs),
}

/// The Gram matrix: the sum over all rows of the products of each two columns.
#[derive(Args)]
struct GramArgs {
    /// A .npy file, or several that are one matrix, in their order; raw numbers with --columns.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Where the matrix goes, as .npy of 64-bit numbers; a .json beside it says what it is.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
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
    /// How many threads work; all cores where it is not said. The bits do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// A folder for checkpoints, to go on from after a kill.
    #[arg(long, value_name = "FOLDER")]
    checkpoint_dir: Option<PathBuf>,
    /// Seconds from one checkpoint to the next.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "checkpoint_dir")]
    checkpoint_every: u64,
    /// Go on from the newest checkpoint; begin afresh where there is none.
    #[arg(long, requires = "checkpoint_dir")]
    resume: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    F64,
    F32,
    F16,
    Bf16,
}

/// What was done, as the last line and the file beside the result say it.
#[derive(Serialize)]
struct Done {
    digest: Digest,
    rows: u64,
    columns: usize,
    ranks: u32,
    threads: usize,
    seconds: f64,
    cpu_seconds: f64,
    gflops: f64,
    resumed_nodes: usize,
    /// Columns that hold a NaN, an infinity, or numbers whose squares are too great.
    nonfinite_columns: usize,
    /// All that determines the result.
    job: serde_json::Map<String, serde_json::Value>,
}

/// Runs the command with `arguments`, the first of which is its own name.
///
/// Returns the exit status.
pub fn main(arguments: impl IntoIterator<Item = OsString>, hooks: &Hooks<'_>) -> u8 {
    let command: ReduceCommand = match parsed(arguments) {
        Ok(command) => command,
        Err(status) => return status,
    };
    let Wanted::Gram(args) = command.statistic;
    exit_status("headwater-reduce", args.run(hooks))
}

impl GramArgs {
    fn run(&self, hooks: &Hooks<'_>) -> Result<()> {
        let started = Instant::now();
        let matrix = Matrix::open(&self.input, &self.format())?;
        let job = self.job(&matrix)?;
        let mut pool = rayon::ThreadPoolBuilder::new();
        if let Some(threads) = self.threads {
            pool = pool.num_threads(usize::from(threads));
        }
        let pool = pool.build().map_err(|e| Error::invalid(format!("starting threads: {e}")))?;
        let mut fold = Coordinator::new(job.clone(), Gram::new(matrix.columns())?);
        let checkpoints = self.checkpoint_dir.as_deref().map(Checkpoints::new).transpose()?;
        let resumed = self.begin(checkpoints.as_ref(), &mut fold)?;
        self.fold(&mut fold, &matrix, &pool, checkpoints.as_ref(), hooks)?;
        let gram = fold.finish()?;
        let columns = matrix.columns();
        let own = (0..columns).map(|column| gram.values()[place(columns, column, column)]);
        let seconds = started.elapsed().as_secs_f64();
        let products = columns as f64 * (columns as f64 + 1.0) * job.rows() as f64;
        let done = Done {
            digest: Digest::of(bytemuck::cast_slice(gram.values())),
            rows: job.rows(),
            columns,
            ranks: 1,
            threads: pool.current_num_threads(),
            seconds,
            cpu_seconds: cpu_time().as_secs_f64(),
            gflops: products / seconds / 1e9,
            resumed_nodes: resumed.nodes,
            nonfinite_columns: own.filter(|sum| !sum.is_finite()).count(),
            job: described(job.fields()),
        };
        write_file(&Disk, &self.out, &whole(&gram, columns))?;
        let json = serde_json::to_vec_pretty(&done);
        let json = json.map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
        write_file(&Disk, &self.out.with_extension("json"), &json)?;
        Output::new().json(&done)
    }

    fn format(&self) -> MatrixFormat {
        let element = self.dtype.map(|dtype| match dtype {
            Dtype::F64 => Element::F64,
            Dtype::F32 => Element::F32,
            Dtype::F16 => Element::F16,
            Dtype::Bf16 => Element::Bf16,
        });
        match (element, self.columns) {
            (Some(element), Some(columns)) => {
                MatrixFormat::Raw { element, columns: columns as usize }
            }
            (None, _) => MatrixFormat::ByName,
            (element, _) => MatrixFormat::Npy(element),
        }
    }

    fn job(&self, matrix: &Matrix) -> Result<Job> {
        let mut what = Fields::new();
        what.add("statistic", "gram")?;
        what.add("columns", matrix.columns() as u64)?;
        what.add("element", matrix.element().name())?;
        what.add("data", matrix.identity().0)?;
        Job::new(what, matrix.rows(), u64::from(self.chunk_rows))
    }

    /// Takes over what was done before, where that is wanted.
    fn begin(
        &self,
        checkpoints: Option<&Checkpoints>,
        fold: &mut Coordinator<Gram>,
    ) -> Result<Resumed> {
        let Some(checkpoints) = checkpoints else { return Ok(Resumed::default()) };
        if !self.resume {
            checkpoints.check_empty()?;
            return Ok(Resumed::default());
        }
        let resumed = checkpoints.resume(fold)?;
        for damaged in &resumed.damaged {
            eprintln!("headwater-reduce: passed over a checkpoint: {damaged}");
        }
        if resumed.nodes == 0 {
            eprintln!("headwater-reduce: there is no checkpoint yet; beginning afresh");
        }
        Ok(resumed)
    }

    fn fold(
        &self,
        fold: &mut Coordinator<Gram>,
        matrix: &Matrix,
        pool: &rayon::ThreadPool,
        checkpoints: Option<&Checkpoints>,
        hooks: &Hooks<'_>,
    ) -> Result<()> {
        let every = Duration::from_secs(self.checkpoint_every);
        let mut last = Instant::now();
        let bars = Bars::new(None);
        bars.begin("folding rows", Some(matrix.rows()));
        let missing = fold
            .missing()
            .into_iter()
            .map(|gap| fold.job().rows_of(gap.end - 1).end - fold.job().rows_of(gap.start).start);
        bars.advance(matrix.rows() - missing.sum::<u64>())?;
        fold_here(fold, matrix, pool, |fold, rows| {
            bars.advance(rows)?;
            let is_stopped = hooks.interrupted.is_some_and(|interrupted| interrupted());
            if let Some(checkpoints) = checkpoints
                && (is_stopped || last.elapsed() >= every)
            {
                checkpoints.write(fold)?;
                last = Instant::now();
            }
            if is_stopped {
                return Err(Error::interrupted(self.left_at(fold)));
            }
            Ok(())
        })
    }

    fn left_at(&self, fold: &Coordinator<Gram>) -> String {
        let (done, all) = (count(fold.covered_count()), count(fold.job().chunk_count()));
        match &self.checkpoint_dir {
            None => format!(
                "interrupted after {done} of {all} chunks, which are lost; with --checkpoint-dir they \
                 would be kept"
            ),
            Some(folder) => format!(
                "interrupted after {done} of {all} chunks, which are kept in {}; go on with --resume",
                folder.display()
            ),
        }
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

/// The fields of a job by name; hashes in hexadecimal digits.
fn described(fields: &Fields) -> serde_json::Map<String, serde_json::Value> {
    use crate::plan::Value;
    let value = |value: &Value| match value {
        Value::Number(number) => (*number).into(),
        Value::Flag(flag) => (*flag).into(),
        Value::Text(text) => text.clone().into(),
        hash @ Value::Hash(_) => hash.to_string().into(),
    };
    fields.iter().map(|(name, field)| (name.to_owned(), value(field))).collect()
}
