//! Folds a statistic from the first row to the result, as one of any number of ranks.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::args::{StatisticCommand, StatisticOf};
use super::place::{check_out, json_of};
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::cli::{Interrupted, cpu_time, print_error};
use crate::durable::{Disk, write_file};
use crate::error::{Error, ErrorKind, Result};
use crate::fold::Statistic;
use crate::plan::{Plan, Setting};
use crate::process::pool;
use crate::progress::Progress;
#[cfg(feature = "mpi")]
use crate::reducer::wire::work;
use crate::reducer::wire::{
    Coordinator, Environment, JobEnd, NoPeers, Wire, coordinate, shut_down,
};
use crate::reducer::{Blocks, Checkpoints, Job, Policy, Reduction, Resumed, Source};
use crate::view::words::count;

/// How a statistic is folded. These options do not change a bit of the result.
///
/// The description of a job in a spool has only `out`.
#[derive(Args, Serialize, Deserialize)]
pub(super) struct RunArgs {
    /// The result to write: a .npy for gram and cross, a .json for the others.
    ///
    /// The summary of a .npy goes to the .json beside it: g.json for g.npy, and g.1.json for g.1.
    #[arg(long, value_name = "FILE")]
    pub(super) out: PathBuf,
    /// The number of threads of each rank (default: one for each core that the rank may use).
    ///
    /// mpirun binds each rank to cores: to one core if there are at most two ranks. With --oversubscribe
    /// or --bind-to none, every rank may use all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[serde(skip)]
    pub(super) threads: Option<u16>,
    /// Chunks of a block, a power of two; a rank sends one partial for each block.
    #[arg(long, value_name = "N", value_parser = power_of_two)]
    #[serde(skip)]
    pub(super) block_chunks: Option<u64>,
    /// A folder for checkpoints, from which --resume continues.
    #[arg(long, value_name = "FOLDER", conflicts_with = "spool")]
    #[serde(skip)]
    checkpoint_dir: Option<PathBuf>,
    /// How often a checkpoint is written: after seconds (60s), or after blocks (8b).
    #[arg(long, value_name = "EVERY", default_value = "60s", requires = "checkpoint_dir")]
    #[serde(skip)]
    checkpoint_every: Every,
    /// Continue from the newest checkpoint; without one, start from the first row.
    #[arg(long, requires = "checkpoint_dir")]
    #[serde(skip)]
    resume: bool,
    /// Accept rows that were folded from another version of a file (a copy, or one with a new date) if
    /// they are the same: this process reads them again and compares them.
    #[arg(long, conflicts_with = "spool")]
    #[serde(skip)]
    same_data: bool,
    /// The number of blocks in 1,000 that two ranks fold, to compare their bits.
    #[arg(long, value_name = "PER_MILLE", default_value_t = 0, conflicts_with = "spool",
          value_parser = clap::value_parser!(u16).range(..=1000))]
    #[serde(skip)]
    audit: u16,
    /// Fold nothing: write the job to this folder, for `work` and `fold`.
    #[arg(long, value_name = "FOLDER")]
    #[serde(skip)]
    pub(super) spool: Option<PathBuf>,
}

/// When the next checkpoint is due.
#[derive(Clone, Copy)]
enum Every {
    Time(Duration),
    Blocks(u64),
}

impl Default for Every {
    fn default() -> Self {
        Self::Time(Duration::from_mins(1))
    }
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("expected seconds (60s) or blocks (8b), found {text:?}");
        match text.strip_suffix('b') {
            Some(blocks) => blocks.parse().map(Self::Blocks).map_err(wrong),
            None => text
                .strip_suffix('s')
                .unwrap_or(text)
                .parse()
                .map_err(wrong)
                .map(|seconds| Self::Time(Duration::from_secs(seconds))),
        }
    }
}

fn power_of_two(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number: &u64| number.is_power_of_two());
    number.ok_or_else(|| format!("expected a power of two, such as 64, found {text:?}"))
}

