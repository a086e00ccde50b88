//! `headwater verify`: checks every byte of a store against its digest.

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

/// Reads every byte of a store and checks it against its digest.
#[derive(Args)]
pub(super) struct VerifyArgs {
    /// The store's folder.
    store: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &VerifyArgs, hooks: &Hooks<'_>) -> Result<()> {
    let (root, length, listed) = match Kind::of(&args.store)? {
        Kind::Tables => {
            let store = Store::open(&args.store)?;
            verify(hooks, store.file_bytes(), |progress| store.verify(progress))?;
            (store.root(), store.file_bytes(), store.metadata().files.len())
        }
        Kind::Events => {
            let store = EventStore::open(&args.store)?;
            verify(hooks, store.file_bytes(), |progress| store.verify(progress))?;
            (store.root(), store.file_bytes(), store.metadata().files.len())
        }
    };
    let files = listed + 1;
    let mut output = Output::new();
    if args.json {
        return output.json(&serde_json::json!({ "root": root, "bytes": length, "files": files }));
    }
    output.line(&format!(
        "{}: OK, {files} files, {}, root {root}",
        args.store.display(),
        bytes(length)
    ))
}

/// Verifies `length` bytes, with a progress bar.
fn verify(
    hooks: &Hooks<'_>,
    length: u64,
    check: impl FnOnce(&dyn Fn(u64) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let bars = Bars::of_bytes(hooks.interrupted);
    bars.begin("verifying", Some(length));
    bars.advance(0)?;
    check(&|read| bars.advance(read))
}
