//! `--spool`, `work` and `fold`: a job in a folder that all machines see, without MPI.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::args::StatisticCommand;
use super::place::{check_out, json_of};
use super::run::{RunSummary, report, result_file};
use super::statistics::{Invocation, Statistics, with_invocation};
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::cli::{Interrupted, cpu_time};
use crate::error::{Error, Result};
use crate::plan::Assignment;
use crate::process::pool;
use crate::progress::Progress;
use crate::reducer::spool::shell_quoted;
use crate::reducer::{Blocks, Job, Spool, WorkHooks};
use crate::view::words::count;

/// The default number of chunks of a block.
const BLOCK_CHUNKS: u64 = 64;

/// Fold the blocks of a job that --spool wrote.
///
/// Any number of processes may do this, on all machines that see the folder, and begin and end at any
/// time. Each folds blocks that no other has begun, and ends when none is missing; the block of a process
/// that was killed is folded by another. With --rank and --of it folds the blocks of one rank alone.
/// Blocks that are folded already are skipped.
#[derive(Args)]
pub(super) struct WorkArgs {
    /// The folder of the job.
    #[arg(long, value_name = "FOLDER")]
    spool: PathBuf,
    /// The rank of this process, from 0 on: fold only block R and each W-th block after it.
    #[arg(long, value_name = "R", requires = "of")]
    rank: Option<u64>,
    /// The number of ranks.
    #[arg(long, value_name = "W", requires = "rank",
          value_parser = clap::value_parser!(u64).range(1..))]
    of: Option<u64>,
    /// The number of threads (default: one for each core that the process may use).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Accept blocks that were folded from another version of a file (a copy, or one with a new date) if
    /// their rows are the same, which are read again.
    #[arg(long)]
    same_data: bool,
}

/// Fold the portions that all ranks have written to a spool, and write the result.
#[derive(Args)]
pub(super) struct FoldArgs {
    /// The folder of the job.
    #[arg(long, value_name = "FOLDER")]
    spool: PathBuf,
    /// Accept blocks that were folded from another version of a file (a copy, or one with a new date) if
    /// their rows are the same, which are read again.
    #[arg(long)]
    same_data: bool,
    /// The result to write: a .npy for gram and cross, a .json for the others.
    ///
    /// The summary of a .npy goes to the .json beside it: g.json for g.npy, and g.1.json for g.1.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// The summary of `work`.
#[derive(Serialize)]
struct WorkSummary {
    rank: Option<u64>,
    of: Option<u64>,
    blocks: u64,
    resumed_blocks: u64,
    threads: usize,
    seconds: f64,
    cpu_seconds: f64,
}

/// Writes a job to a folder.
pub(super) fn write_spool(folder: &Path, statistics: Statistics) -> Result<()> {
    let (job, blocks) = with_invocation!(&statistics, invocation => job_and_blocks(invocation))?;
    let statistics = match statistics {
        Statistics::Gram(invocation) => Statistics::Gram(absolute(invocation)?),
        Statistics::Cross(invocation) => Statistics::Cross(absolute(invocation)?),
        Statistics::Moments(invocation) => Statistics::Moments(absolute(invocation)?),
        Statistics::Histogram(invocation) => Statistics::Histogram(absolute(invocation)?),
        Statistics::Exact(invocation) => Statistics::Exact(absolute(invocation)?),
        Statistics::Exponents(invocation) => Statistics::Exponents(absolute(invocation)?),
        Statistics::Distinct(invocation) => Statistics::Distinct(absolute(invocation)?),
        Statistics::Top(invocation) => Statistics::Top(absolute(invocation)?),
        Statistics::Quantiles(invocation) => Statistics::Quantiles(absolute(invocation)?),
    };
    let description = serde_json::to_vec_pretty(&statistics)
        .map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
    Spool::create(folder, &job, &blocks, &description)?;
    let shown = shell_quoted(folder);
    Output::new().line(&format!(
        "{shown}: {} blocks; next, in as many processes as you like\n  headwater-reduce work --spool {shown}\n\
         and then\n  headwater-reduce fold --spool {shown} --out RESULT",
        count(blocks.count())
    ))
}

fn job_and_blocks<F: StatisticCommand + Args>(invocation: &Invocation<F>) -> Result<(Job, Blocks)> {
    let Invocation { statistic, run } = invocation;
    if F::PASSES > 1 {
        return Err(Error::invalid(
            "--spool: expected a statistic of one pass over the rows, found one of several, of which each \
             begins with the result of the pass before; leave out --spool, and fold in one process or \
             under mpirun, or use the QuantilesJob of headwater.reduce in Python",
        ));
    }
    if let Some(out) = &run.out {
        return Err(Error::invalid(format!(
            "--out {}: expected no place for the result of a spool, because others may fold it; leave \
             out --out, and give it to `headwater-reduce fold`",
            out.display()
        )));
    }
    let (job, _) = statistic.open(pool(Some(1))?)?;
    let blocks = Blocks::new(job.chunk_count(), run.block_chunks.unwrap_or(BLOCK_CHUNKS).ilog2())?;
    Ok((job, blocks))
}

/// Makes the paths of an invocation absolute.
fn absolute<F: StatisticCommand + Args>(invocation: Invocation<F>) -> Result<Invocation<F>> {
    Ok(Invocation { statistic: invocation.statistic.absolute()?, ..invocation })
}

/// Checks that neither the result nor the .json beside it overwrites a file of the spool.
fn check_out_of_spool(out: &Path, folder: &Path) -> Result<()> {
    let same_place = |path: &Path| {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs::canonicalize(parent.unwrap_or(Path::new("."))).ok() == fs::canonicalize(folder).ok()
    };
    for path in [out, &json_of(out)] {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if Spool::is_own(name) && same_place(path) {
            return Err(Error::invalid(format!(
                "--out {}: the result would overwrite {}, which is a file of the spool; choose \
                 another name, or another folder",
                out.display(),
                path.display()
            )));
        }
    }
    Ok(())
}

/// Opens the spool in a folder, and reads which statistic its job folds.
fn open(folder: &Path) -> Result<(Spool, Statistics)> {
    let spool = Spool::open(folder)?;
    let statistics = serde_json::from_slice(spool.description()).map_err(|e| {
        let folder = folder.display();
        Error::corrupt(format!(
            "{folder}: the description of the job is damaged: {e}; write the job again with \
             --spool"
        ))
    })?;
    Ok((spool, statistics))
}

impl WorkArgs {
    pub(super) fn run(&self, interrupted: Option<&Interrupted<'_>>) -> Result<()> {
        let (spool, statistics) = open(&self.spool)?;
        let spool = spool.same_data(self.same_data);
        let summary = with_invocation!(&statistics, invocation => {
            self.work(&invocation.statistic, &spool, interrupted)
        })?;
        Output::new().json(&summary)
    }