/// The summary of a run: the last line of standard output, and the file beside the result.
#[derive(Serialize)]
pub(super) struct RunSummary {
    pub(super) digest: crate::Digest,
    /// The digest of the rows as they were folded.
    pub(super) rows_digest: Option<crate::Digest>,
    pub(super) rows: u64,
    pub(super) columns: usize,
    pub(super) ranks: u32,
    pub(super) threads: usize,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// The speed of this run; none if an earlier run has folded all rows.
    pub(super) gflops: Option<f64>,
    pub(super) resumed_nodes: usize,
    #[serde(flatten)]
    pub(super) more: serde_json::Map<String, serde_json::Value>,
    /// Only in the file, because it is too long for a line of output.
    #[serde(skip)]
    pub(super) result: Option<serde_json::Value>,
}

/// The variables by which launchers give a process its rank, and the number of ranks.
const RANK_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
#[cfg(not(feature = "mpi"))]
const SIZE_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

fn number_in(variables: &[&str]) -> Option<u32> {
    variables.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// The rank of this process among those that a launcher has started.
pub(super) fn launched_rank() -> Option<u32> {
    number_in(&RANK_VARIABLES)
}

/// The settings of a job's plan by name; digests in hexadecimal digits.
fn settings_of(plan: &Plan) -> serde_json::Value {
    let value = |setting: &Setting| -> serde_json::Value {
        match setting {
            Setting::Number(number) => (*number).into(),
            Setting::Flag(flag) => (*flag).into(),
            Setting::Text(text) => text.clone().into(),
            Setting::Hash(_) => setting.to_string().into(),
        }
    };
    plan.iter().map(|(name, setting)| (name.to_owned(), value(setting))).collect()
}

/// Writes the summary beside the result, and prints it.
pub(super) fn report(
    summary: &RunSummary,
    job: &Job,
    arguments: &[OsString],
    out: &Path,
) -> Result<()> {
    let mut whole =
        serde_json::to_value(summary).map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
    let arguments: Vec<_> = arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    whole["job"] = settings_of(job.plan());
    whole["fingerprint"] = job.plan().fingerprint().to_string().into();
    whole["command"] = arguments.into();
    if let Some(result) = &summary.result {
        whole["result"] = result.clone();
    }
    let json = serde_json::to_vec_pretty(&whole);
    let json = json.map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
    write_file(&Disk, &json_of(out), &json)?;
    Output::new().json(summary)
}

/// Folds `statistic`; returns how the job ended, after rank 0 has printed the error, if any.
///
/// # Errors
/// Those of MPI; on other ranks than rank 0, also `Shutdown` when rank 0 dies.
pub(super) fn run<F: StatisticCommand>(
    statistic: &F,
    args: &RunArgs,
    arguments: &[OsString],
    interrupted: Option<&Interrupted<'_>>,
) -> Result<JobEnd> {
    let started = Cell::new(Instant::now());
    let environment = Environment {
        now: &|| started.get().elapsed().as_millis() as u64,
        cpu: &|| cpu_time().as_micros() as u64,
        interrupted: &|| interrupted.is_some_and(|stopped| stopped()),
    };
    let leader = Leader { statistic, args, arguments, environment: &environment };
    if launched_rank().is_none() {
        return Ok(leader.lead(&mut NoPeers));
    }
    #[cfg(feature = "mpi")]
    {
        let mut world = crate::mpi::World::join()?;
        // The time of the fold excludes the start of MPI, which takes a second to find fast networks.
        started.set(Instant::now());
        let ended = if world.rank() == 0 {
            Ok(leader.lead(&mut world))
        } else {
            work(
                pool(args.threads.map(usize::from)).and_then(|pool| statistic.open(pool)),
                &mut world,
                &environment,
            )
        };
        world.leave();
        ended
    }
    #[cfg(not(feature = "mpi"))]
    match number_in(&SIZE_VARIABLES) {
        None | Some(1) => Ok(leader.lead(&mut NoPeers)),
        Some(ranks) => Err(Error::invalid(format!(
            "this headwater-reduce was built without MPI: each of {ranks} ranks would fold all \
             rows; run the one that `make setup` builds, or cargo build --features mpi"
        ))),
    }
}

/// Rank 0: assigns the orders, receives the portions, writes the result.
struct Leader<'a, F> {
    statistic: &'a F,
    args: &'a RunArgs,
    arguments: &'a [OsString],
    environment: &'a Environment<'a>,
}

