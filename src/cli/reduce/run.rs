//! Folds a statistic from the first row to the result, as one of any number of ranks.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::args::{PartialOf, StatisticCommand, StatisticOf};
use super::place::{check_out, json_of};
use super::watch::{Every, Watch};
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::cli::{Interrupted, cpu_time, print_error, status_of};
use crate::durable::{Disk, write_file};
use crate::error::{Error, ErrorKind, Result};
use crate::files::is_folder;
use crate::fold::Statistic;
use crate::launcher::Launched;
use crate::plan::{Plan, Setting};
use crate::process::pool;
use crate::reducer::wire::{
    Coordinator, Environment, JobEnd, NoPeers, PassEnd, PassWire, Ranks, Wire, coordinate,
    shut_down, work,
};
use crate::reducer::{
    Blocks, CheckpointWriter, Checkpoints, Job, Policy, Reduction, Resumed, Source, WorkerCursor,
};
use crate::view::words::count;

/// How a statistic is folded. These options do not change a bit of the result, and the description of a
/// job in a spool has none of them.
#[derive(Args, Default)]
pub(super) struct RunArgs {
    /// The result to write: a .npy for gram and cross, a .json for the others.
    ///
    /// The summary of a .npy goes to the .json beside it: g.json for g.npy, and g.1.json for g.1.
    #[arg(long, value_name = "FILE", required_unless_present = "spool")]
    pub(super) out: Option<PathBuf>,
    /// The number of threads of each rank (default: one for each core that the rank may use).
    ///
    /// mpirun binds each rank to cores: to one core if there are at most two ranks. With --oversubscribe
    /// or --bind-to none, every rank may use all cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,
    /// Chunks of a block, a power of two; a rank sends one partial for each block.
    #[arg(long, value_name = "N", value_parser = power_of_two)]
    pub(super) block_chunks: Option<u64>,
    /// A folder for checkpoints, from which --resume continues.
    #[arg(long, value_name = "FOLDER", conflicts_with = "spool")]
    checkpoint_dir: Option<PathBuf>,
    /// How often a checkpoint is written: after seconds (60s), or after blocks (8b).
    #[arg(long, value_name = "EVERY", default_value = "60s", requires = "checkpoint_dir")]
    checkpoint_every: Every,
    /// Continue from the newest checkpoint; without one, start from the first row.
    #[arg(long, requires = "checkpoint_dir")]
    resume: bool,
    /// Accept rows that were folded from another version of a file (a copy, or one with a new date) if
    /// they are the same: this process reads them again and compares them.
    #[arg(long, conflicts_with = "spool")]
    same_data: bool,
    /// The number of blocks in 1,000 that two ranks fold, to compare their bits.
    #[arg(long, value_name = "PER_MILLE", default_value_t = 0, conflicts_with = "spool",
          value_parser = clap::value_parser!(u16).range(..=1000))]
    audit: u16,
    /// Fold nothing: write the job to this folder, for `work` and for `fold`, which takes --out.
    #[arg(long, value_name = "FOLDER")]
    pub(super) spool: Option<PathBuf>,
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
    /// The file that has the result.
    pub(super) out: String,
    #[serde(flatten)]
    pub(super) more: serde_json::Map<String, serde_json::Value>,
    /// Only in the file, because it is too long for a line of output.
    #[serde(skip)]
    pub(super) result: Option<serde_json::Value>,
    /// Only in the file: how far each rank is in its own blocks.
    #[serde(skip)]
    pub(super) cursors: Vec<serde_json::Value>,
}

/// Returns the absolute path of the file that has the result: `out`, or the .json for statistics of
/// columns.
pub(super) fn result_file(out: &Path, result: Option<&serde_json::Value>) -> String {
    let file = if result.is_some() { json_of(out) } else { out.to_owned() };
    // The file is written; a relative name says less, but where it is.
    std::path::absolute(&file).unwrap_or(file).to_string_lossy().into_owned()
}

