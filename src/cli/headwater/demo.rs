//! `headwater demo-data`: writes a deterministic shop as CSV files.

use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::error::{Error, Result};
use crate::prepare::demo::demo_data;
use crate::view::words::plural;

/// Writes a deterministic example: a relational shop with a planted signal, as CSV files.
#[derive(Args)]
pub(super) struct DemoDataArgs {
    /// Folder to write the files to; it must be new or empty.
    folder: PathBuf,
}

pub(super) fn run(args: &DemoDataArgs) -> Result<()> {
    let is_empty = match std::fs::read_dir(&args.folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(e) if e.kind() == ErrorKind::NotFound => true,
        Err(e) => return Err(Error::io(&args.folder, "listing", e)),
    };
    if !is_empty {
        return Err(Error::invalid(format!(
            "expected a new or an empty folder, found files in {}; choose another folder",
            args.folder.display()
        )));
    }
    let data = demo_data(&args.folder).inspect_err(|_| {
        // Half a shop would have the next run refused. That error matters less than the first.
        let _ = std::fs::remove_dir_all(&args.folder);
    })?;
    let mut output = Output::new();
    let folder = args.folder.display();
    output.line(&format!(
        "{folder}: {} in {}, with a schema; next\n  headwater prepare {folder} --schema \
         {folder}/schema.toml --out demo.db",
        plural(data.tables.iter().map(|(_, rows)| rows).sum(), "row"),
        plural(data.tables.len() as u64, "table"),
    ))
}
