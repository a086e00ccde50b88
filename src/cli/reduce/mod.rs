//! The `headwater-reduce` command: statistics over matrices on disk, folded by one or many processes.

mod args;
mod columns;
mod cross;
mod gram;
mod place;
mod quantiles;
mod run;
mod spool;
mod statistics;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use super::manual::{CompletionsArgs, ManArgs, version};
use super::{Interrupted, exit_status, print_usage, status_of};
use crate::error::{Error, Result};
use crate::launcher::Launched;
use crate::matrix::Manifest;
use crate::reducer::wire::JobEnd;
use args::FilesArgs;
use place::{check_file, json_of};
pub use run::Join;
use run::run;
use spool::write_spool;
use statistics::{Statistics, with_invocation};

const AFTER_HELP: &str = "\
The Gram matrix X^T X of a matrix, with the same bits for any number of ranks
and threads, on any processor, also after interruptions:
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck
  headwater-reduce gram --input X.npy --out gram.npy --checkpoint-dir ck \\
    --resume
  mpirun -n 64 headwater-reduce gram --input X.npy --out gram.npy \\
    --checkpoint-dir ck
  headwater-reduce moments --input T.parquet --select price tax \\
    --out moments.json
Without MPI, as three kinds of jobs over a folder that all machines see:
  headwater-reduce gram --input X.npy --spool S
  headwater-reduce work --spool S    (in as many processes as you like)
  headwater-reduce fold --spool S --out gram.npy

Under mpirun the command needs a build with MPI, which `make setup` makes in a
clone of headwater's repository. The one of a wheel has no MPI.

The last line of standard output is one JSON object with the digest of the
result's bits, and the file that has the result. Scripts should go by this line:
mpirun may report a failure after the result is written, and 0 when all ranks
were killed.
For work it has the number of blocks and no digest; --spool prints the commands
to run next; manifest prints nothing.

Open MPI's mpirun refuses more ranks than cores without --oversubscribe, and
root without OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1.

Files are mapped into memory: truncating a file while it is folded ends the
command with SIGBUS. Write new files beside the old ones, and rename them.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 damaged or foreign file,
130 interrupted.";

/// The time for which a rank with wrong arguments waits for rank 0 to report them; afterwards it reports
/// them itself, because the arguments of rank 0 are right.
const RANK_0_REPORT_MAX: Duration = Duration::from_secs(10);

const WRONG_USAGE: u8 = 2;

/// Folds statistics over the rows of matrices, with the same bits every time.
#[derive(Parser)]
#[command(name = "headwater-reduce", version = version(), after_help = AFTER_HELP, max_term_width = 100)]
struct ReduceCommand {
    #[command(subcommand)]
    verb: Verb,
}

/// Returns the declarations of the command's arguments.
#[cfg(test)]
pub(super) fn command() -> clap::Command {
    <ReduceCommand as clap::CommandFactory>::command()
}

#[derive(Subcommand)]
enum Verb {
    #[command(flatten)]
    Statistic(Box<Statistics>),
    Manifest(ManifestArgs),
    Work(spool::WorkArgs),
    Fold(spool::FoldArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Writes a manifest: the list of all files of a matrix, for ranks that each see some of them
///
/// If no machine sees all files, make one manifest on each machine, copy them to
/// one, and join them:
///   headwater-reduce manifest --input shard-0.npy --out shard-0.json
///   headwater-reduce manifest --input shard-0.json shard-1.json --out all.json
/// Then fold with --input all.json on every rank. The rows of each file should
/// fill whole chunks.
#[derive(Args)]
#[command(verbatim_doc_comment)]
struct ManifestArgs {
    #[command(flatten)]
    files: FilesArgs,
    /// The manifest to write: a name that ends in .json.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl ManifestArgs {
    fn run(&self) -> Result<()> {
        check_file(&self.out, &self.out, self.files.inputs())?;
        if json_of(&self.out) != self.out {
            return Err(Error::invalid(format!(
                "--out {}: expected a name that ends in .json, because --input knows a \
                 manifest by it",
                self.out.display()
            )));
        }
        Manifest::write(&self.out, &self.files.in_order(), &self.files.format())
    }
}

/// Runs the command with `arguments`, the first of which is the name of the command; returns the exit
/// status. `join` connects the ranks that a launcher started; without it several are refused.
pub fn main(
    arguments: impl IntoIterator<Item = OsString>,
    interrupted: Option<&Interrupted<'_>>,
    join: Option<Join>,
) -> u8 {
    // The first call installs the signal handlers.
    let _ = interrupted.is_some_and(|stopped| stopped());
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = match ReduceCommand::try_parse_from(&arguments) {
        Ok(command) => command,
        Err(error) => return print_usage_once(&error, interrupted),
    };
    let ended = match command.verb {
        Verb::Statistic(statistics) => start(*statistics, &arguments, interrupted, join),
        // Runs on every rank: each machine lists its own files.
        Verb::Manifest(manifest) => manifest.run().map(|()| JobEnd::Done),
        Verb::Work(work) => work.run(interrupted).map(|()| JobEnd::Done),
        Verb::Fold(fold) => on_rank_0(|| fold.run(&arguments, interrupted)),
        Verb::Completions(args) => on_rank_0(|| args.run::<ReduceCommand>()),
        Verb::Man(args) => on_rank_0(|| args.run::<ReduceCommand>()),
    };
    match ended {
        Ok(JobEnd::Done) => 0,
        // Rank 0 has reported the error.
        Ok(JobEnd::Failed(kind)) => status_of(kind),
        Err(error) => exit_status("headwater-reduce", Err(error)),
    }
}

/// Folds a statistic, or writes its job to a spool.
fn start(
    statistics: Statistics,
    arguments: &[OsString],
    interrupted: Option<&Interrupted<'_>>,
    join: Option<Join>,
) -> Result<JobEnd> {
    let spool = with_invocation!(&statistics, invocation => invocation.run.spool.clone());
    match spool {
        Some(folder) => on_rank_0(|| write_spool(&folder, statistics)),
        None => with_invocation!(&statistics, invocation => {
            run(&invocation.statistic, &invocation.run, arguments, interrupted, join)
        }),
    }
}

/// Runs `work` on rank 0 only.
fn on_rank_0(work: impl FnOnce() -> Result<()>) -> Result<JobEnd> {
    match Launched::of_environment().map(Launched::rank) {
        None | Some(0) => work()?,
        Some(rank) => {
            eprintln!(
                "headwater-reduce: rank {rank} has nothing to do, because rank 0 alone does this command"
            );
        }
    }
    Ok(JobEnd::Done)
}

/// Prints the error in the arguments once for all ranks that have the same arguments; returns the exit
/// status.
fn print_usage_once(error: &clap::Error, interrupted: Option<&Interrupted<'_>>) -> u8 {
    if Launched::of_environment().is_some_and(|launched| launched.rank() > 0) {
        if error.exit_code() == 0 {
            return 0;
        }
        // mpirun kills the job when the first rank exits, so rank 0 must print and exit first.
        let waiting = Instant::now();
        while waiting.elapsed() < RANK_0_REPORT_MAX {
            if interrupted.is_some_and(|stopped| stopped()) {
                return WRONG_USAGE;
            }
            sleep(Duration::from_millis(20));
        }
    }
    print_usage(error)
}
