//! A store that a new one replaces.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use crate::container::is_container;
use crate::durable::try_lock;
use crate::error::{Error, Result};
use crate::events::ROW_FILE;
use crate::files::{found_at, try_open_folder};
use crate::store::{GRAPH_FILE, METADATA_FILE};

/// A store that a new one replaces; locked, so that no other preparation takes its folder for the
/// rest of an interrupted one after the two have exchanged their names.
pub(super) struct Replaced {
    pub(super) locked: File,
}

impl Replaced {
    /// Finds and locks the store at `out`; `None` if nothing is there.
    ///
    /// # Errors
    /// `InvalidArgument` when `out` is not a store, or has other files in it.
    pub(super) fn find(out: &Path) -> Result<Option<Self>> {
        let metadata = match fs::symlink_metadata(out) {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io(out, "examining", e)),
        };
        if !metadata.is_dir() {
            return Err(refused(out, "a link or a file"));
        }
        check_is_store(out)?;
        let locked = try_open_folder(out).map_err(|e| Error::io(out, "opening", e))?;
        match try_lock(&locked).map_err(|e| Error::io(out, "locking", e))? {
            true => Ok(Some(Self { locked })),
            false => Err(Error::invalid(format!(
                "another process is replacing {}; wait until it ends, or choose another folder",
                out.display()
            ))),
        }
    }
}

/// Whether a folder is that of a store, also of a damaged one or one of another version, which is a
/// reason to prepare it again: the first bytes of one file tell.
///
/// # Errors
/// `Io` when the disk cannot tell.
pub(super) fn is_store(folder: &Path) -> Result<bool> {
    if !found_at(&folder.join(METADATA_FILE))?.is_some_and(|found| found.is_file()) {
        return Ok(false);
    }
    for name in [GRAPH_FILE, ROW_FILE] {
        let path = folder.join(name);
        match is_container(&path) {
            Ok(false) => {}
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {}
            found => return found.map_err(|e| Error::io(&path, "opening", e)),
        }
    }
    Ok(false)
}

/// Checks that a folder is a store, also a damaged one or one of another version, and nothing else.
fn check_is_store(out: &Path) -> Result<()> {
    let fail = |e| Error::io(out, "listing", e);
    if !is_store(out)? {
        return Err(refused(out, "a folder that is no store"));
    }
    for entry in fs::read_dir(out).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type().map_err(fail)?.is_dir();
        match (is_folder, name.as_str()) {
            (true, "tables" | "tasks") => {
                for inner in fs::read_dir(entry.path()).map_err(fail)? {
                    let inner = inner.map_err(fail)?.file_name().to_string_lossy().into_owned();
                    if !is_bin(&inner) {
                        return Err(refused(out, &format!("{name}/{inner} in it")));
                    }
                }
            }
            (false, METADATA_FILE) => {}
            (false, name) if is_bin(name) => {}
            (_, name) => return Err(refused(out, &format!("{name} in it"))),
        }
    }
    Ok(())
}

fn is_bin(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "bin")
}

fn refused(out: &Path, found: &str) -> Error {
    Error::invalid(format!(
        "{}: expected a store and nothing else to replace, found {found}; move it away, or choose \
         another folder",
        out.display()
    ))
}
