//! `headwater verify`: checks every byte of a store against its digest.

use std::path::PathBuf;

use clap::Args;

use super::prepare::Hooks;
use crate::cli::output::Output;
use crate::cli::progress::Bars;
use crate::error::Result;
use crate::progress::Progress;
use crate::store::Store;
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
    let store = Store::open(&args.store)?;
    let bars = Bars::of_bytes(hooks.interrupted);
    bars.begin("verifying", Some(store.file_bytes()));
    bars.advance(0)?;
    store.verify(&|read| bars.advance(read))?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&serde_json::json!({
            "root": store.root(),
            "bytes": store.file_bytes(),
            "files": store.metadata().files.len() + 1,
        }));
    }
    output.line(&format!(
        "{}: OK, {} files, {}, root {}",
        args.store.display(),
        store.metadata().files.len() + 1,
        bytes(store.file_bytes()),
        store.root()
    ))
}
