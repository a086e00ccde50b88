//! `headwater stage`: copies a store to a node's own disk.

use std::path::PathBuf;

use clap::Args;

use super::prepare::Hooks;
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::error::Result;
use crate::prepare::stage;
use crate::progress::Progress;
use crate::view::words::bytes;

/// Copies a store to the disk of this machine, once for all its processes
///
/// Every block of the copy is checked against its digest. The copy gets its name
/// when it is complete: a command that is killed leaves nothing at COPY, and the
/// next one begins anew.
///
/// Processes that start it at one time with the same arguments make one copy: the
/// first copies, the others wait for it. So it may stand before a training, in the
/// same line, for every rank; or once for each node, before mpirun:
///
///   headwater stage /shared/shop.db /local/shop.db && confluence train
///   srun --ntasks-per-node=1 headwater stage /shared/shop.db /local/shop.db
///
/// If COPY is there, it is checked and kept: its root must be that of STORE, and
/// each file must have its length, header and section table. Blocks are checked
/// when they are first read; `headwater verify COPY` reads all of them. Anything
/// else at COPY is an error, and stays as it is.
///
/// The copy takes as much room as the store. Name a disk, not /dev/shm: what lies
/// there takes memory.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(super) struct StageArgs {
    /// The store's folder.
    store: PathBuf,
    /// The folder of the copy.
    copy: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StageArgs, hooks: &Hooks<'_>) -> Result<()> {
    let bars = Bars::of_bytes(hooks.interrupted);
    bars.advance(0)?;
    let report = stage(&args.store, &args.copy, &bars)?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&report);
    }
    let (done, checked) = match report.copied {
        true => ("copied", "every block checked"),
        false => ("there already", "lengths, headers and section tables checked"),
    };
    output.line(&format!(
        "{}: {done}, {} files, {}, {checked}, root {}",
        args.copy.display(),
        report.files,
        bytes(report.bytes),
        report.root
    ))
}
