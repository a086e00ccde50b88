//! `headwater warm`: reads a store into memory.

use std::path::PathBuf;

use clap::Args;

use super::prepare::Hooks;
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::error::Result;
use crate::events::EventStore;
use crate::progress::Progress;
use crate::store::{Kind, Store};
use crate::view::words::bytes;

/// Reads a store into memory, so that the first batches wait for no disk
///
/// The files are read in sequence, as fast as the disk can. The system keeps them
/// for every process of this machine until it needs the memory: run this before a
/// training, in the same container or job.
///
///   headwater warm shop.db && confluence train
///
/// A store that is larger than memory is refused; of such a store only the blocks
/// that are needed are read, ahead of their use.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(super) struct WarmArgs {
    /// The store's folder.
    store: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &WarmArgs, hooks: &Hooks<'_>) -> Result<()> {
    let (root, length) = match Kind::of(&args.store)? {
        Kind::Tables => {
            let store = Store::open(&args.store)?;
            (store.root(), warm(hooks, store.file_bytes(), |progress| store.warm(progress))?)
        }
        Kind::Events => {
            let store = EventStore::open(&args.store)?;
            (store.root(), warm(hooks, store.file_bytes(), |progress| store.warm(progress))?)
        }
    };
    let mut output = Output::new();
    if args.json {
        return output.json(&serde_json::json!({ "root": root, "bytes": length }));
    }
    output.line(&format!("{}: {} in memory", args.store.display(), bytes(length)))
}

/// Warms `length` bytes, with a progress bar.
fn warm(
    hooks: &Hooks<'_>,
    length: u64,
    read: impl FnOnce(&dyn Fn(u64) -> Result<()>) -> Result<u64>,
) -> Result<u64> {
    let bars = Bars::of_bytes(hooks.interrupted);
    bars.begin("reading", Some(length));
    bars.advance(0)?;
    read(&|read| bars.advance(read))
}