    fn work<F: StatisticCommand>(
        &self,
        statistic: &F,
        spool: &Spool,
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<WorkSummary> {
        let started = Instant::now();
        let rank = self.rank.zip(self.of);
        let assignment = rank.map(|(rank, of)| Assignment::new(rank, of)).transpose()?;
        let threads = pool(self.threads.map(usize::from))?;
        let thread_count = threads.current_num_threads();
        let (job, source) = statistic.open(threads)?;
        let stop = || interrupted.is_some_and(|stopped| stopped());
        let notice = |error: &Error| eprintln!("headwater-reduce: {error}");
        let bars = Bars::new(None);
        let hooks = WorkHooks { progress: &bars, stop: &stop, notice: &notice };
        let folded = match assignment {
            Some(assignment) => spool.work((&job, &source), assignment, &hooks)?,
            None => spool.share((&job, &source), &hooks)?,
        };
        Ok(WorkSummary {
            rank: self.rank,
            of: self.of,
            blocks: folded.blocks,
            resumed_blocks: folded.resumed,
            threads: thread_count,
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_time().as_secs_f64(),
        })
    }
}

impl FoldArgs {
    pub(super) fn run(
        &self,
        arguments: &[OsString],
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<()> {
        let (spool, statistics) = open(&self.spool)?;
        let spool = spool.same_data(self.same_data);
        with_invocation!(&statistics, invocation => {
            self.fold(&invocation.statistic, &spool, arguments, interrupted)
        })
    }

    fn fold<F: StatisticCommand>(
        &self,
        statistic: &F,
        spool: &Spool,
        arguments: &[OsString],
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<()> {
        let started = Instant::now();
        check_out(&self.out, statistic.inputs(), F::KIND)?;
        check_out_of_spool(&self.out, &self.spool)?;
        let (job, source) = statistic.open(pool(Some(1))?)?;
        let bars = Bars::new(interrupted);
        let (reduction, resumed_nodes) = spool.fold((&job, &source), &bars)?;
        let rows_digest = reduction.rows_digest();
        let whole = reduction.finish()?;
        bars.advance(0)?;
        drop(bars);
        let written = statistic.write(&self.out, &source, &whole)?;
        let summary = RunSummary {
            digest: written.digest,
            rows_digest,
            rows: job.rows(),
            columns: written.columns,
            ranks: 1,
            threads: 1,
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_time().as_secs_f64(),
            gflops: None,
            resumed_nodes,
            out: result_file(&self.out, written.result.as_ref()),
            more: written.more,
            result: written.result,
            cursors: Vec::new(),
        };
        report(&summary, &job, arguments, &self.out)
    }
}
