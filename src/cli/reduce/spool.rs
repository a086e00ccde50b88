//! `--spool`, `work` and `fold`: a job in a folder that all machines see, without MPI.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::args::StatisticCommand;
use super::place::{check_out, json_of};
use super::run::{RunArgs, RunSummary, check_same_rows, report, result_file};
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
use crate::view::words::plural;

/// The default number of chunks of a block.
const BLOCK_CHUNKS: u64 = 64;

/// Folds the blocks of a job that --spool wrote.
///
/// Any number of processes may do this, on all machines that see the folder, and begin and end at any
/// time. Each folds blocks that no other has begun, and ends when none is missing; the block of a process
/// that was killed is folded by another. Where a statistic has several passes over the rows, one process
/// begins the next pass when the one before is complete. With --rank and --of a process folds the blocks of
/// one rank alone.
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

/// Folds the portions that all ranks have written to a spool, and writes the result.
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
#[derive(Default, Serialize)]
struct WorkSummary {
    rank: Option<u64>,
    of: Option<u64>,
    /// The blocks of all passes.
    blocks: u64,
    resumed_blocks: u64,
    passes: u32,
    threads: usize,
    seconds: f64,
    cpu_seconds: f64,
}

/// Writes a job to a folder.
pub(super) fn write_spool(folder: &Path, statistics: Statistics) -> Result<()> {
    let (job, blocks, passes) =
        with_invocation!(&statistics, invocation => job_and_blocks(invocation))?;
    let description =
        with_invocation!(statistics, invocation => description(invocation.statistic.absolute()?))?;
    Spool::create(folder, &job, &blocks, &description)?;
    let shown = shell_quoted(folder);
    let each = if passes > 1 { format!(" in each of {passes} passes") } else { String::new() };
    Output::new().line(&format!(
        "{shown}: {}{each}; next, in as many processes as you like\n  headwater-reduce work --spool {shown}\n\
         and then\n  headwater-reduce fold --spool {shown} --out RESULT",
        plural(blocks.count(), "block")
    ))
}

/// Returns the job of an invocation, its blocks, and the number of passes over the rows.
fn job_and_blocks<F: StatisticCommand + Args>(
    invocation: &Invocation<F>,
) -> Result<(Job, Blocks, u32)> {
    let Invocation { statistic, run } = invocation;
    if let Some(out) = &run.out {
        return Err(Error::invalid(format!(
            "--out {}: expected no place for the result of a spool, because others may fold it; leave \
             out --out, and give it to `headwater-reduce fold`",
            out.display()
        )));
    }
    let (job, source) = statistic.open(pool(Some(1))?)?;
    let blocks = Blocks::new(job.chunk_count(), run.block_chunks.unwrap_or(BLOCK_CHUNKS).ilog2())?;
    Ok((job, blocks, statistic.passes(&source)))
}