/// A worker's cursor, for people.
fn cursor_json(cursor: &WorkerCursor) -> serde_json::Value {
    let of = cursor.assignment();
    serde_json::json!({"rank": of.rank(), "world": of.world(), "ordinal": cursor.ordinal()})
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

/// Checks that a pass has the rows of the pass before, if there was one, by the digests of both.
pub(super) fn check_same_rows(
    pass: u32,
    (earlier, found): (Option<crate::Digest>, Option<crate::Digest>),
    other: &str,
) -> Result<()> {
    if earlier.is_none() || earlier == found {
        return Ok(());
    }
    Err(Error::data(format!(
        "expected the rows of pass {pass} to be those of the pass before, found others: the files have \
         changed between the passes; fold again from the first pass, with another {other}"
    )))
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
    if !summary.cursors.is_empty() {
        whole["cursors"] = summary.cursors.clone().into();
    }
    if let Some(result) = &summary.result {
        whole["result"] = result.clone();
    }
    let json = serde_json::to_vec_pretty(&whole);
    let json = json.map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
    write_file(&Disk, &json_of(out), &json)?;
    Output::new().json(summary)
}

/// Joins the ranks of the job that a launcher has started this process for.
pub type Join = fn() -> Result<Box<dyn Ranks>>;

/// Folds `statistic`; returns how the job ended, after rank 0 has printed the error, if any. Without
/// `join` this process must be alone.
///
/// # Errors
/// Those of MPI; on other ranks than rank 0, also `Shutdown` when rank 0 dies.
pub(super) fn run<F: StatisticCommand>(
    statistic: &F,
    args: &RunArgs,
    arguments: &[OsString],
    interrupted: Option<&Interrupted<'_>>,
    join: Option<Join>,
) -> Result<JobEnd> {
    let started = Cell::new(Instant::now());
    let environment = Environment {
        now: &|| started.get().elapsed().as_millis() as u64,
        cpu: &|| cpu_time().as_micros() as u64,
        interrupted: &|| interrupted.is_some_and(|stopped| stopped()),
    };
    let out =
        args.out.as_deref().ok_or_else(|| Error::invalid("expected --out FILE, found none"))?;
    let leader = Leader { statistic, args, out, arguments, environment: &environment };
    let Some(launched) = Launched::of_environment() else {
        return Ok(leader.lead(&mut NoPeers).0);
    };
    let Some(join) = join else {
        launched.check_connected(1, WITHOUT_MPI)?;
        return Ok(leader.lead(&mut NoPeers).0);
    };
    let mut ranks = join()?;
    launched.check_connected(ranks.size(), WITH_MPI)?;
    // The time of the fold excludes the start of MPI, which takes a second to find fast networks.
    started.set(Instant::now());
    let ended = if ranks.rank() == 0 {
        let (end, silent) = leader.lead(&mut *ranks);
        abort_silent(&*ranks, end, &silent);
        Ok(end)
    } else {
        work_passes(statistic, args, &mut *ranks, &environment)
    };
    ranks.leave();
    ended
}

/// Folds the orders of rank 0, pass by pass.
fn work_passes<F: StatisticCommand>(
    statistic: &F,
    args: &RunArgs,
    wire: &mut dyn Wire,
    environment: &Environment<'_>,
) -> Result<JobEnd> {
    let (mut statistic, mut known) = (statistic.clone(), Vec::new());
    loop {
        let opened = pool(args.threads.map(usize::from)).and_then(|pool| statistic.open(pool));
        match work(opened, &known, wire, environment)? {
            PassEnd::End(end) => return Ok(end),
            PassEnd::Next(next) => known = next,
        }
        statistic = statistic.beginning_with(&known);
    }
}

/// What to do when several ranks are alone.
const WITH_MPI: &str = "start it with `srun --mpi=pmix`, or with the mpirun of the MPI that it was \
    built with; or share the rows through a folder with --spool";
const WITHOUT_MPI: &str = "this headwater-reduce was built without MPI, as every wheel is: share the rows \
    through a folder with --spool, which needs no MPI; or build it with MPI in a clone of headwater's \
    repository: `make setup`, or `cargo build --release --package headwater-mpi`";

/// Ends the ranks that have not left, by ending the job: MPI_Finalize and mpirun would wait for them.
fn abort_silent(ranks: &dyn Ranks, end: JobEnd, silent: &BTreeSet<u32>) {
    if silent.is_empty() {
        return;
    }
    let names: Vec<String> = silent.iter().map(u32::to_string).collect();
    let written = if end == JobEnd::Done { "the result is written; " } else { "" };
    eprintln!(
        "headwater-reduce: warning: {written}ranks that do not answer: {}; ending them with MPI_Abort",
        names.join(", ")
    );
    ranks.abort(match end {
        JobEnd::Done => 0,
        JobEnd::Failed(kind) => status_of(kind),
    });
}

/// Rank 0: assigns the orders, receives the portions, writes the result.
struct Leader<'a, F> {
    statistic: &'a F,
    args: &'a RunArgs,
    out: &'a Path,
    arguments: &'a [OsString],
    environment: &'a Environment<'a>,
}