impl<F: StatisticCommand> Leader<'_, F> {
    fn lead(&self, wire: &mut dyn Wire) -> JobEnd {
        let mut lost = BTreeSet::new();
        let folded = self.fold_and_write(wire, &mut lost);
        if let Err(error) = &folded {
            print_to_terminal(error);
        }
        // Prints before the other ranks leave: mpirun kills the job when a rank exits with an error.
        let end = match print_error("headwater-reduce", folded) {
            Ok(()) => JobEnd::Done,
            Err(kind) => JobEnd::Failed(kind),
        };
        shut_down(wire, lost, end, self.environment);
        end
    }

    fn fold_and_write(&self, wire: &mut dyn Wire, lost: &mut BTreeSet<u32>) -> Result<()> {
        if self.args.audit > 0 && wire.size() < 2 {
            return Err(Error::invalid(
                "--audit folds blocks on two ranks and compares them: expected at least 2 ranks, \
                 found 1; run under mpirun with 2 or more ranks, or leave out --audit",
            ));
        }
        check_out(&self.args.out, self.statistic.inputs(), F::KIND)?;
        let threads = pool(self.args.threads.map(usize::from))?;
        let thread_count = threads.current_num_threads();
        let (job, source) = self.statistic.open(threads)?;
        let mut reduction = Reduction::new(job.clone(), Arc::clone(source.statistic()))
            .of_files(source.opened_versions(), self.args.same_data);
        let checkpoints = self.args.checkpoint_dir.as_deref().map(Checkpoints::new).transpose()?;
        let resumed = self.args.begin(checkpoints.as_ref(), &mut reduction)?;
        let bars = Bars::new(Some(self.environment.interrupted));
        let compared = reduction.prove(&source, &bars)?;
        drop(bars);

        let operations = self.statistic.chunk_operations(&source);
        let policy = self.policy(&job, &source, wire.size(), thread_count)?;
        let resumed_rows = reduction.covered_rows();
        let mut coordinator = Coordinator::new(reduction, &policy)?;
        let watch = Watch {
            every: self.args.checkpoint_every,
            block_chunks: policy.blocks.chunks_each(),
            checkpoints: checkpoints.as_ref(),
            bars: Bars::of_operations(operations / job.chunk_rows() as f64),
            shown_rows: 0,
            saved_chunks: 0,
            saved_at: Instant::now(),
        };
        let folded = self.coordinate(&mut coordinator, &source, wire, watch);
        lost.extend(coordinator.lost());
        folded?;

        let mut more = serde_json::Map::new();
        if self.args.audit > 0 {
            more.insert("audited_blocks".to_owned(), coordinator.audited_count().into());
        }
        more.insert("lost_ranks".to_owned(), lost.iter().copied().collect());
        let elsewhere = coordinator.cpu_microseconds_elsewhere() as f64 / 1e6;
        let mut reduction = coordinator.into_reduction();
        let bars = Bars::new(Some(self.environment.interrupted));
        let compared = compared + reduction.prove(&source, &bars)?;
        drop(bars);
        if self.args.same_data {
            more.insert("compared_rows".to_owned(), compared.into());
        }
        let rows_digest = reduction.rows_digest();
        let whole = reduction.finish()?;
        let written = self.statistic.write(&self.args.out, &source, &whole);
        let written = written.map_err(|error| self.with_remedy(error))?;
        let seconds = (self.environment.now)() as f64 / 1e3;
        let folded_rows = job.rows() - resumed_rows;
        let folded_chunks = folded_rows as f64 / job.chunk_rows() as f64;
        more.extend(written.more);
        let summary = RunSummary {
            digest: written.digest,
            rows_digest,
            rows: job.rows(),
            columns: written.columns,
            ranks: wire.size(),
            threads: thread_count,
            seconds,
            cpu_seconds: cpu_time().as_secs_f64() + elsewhere,
            gflops: (folded_rows > 0).then(|| operations * folded_chunks / seconds.max(1e-3) / 1e9),
            resumed_nodes: resumed.nodes,
            more,
            result: written.result,
        };
        report(&summary, &job, self.arguments, &self.args.out)
            .map_err(|error| self.with_remedy(error))
    }

    fn policy(
        &self,
        job: &Job,
        source: &F::Source,
        ranks: u32,
        thread_count: usize,
    ) -> Result<Policy> {
        let operations = self.statistic.chunk_operations(source);
        let mut policy = Policy::for_job(job, source, (ranks, thread_count), operations);
        if let Some(chunks) = self.args.block_chunks {
            policy.blocks = Blocks::new(job.chunk_count(), chunks.ilog2())?;
        }
        policy.audited_per_mille = u64::from(self.args.audit);
        Ok(policy)
    }

    /// Folds the missing chunks, and writes a checkpoint however the fold ends.
    fn coordinate(
        &self,
        coordinator: &mut Coordinator<StatisticOf<F>>,
        source: &F::Source,
        wire: &mut dyn Wire,
        mut watch: Watch<'_>,
    ) -> Result<()> {
        let checkpoints = watch.checkpoints;
        watch.begin(coordinator.reduction());
        let environment = self.environment;
        let folded = coordinate(coordinator, source, wire, environment, &mut |coordinator| {
            watch.update(coordinator)?;
            if (environment.interrupted)() {
                Err(Error::interrupted("interrupted"))
            } else {
                Ok(())
            }
        });
        let reduction = coordinator.reduction();
        // Also when the fold is complete: if writing the result fails, --resume needs the checkpoint.
        let saved = if coordinator.is_doubtful() { None } else { watch.save(reduction) };
        drop(watch);
        let Err(error) = folded else { return Ok(()) };
        let (done, all) = (count(reduction.covered_count()), count(reduction.job().chunk_count()));
        Err(match (error.kind(), saved, &self.args.checkpoint_dir) {
            (ErrorKind::Interrupted, Some(Err(unwritten)), _) => unwritten,
            (ErrorKind::Interrupted, Some(Ok(())), Some(folder)) => Error::interrupted(format!(
                "{error} after {done} of {all} chunks, which are kept in {}; continue with --resume",
                folder.display()
            )),
            (ErrorKind::Interrupted, ..) => Error::interrupted(format!(
                "{error} after {done} of {all} chunks, which are lost; set --checkpoint-dir to \
                 keep them"
            )),
            _ if coordinator.is_doubtful() => self.without_checkpoints(error, checkpoints),
            _ => self.with_remedy(error),
        })
    }

    /// Removes the checkpoints: when two ranks have different bits, the checkpoints may be wrong too.
    fn without_checkpoints(&self, error: Error, checkpoints: Option<&Checkpoints>) -> Error {
        let removed = checkpoints.map(Checkpoints::discard);
        match (removed, &self.args.checkpoint_dir) {
            (Some(Err(unremoved)), _) => error.context(unremoved),
            (Some(Ok(())), Some(folder)) => Error::new(
                error.kind(),
                format!("{error}; the checkpoints in {} were removed", folder.display()),
            ),
            _ => error,
        }
    }

    /// Adds to an error of a full disk or memory how to continue.
    fn with_remedy(&self, error: Error) -> Error {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        let is_full = error.os_error().is_some_and(|e| full.contains(&e.kind()));
        let room = if is_full { "; free some space there" } else { "" };
        match &self.args.checkpoint_dir {
            _ if !is_full && error.kind() != ErrorKind::LimitExceeded => error,
            Some(folder) => Error::new(
                error.kind(),
                format!("{error}{room}; continue with --resume from {}", folder.display()),
            ),
            None => Error::new(error.kind(), format!("{error}{room}")),
        }
    }
}