/// Returns the description of the job of folding `statistic`, from which each process opens the rows.
fn description<F: Args>(statistic: F) -> Result<Vec<u8>>
where
    Statistics: From<Invocation<F>>,
{
    let statistics = Statistics::from(Invocation { statistic, run: RunArgs::default() });
    serde_json::to_vec_pretty(&statistics).map_err(|e| Error::invalid(format!("writing JSON: {e}")))
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
        let started = Instant::now();
        let mut summary = WorkSummary { rank: self.rank, of: self.of, ..WorkSummary::default() };
        let mut next = Some(self.spool.clone());
        while let Some(folder) = next {
            let (spool, statistics) =
                open(&folder).map_err(|error| self.with_remedy(&folder, error))?;
            let spool = spool.same_data(self.same_data);
            let worked = with_invocation!(&statistics, invocation => {
                self.work(&invocation.statistic, &spool, &mut summary, interrupted)
            });
            next = worked.map_err(|error| match error.is_of_full_disk() {
                true => {
                    error.followed_by("; free some space there, and run the same command again")
                }
                false => error,
            })?;
        }
        summary.seconds = started.elapsed().as_secs_f64();
        summary.cpu_seconds = cpu_time().as_secs_f64();
        Output::new().json(&summary)
    }

    /// Adds to an error about the spool of a later pass what to do.
    fn with_remedy(&self, folder: &Path, error: Error) -> Error {
        if folder == self.spool {
            return error;
        }
        error.followed_by(&format!(
            "; or remove {}, the folder of this pass, and run the same command again",
            folder.display()
        ))
    }

    /// Folds the blocks of one pass, and begins the next; returns its folder, or none after the last.
    fn work<F: StatisticCommand + Args>(
        &self,
        statistic: &F,
        spool: &Spool,
        summary: &mut WorkSummary,
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<Option<PathBuf>>
    where
        Statistics: From<Invocation<F>>,
    {
        let rank = self.rank.zip(self.of);
        if F::PASSES > 1 && rank.is_some() {
            return Err(Error::invalid(
                "--rank: expected no rank for a statistic of several passes over the rows, each of which \
                 begins when all blocks of the one before are folded; leave out --rank and --of",
            ));
        }
        let assignment = rank.map(|(rank, of)| Assignment::new(rank, of)).transpose()?;
        let threads = pool(self.threads.map(usize::from))?;
        summary.threads = threads.current_num_threads();
        let (job, source) = statistic.open(threads)?;
        let stop = || interrupted.is_some_and(|stopped| stopped());
        let notice = |error: &Error| eprintln!("headwater-reduce: {error}");
        let bars = Bars::new(None);
        let hooks = WorkHooks { progress: &bars, stop: &stop, notice: &notice };
        let folded = match assignment {
            Some(assignment) => spool.work((&job, &source), assignment, &hooks)?,
            None => spool.share((&job, &source), &hooks)?,
        };
        summary.blocks += folded.blocks;
        summary.resumed_blocks += folded.resumed;
        summary.passes += 1;
        let (pass, passes) = (statistic.pass(), statistic.passes(&source));
        if pass == passes {
            return Ok(None);
        }
        let folder = spool.folder_of_pass(pass + 1);
        spool.begin_pass(&folder, &hooks, || {
            let (reduction, _) = spool.fold((&job, &source), &Bars::new(interrupted))?;
            let Some(known) = statistic.next(&source, &reduction.finish()?)? else { return Ok(()) };
            let next = statistic.beginning_with(&known);
            let (next_job, _) = next.open(pool(Some(1))?)?;
            Spool::create(&folder, &next_job, &spool.blocks(&job)?, &description(next)?).map(drop)
        })?;
        Ok(Some(folder))
    }
}

impl FoldArgs {
    pub(super) fn run(
        &self,
        arguments: &[OsString],
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<()> {
        let (spool, statistics) = open(&self.spool)?;
        with_invocation!(&statistics, invocation => {
            self.fold(&invocation.statistic, spool, arguments, interrupted)
        })
    }

    fn fold<F: StatisticCommand>(
        &self,
        statistic: &F,
        mut spool: Spool,
        arguments: &[OsString],
        interrupted: Option<&Interrupted<'_>>,
    ) -> Result<()> {
        let started = Instant::now();
        check_out(&self.out, statistic.inputs(), F::KIND)?;
        let mut statistic = statistic.clone();
        if statistic.pass() > 1 {
            return Err(Error::invalid(format!(
                "--spool {}: expected the folder of the first pass, found that of pass {}, which is within it",
                self.spool.display(),
                statistic.pass()
            )));
        }
        let (mut resumed_nodes, mut earlier) = (0, None);
        loop {
            check_out_of_spool(&self.out, spool.folder())?;
            spool = spool.same_data(self.same_data);
            let (job, source) = statistic.open(pool(Some(1))?)?;
            let bars = Bars::new(interrupted);
            let (reduction, nodes) = spool.fold((&job, &source), &bars)?;
            resumed_nodes += nodes;
            let pass = statistic.pass();
            let rows_digest = reduction.rows_digest();
            check_same_rows(pass, (earlier, rows_digest), "--spool")?;
            earlier = rows_digest;
            let whole = reduction.finish()?;
            bars.advance(0)?;
            drop(bars);
            let Some(known) = statistic.next(&source, &whole)? else {
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
                return report(&summary, &job, arguments, &self.out);
            };
            let folder = spool.folder_of_pass(pass + 1);
            if !Spool::is_in(&folder)? {
                return Err(Error::invalid(format!(
                    "pass {pass} of {} is complete, and no process has begun the next; `headwater-reduce \
                     work --spool {}` goes on",
                    statistic.passes(&source),
                    shell_quoted(&self.spool)
                )));
            }
            spool = Spool::open(&folder)?;
            statistic = statistic.beginning_with(&known);
        }
    }
}
