//! `headwater cursor`: prints the position and the plan of a cursor.

use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::error::Result;
use crate::plan::Cursor;
use crate::view::words::count;

/// Shows a cursor: its position, and the plan that it belongs to.
#[derive(Args)]
pub(super) struct CursorArgs {
    /// The cursor's file.
    file: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CursorArgs) -> Result<()> {
    let cursor = Cursor::read(&args.file)?;
    let mut output = Output::new();
    let position = cursor.position().iter().map(|(name, value)| (name.to_owned(), value));
    if args.json {
        let position: serde_json::Map<_, _> = position.map(|(n, v)| (n, v.into())).collect();
        let settings: serde_json::Map<_, _> =
            cursor.plan().iter().map(|(n, v)| (n.to_owned(), v.to_string().into())).collect();
        return output.json(&serde_json::json!({
            "kind": cursor.kind().name(),
            "fingerprint": cursor.plan().fingerprint().to_string(),
            "position": position,
            "plan": settings,
        }));
    }
    output.line(&format!(
        "{} cursor of plan {}",
        cursor.kind().name(),
        cursor.plan().fingerprint()
    ))?;
    output.line("position")?;
    output.columns(position.map(|(name, value)| [name, count(value)]))?;
    output.line("plan")?;
    output.columns(cursor.plan().iter().map(|(n, v)| [n.to_owned(), v.to_string()]))
}