/// Prints an interrupt to the terminal under mpirun, which drops the standard error of its ranks after
/// Ctrl-C.
fn print_to_terminal(error: &Error) {
    if error.kind() != ErrorKind::Interrupted
        || launched_rank().is_none()
        || io::stderr().is_terminal()
    {
        return;
    }
    if let Ok(mut terminal) = OpenOptions::new().write(true).open("/dev/tty") {
        // An error while printing cannot be printed either.
        let _ = writeln!(terminal, "headwater-reduce: {error}");
    }
}

/// Shows the progress of a fold, and writes checkpoints when they are due.
struct Watch<'a> {
    every: Every,
    block_chunks: u64,
    checkpoints: Option<&'a Checkpoints>,
    bars: Bars<'a>,
    shown_rows: u64,
    saved_chunks: u64,
    saved_at: Instant,
}

impl Watch<'_> {
    /// Starts after the chunks that earlier runs folded.
    fn begin<S: Statistic>(&mut self, reduction: &Reduction<S>) {
        self.shown_rows = reduction.covered_rows();
        self.saved_chunks = reduction.covered_count();
        self.bars.begin("folding rows", Some(reduction.job().rows()));
        self.bars.skip(self.shown_rows);
    }

    fn update<S: Statistic>(&mut self, coordinator: &Coordinator<S>) -> Result<()> {
        let reduction = coordinator.reduction();
        let rows = reduction.covered_rows();
        self.bars.advance(rows.saturating_sub(self.shown_rows))?;
        self.shown_rows = rows;
        let Some(checkpoints) = self.checkpoints else { return Ok(()) };
        let chunks = reduction.covered_count();
        let new_chunks = chunks.saturating_sub(self.saved_chunks);
        let is_due = match self.every {
            Every::Time(time) => self.saved_at.elapsed() >= time,
            Every::Blocks(blocks) => new_chunks >= blocks.saturating_mul(self.block_chunks),
        };
        if is_due && new_chunks > 0 {
            checkpoints.write(reduction)?;
            self.saved_at = Instant::now();
            self.saved_chunks = chunks;
        }
        Ok(())
    }

    /// Writes a last checkpoint, if there is a folder for checkpoints.
    fn save<S: Statistic>(&self, reduction: &Reduction<S>) -> Option<Result<()>> {
        let is_saved = reduction.covered_count() == self.saved_chunks;
        self.checkpoints.map(|c| if is_saved { Ok(()) } else { c.write(reduction) })
    }
}

impl RunArgs {
    /// Reads the newest checkpoint into `reduction` if --resume is set.
    fn begin<S: Statistic>(
        &self,
        checkpoints: Option<&Checkpoints>,
        reduction: &mut Reduction<S>,
    ) -> Result<Resumed> {
        let Some(checkpoints) = checkpoints else { return Ok(Resumed::default()) };
        if !self.resume {
            checkpoints.check_empty()?;
            return Ok(Resumed::default());
        }
        let resumed = checkpoints.resume(reduction)?;
        for damaged in &resumed.damaged {
            eprintln!("headwater-reduce: skipped a checkpoint: {damaged}");
        }
        if resumed.nodes == 0 {
            eprintln!("headwater-reduce: no checkpoint yet; starting from the first row");
        }
        Ok(resumed)
    }
}
