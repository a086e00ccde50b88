//! `headwater export`: writes the events of a store as ArrayRecord files.

use std::path::PathBuf;

use clap::Args;

use super::prepare::Hooks;
use crate::error::Result;

/// Writes the events of a store as ArrayRecord files, for other pipelines
///
/// A file for each split that has events: train.arrayrecord, val.arrayrecord and
/// test.arrayrecord. A record is a row of the store: a stream of Arrow with the
/// columns src_id, measurements, n_measurements, time_span_seconds,
/// first_timestamp and last_timestamp. `measurements` is a stream, too, with the
/// columns event_time, src_addr, dst_addr, ip_version and rtt.
///
/// The files are also a source, so the events can come back:
///   headwater export pings.db --out pings
///   headwater prepare 'pings/*.arrayrecord' --schema events.toml --out again.db
///
/// Only for events of the codec latency-v1, and in a build with the feature
/// arrayrecord.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ExportArgs {
    /// The store's folder.
    store: PathBuf,
    /// Folder to write the files to; it must not exist.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

#[cfg(not(feature = "arrayrecord"))]
pub(super) fn run(args: &ExportArgs, _hooks: &Hooks<'_>) -> Result<()> {
    Err(crate::prepare::without_arrayrecord(&args.out))
}

#[cfg(feature = "arrayrecord")]
pub(super) fn run(args: &ExportArgs, hooks: &Hooks<'_>) -> Result<()> {
    use crate::cli::output::Output;
    use crate::cli::progress::Bars;
    use crate::events::EventStore;
    use crate::prepare::export_events;
    use crate::progress::Progress;
    use crate::view::words::{bytes, plural};

    let store = EventStore::open(&args.store)?;
    let bars = Bars::new(hooks.interrupted);
    bars.advance(0)?;
    let report = export_events(&store, &args.out, &bars)?;
    drop(bars);
    let mut output = Output::new();
    if args.json {
        return output.json(&report);
    }
    for file in &report.files {
        output.line(&format!(
            "{}: {} in {}; {}",
            args.out.join(&file.name).display(),
            plural(file.event_count, "event"),
            plural(file.record_count, "record"),
            bytes(file.bytes)
        ))?;
    }
    Ok(())
}
