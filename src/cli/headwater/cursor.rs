//! `headwater cursor`: prints the position and the plan of a cursor.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::output::Output;
use crate::error::{Error, Result};
use crate::files::found_at;
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
    check_is_file(&args.file)?;
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

/// Rejects a path without a file, and says what file is wanted.
fn check_is_file(path: &Path) -> Result<()> {
    let found = match found_at(path)? {
        None => "nothing",
        Some(found) if found.is_dir() => "a folder",
        Some(_) => return Ok(()),
    };
    Err(Error::invalid(format!(
        "expected a cursor at {}, found {found}; name a file that sampler.save_cursor wrote",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_cursor_says_what_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let nothing = folder.path().join("nope");
        for (path, found) in [(folder.path(), "a folder"), (&nothing, "nothing")] {
            let error = run(&CursorArgs { file: path.to_owned(), json: false }).unwrap_err();
            let place = path.display();
            assert_eq!(
                error.to_string(),
                format!(
                    "expected a cursor at {place}, found {found}; name a file that \
                     sampler.save_cursor wrote"
                )
            );
        }
    }
}
