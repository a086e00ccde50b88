//! The errors of SQLite, with their file.

use std::path::Path;
use std::time::Duration;

use rusqlite::ErrorCode;

use crate::error::Error;

/// How long a lock of a process that writes is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn fault(path: &Path, error: &rusqlite::Error) -> Error {
    let words = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!(
            "expected to read it within {} seconds, found it locked by another process that writes; \
             wait until that has committed, or end it, and run this again ({error})",
            PATIENCE.as_secs()
        ),
        // What SQLite says of it may have found no memory, either.
        Some(ErrorCode::OutOfMemory) => format!("it cannot allocate memory ({error})"),
        _ => error.to_string(),
    };
    Error::data(format!("SQLite file {}: {words}", path.display()))
}