impl<F: StatisticCommand> Leader<'_, F> {
    /// Folds and writes; returns how the job ended, and the ranks that have not left.
    fn lead(&self, wire: &mut dyn Wire) -> (JobEnd, BTreeSet<u32>) {
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
        let silent = shut_down(wire, lost, end, self.environment);
        (end, silent)
    }

    fn fold_and_write(&self, wire: &mut dyn Wire, lost: &mut BTreeSet<u32>) -> Result<()> {
        if self.args.audit > 0 && wire.size() < 2 {
            return Err(Error::invalid(
                "--audit folds blocks on two ranks and compares them: expected at least 2 ranks, \
                 found 1; run under mpirun with 2 or more ranks, or leave out --audit",
            ));
        }
        check_out(self.out, self.statistic.inputs(), F::KIND)?;
        let mut so_far = SoFar::default();
        let (mut statistic, mut known) = (self.statistic.clone(), Vec::new());
        loop {
            let plans = std::mem::take(&mut so_far.plans);
            let mut of_pass = PassWire::begin(wire, &plans, known, lost)?;
            let folded = self.fold(&statistic, &mut of_pass, lost, &mut so_far);
            so_far.plans = plans;
            let folded = folded?;
            match statistic.next(&folded.source, &folded.whole)? {
                None => return self.write(&statistic, wire.size(), so_far, folded),
                Some(next) => known = next,
            }
            so_far.plans.push(folded.job.plan().clone());
            statistic = statistic.beginning_with(&known);
        }
    }

    /// Folds one pass over the rows.
    fn fold(
        &self,
        statistic: &F,
        wire: &mut dyn Wire,
        lost: &mut BTreeSet<u32>,
        so_far: &mut SoFar,
    ) -> Result<Folded<F>> {
        let threads = pool(self.args.threads.map(usize::from))?;
        let thread_count = threads.current_num_threads();
        let (job, source) = statistic.open(threads)?;
        let mut reduction = Reduction::new(job.clone(), Arc::clone(source.statistic()))
            .of_files(source.opened_versions(), self.args.same_data);
        let checkpoints = self.args.checkpoints_of(statistic)?;
        let resumed = self.args.begin(checkpoints.as_ref(), statistic.pass(), &mut reduction)?;
        let bars = Bars::new(Some(self.environment.interrupted));
        so_far.compared_rows += reduction.verify_same_data(&source, &bars)?;
        drop(bars);

        let operations = statistic.chunk_operations(&source);
        let policy = self.policy(&job, &source, wire.size(), thread_count)?;
        let resumed_rows = reduction.covered_rows();
        let mut coordinator = Coordinator::new(reduction, &policy)?;
        for &rank in &*lost {
            coordinator.lose((self.environment.now)(), rank);
        }
        let watch = Watch::new(
            self.args.checkpoint_every,
            (policy.blocks.chunks_each(), wire.size()),
            Bars::of_operations(operations / job.chunk_rows() as f64),
        );
        let pass = statistic.pass();
        let kept = checkpoints.as_ref();
        let folded = self.coordinate(&mut coordinator, &source, wire, (pass, watch, kept));
        lost.extend(coordinator.lost());
        folded?;

        so_far.checkpoints.extend(checkpoints);
        so_far.resumed_nodes += resumed.nodes;
        so_far.audited_blocks += coordinator.audited_count();
        so_far.lost.clone_from(lost);
        so_far.late.extend(coordinator.passed_over().map(|(rank, _)| rank));
        let elsewhere = coordinator.cpu_microseconds_elsewhere() as f64 / 1e6;
        so_far.cpu_elsewhere = so_far.cpu_elsewhere.max(elsewhere);
        let folded_chunks = (job.rows() - resumed_rows) as f64 / job.chunk_rows() as f64;
        so_far.operations += operations * folded_chunks;
        let cursors = coordinator.cursors().map(cursor_json).collect();
        let mut reduction = coordinator.into_reduction();
        let bars = Bars::new(Some(self.environment.interrupted));
        so_far.compared_rows += reduction.verify_same_data(&source, &bars)?;
        drop(bars);
        let rows_digest = reduction.rows_digest();
        let earlier = std::mem::replace(&mut so_far.rows_digest, rows_digest);
        check_same_rows(pass, (earlier, rows_digest), "--checkpoint-dir or none")?;
        Ok(Folded { whole: reduction.finish()?, job, source, thread_count, cursors })
    }

    /// Writes the result of the last pass.
    fn write(&self, statistic: &F, ranks: u32, so_far: SoFar, folded: Folded<F>) -> Result<()> {
        let Folded { whole, job, source, thread_count, cursors } = folded;
        let written = statistic.write(self.out, &source, &whole);
        let written = written.map_err(|error| self.with_remedy(error))?;
        let seconds = (self.environment.now)() as f64 / 1e3;
        let mut more = serde_json::Map::new();
        if self.args.audit > 0 {
            more.insert("audited_blocks".to_owned(), so_far.audited_blocks.into());
        }
        more.insert("lost_ranks".to_owned(), so_far.lost.into_iter().collect());
        more.insert("late_ranks".to_owned(), so_far.late.into_iter().collect());
        if self.args.same_data {
            more.insert("compared_rows".to_owned(), so_far.compared_rows.into());
        }
        more.extend(written.more);
        let has_folded = so_far.operations > 0.0;
        let summary = RunSummary {
            digest: written.digest,
            rows_digest: so_far.rows_digest,
            rows: job.rows(),
            columns: written.columns,
            ranks,
            threads: thread_count,
            seconds,
            cpu_seconds: cpu_time().as_secs_f64() + so_far.cpu_elsewhere,
            gflops: has_folded.then(|| so_far.operations / seconds.max(1e-3) / 1e9),
            resumed_nodes: so_far.resumed_nodes,
            out: result_file(self.out, written.result.as_ref()),
            more,
            result: written.result,
            cursors,
        };
        report(&summary, &job, self.arguments, self.out).map_err(|error| self.with_remedy(error))
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
        (pass, mut watch, checkpoints): (u32, Watch<'_>, Option<&Checkpoints>),
    ) -> Result<()> {
        watch.begin(coordinator.reduction());
        let environment = self.environment;
        let (folded, saved) = thread::scope(|scope| {
            let mut writer = checkpoints.map(|kept| CheckpointWriter::new(kept, scope));
            let folded = coordinate(coordinator, source, wire, environment, &mut |coordinator| {
                watch.update(coordinator, writer.as_mut())?;
                if (environment.interrupted)() {
                    Err(Error::interrupted("interrupted"))
                } else {
                    Ok(())
                }
            });
            // Also when the fold is complete: if writing the result fails, --resume needs the checkpoint.
            let writer = writer.as_mut().filter(|_| !coordinator.is_doubtful());
            (folded, writer.map(|writer| watch.save(coordinator.reduction(), writer)))
        });
        let reduction = coordinator.reduction();
        drop(watch);
        let Err(error) = folded else { return Ok(()) };
        let (done, all) = (count(reduction.covered_count()), count(reduction.job().chunk_count()));
        let of_pass = if F::PASSES > 1 { format!(" of pass {pass}") } else { String::new() };
        Err(match (error.kind(), saved, &self.args.checkpoint_dir) {
            (ErrorKind::Interrupted, Some(Err(unwritten)), _) => unwritten,
            (ErrorKind::Interrupted, Some(Ok(())), Some(folder)) => Error::interrupted(format!(
                "{error} after {done} of {all} chunks{of_pass}, which are kept in {}; continue with \
                 --resume",
                folder.display()
            )),
            (ErrorKind::Interrupted, ..) => Error::interrupted(format!(
                "{error} after {done} of {all} chunks{of_pass}, which are lost; set --checkpoint-dir to \
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
        let is_full = error.is_of_full_disk();
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
        || Launched::of_environment().is_none()
        || io::stderr().is_terminal()
    {
        return;
    }
    if let Ok(mut terminal) = OpenOptions::new().write(true).open("/dev/tty") {
        // An error while printing cannot be printed either.
        let _ = writeln!(terminal, "headwater-reduce: {error}");
    }
}

/// What the passes so far have found and taken.
#[derive(Default)]
struct SoFar {
    /// Their checkpoints, which stay locked to the end.
    checkpoints: Vec<Checkpoints>,
    plans: Vec<Plan>,
    /// The digest of the rows of the last pass; none before the first.
    rows_digest: Option<crate::Digest>,
    lost: BTreeSet<u32>,
    late: BTreeSet<u32>,
    audited_blocks: usize,
    compared_rows: u64,
    resumed_nodes: usize,
    operations: f64,
    /// The CPU time of the other ranks.
    cpu_elsewhere: f64,
}

/// A complete pass over the rows.
struct Folded<F: StatisticCommand> {
    whole: PartialOf<F>,
    job: Job,
    source: F::Source,
    thread_count: usize,
    cursors: Vec<serde_json::Value>,
}

impl RunArgs {
    /// Opens the folder for the checkpoints of a pass: --checkpoint-dir itself, or a folder in it for each of
    /// several passes.
    fn checkpoints_of<F: StatisticCommand>(&self, statistic: &F) -> Result<Option<Checkpoints>> {
        let Some(folder) = &self.checkpoint_dir else { return Ok(None) };
        if F::PASSES == 1 {
            return Checkpoints::new(folder).map(Some);
        }
        let of_pass = |pass: u32| folder.join(format!("pass-{pass}"));
        if !self.resume && statistic.pass() == 1 {
            // So that a later pass finds none after hours of the passes before.
            for later in (2..=F::PASSES).map(of_pass) {
                if is_folder(&later)? {
                    Checkpoints::on(Box::new(Disk), &later).check_empty()?;
                }
            }
        }
        Checkpoints::new(&of_pass(statistic.pass())).map(Some)
    }

    /// Reads the newest checkpoint of a pass into `reduction` if --resume is set.
    fn begin<S: Statistic>(
        &self,
        checkpoints: Option<&Checkpoints>,
        pass: u32,
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
        if resumed.nodes == 0 && pass == 1 {
            eprintln!("headwater-reduce: no checkpoint yet; starting from the first row");
        }
        Ok(resumed)
    }
}
