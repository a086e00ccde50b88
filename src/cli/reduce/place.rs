//! Where a result may go: to a folder that is there, and over nothing that it was made of.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Refuses a place for a result, and for the .json beside it, before anything is folded.
///
/// # Errors
/// `InvalidArgument` when the folder is not there, when either is one of the `inputs`, or there as
/// anything but a file.
pub(super) fn check_out<'a>(
    out: &Path,
    inputs: impl Iterator<Item = &'a Path> + Clone,
) -> Result<()> {
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(Error::invalid(format!(
            "--out {}: there is no folder {}; make it first",
            out.display(),
            folder.display()
        )));
    }
    for path in [out, &out.with_extension("json")] {
        let Ok(there) = fs::symlink_metadata(path) else { continue };
        if !there.is_file() {
            return Err(Error::invalid(format!(
                "--out {}: expected a file, or nothing yet, as {}, found something else; choose \
                 another name",
                out.display(),
                path.display()
            )));
        }
        let is_same = |input: &Path| {
            fs::canonicalize(input)
                .ok()
                .zip(fs::canonicalize(path).ok())
                .is_some_and(|(a, b)| a == b)
        };
        if inputs.clone().any(is_same) {
            return Err(Error::invalid(format!(
                "--out {}: the result would be written over {}, which it is made of; choose another \
                 name",
                out.display(),
                path.display()
            )));
        }
    }
    Ok(())
}
