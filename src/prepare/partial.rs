//! The folder in which a store is written before it gets its name.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::replaced::{Replaced, is_store};
use crate::durable::{Disk, Storage, commit_folder, replace_folder, try_lock, wait_for_lock};
use crate::error::{Error, Result};
use crate::files::try_open_folder;
use crate::progress::Progress;
use crate::store::METADATA_FILE;

/// Says of an error of a full disk that nothing was written at `out`.
pub(super) fn nothing_written(error: Error, out: &Path) -> Error {
    match error.is_of_full_disk() {
        true => error.followed_by(&format!(
            "; nothing was written at {}: free some space there, or name a folder on another disk",
            out.display()
        )),
        false => error,
    }
}

/// The folder in which a store is written; dropping it without `commit` removes it.
pub(super) struct Partial {
    pub(super) path: PathBuf,
    /// The open folder, locked for the whole preparation: a lock file beside the folder would be
    /// released before the folder gets its name.
    _locked: File,
    /// The store that gives its place to this one.
    replaced: Option<Replaced>,
}

impl Partial {
    /// Creates and locks the folder for the store at `out`, with `folders` and `staging` in it.
    pub(super) fn create(out: &Path, replaced: Option<Replaced>, folders: &[&str]) -> Result<Self> {
        let path = partial_path(out)?;
        fs::create_dir_all(&path).map_err(io("creating", &path))?;
        let locked = try_open_folder(&path).map_err(io("opening", &path))?;
        if !try_lock(&locked).map_err(io("locking", &path))? {
            return Err(in_use(&path));
        }
        // The previous holder of the lock may have given the folder its name.
        let is_at_path = is_still_at(&locked, &path).map_err(io("examining", &path))?;
        if replaced.is_none() && fs::symlink_metadata(out).is_ok() {
            if is_at_path {
                // Empty if it was made above. No other folder is removed.
                let _ = fs::remove_dir(&path);
            }
            return Err(exists(out));
        }
        if !is_at_path {
            return Err(in_use(&path));
        }
        Self::in_folder(path, locked, out, replaced, folders)
    }

    /// [`Partial::create`] without `folders`, when no other process writes the store at `out`; `None` when
    /// another one has written it.
    ///
    /// A process that was killed gives its turn to the next. One that failed does not, because the next
    /// would fail as it did.
    pub(super) fn create_in_turn(out: &Path, progress: &dyn Progress) -> Result<Option<Self>> {
        let path = partial_path(out)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder).map_err(io("creating", folder))?;
        let is_new = match fs::create_dir(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            created => created.map(|()| true).map_err(io("creating", &path))?,
        };
        let ended = || match fs::symlink_metadata(out).is_ok() {
            true => Ok(None),
            false => Err(Error::invalid(format!(
                "another process was writing {} and failed; see its message, and run this again",
                out.display()
            ))),
        };
        let locked = match try_open_folder(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return ended(),
            opened => opened.map_err(io("opening", &path))?,
        };
        let is_waiting = Cell::new(false);
        let wait = || {
            if !is_waiting.replace(true) {
                progress.begin("waiting for another process", None);
            }
            progress.advance(0)
        };
        if !wait_for_lock(&locked, &path, &wait)? && !is_new {
            return Err(Error::invalid(format!(
                "{} is there, and its file system has no locks that tell whether another process writes \
                 it; wait until it is gone, or remove it if no process does",
                path.display()
            )));
        }
        if !is_still_at(&locked, &path).map_err(io("examining", &path))? {
            return ended();
        }
        if fs::symlink_metadata(out).is_ok() {
            // Empty if it was made above. No other folder is removed.
            let _ = fs::remove_dir(&path);
            return Ok(None);
        }
        Self::in_folder(path, locked, out, None, &[]).map(Some)
    }

    /// Makes `folders` and `staging` in the folder `path`, which is locked, in place of the files of an
    /// interrupted preparation.
    fn in_folder(
        path: PathBuf,
        locked: File,
        out: &Path,
        replaced: Option<Replaced>,
        folders: &[&str],
    ) -> Result<Self> {
        let listed = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let left = listed.map_err(io("listing", &path))?;
        // Removes the files of an interrupted preparation, but no other files.
        if let Some(foreign) = left.iter().find(|entry| !is_ours(entry)) {
            return Err(Error::invalid(format!(
                "{} contains {:?}, which is not a file of an interrupted preparation; move it away",
                path.display(),
                foreign.file_name().to_string_lossy()
            )));
        }
        let partial = Self { path, _locked: locked, replaced };
        for entry in left {
            let entry = entry.path();
            let is_folder = entry.is_dir() && !entry.is_symlink();
            let removed =
                if is_folder { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) };
            removed.map_err(io("removing", &entry))?;
        }
        for folder in folders.iter().chain(&["staging"]) {
            let folder = partial.path.join(folder);
            fs::create_dir(&folder).map_err(io("creating", &folder))?;
        }
        if partial.replaced.is_some() {
            check_exchange(&partial.path, out)?;
        }
        Ok(partial)
    }

    /// Makes the store durable and gives it its name.
    pub(super) fn commit(self, out: &Path) -> Result<()> {
        let staging = self.path.join("staging");
        fs::remove_dir_all(&staging).map_err(|e| Error::io(&staging, "removing", e))?;
        let Some(replaced) = &self.replaced else { return commit_folder(&Disk, &self.path, out) };
        if !is_still_at(&replaced.locked, out).map_err(|e| Error::io(out, "examining", e))? {
            return Err(Error::invalid(format!(
                "{} was moved or removed during the preparation; prepare it again",
                out.display()
            )));
        }
        replace_folder(&Disk, &self.path, out)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After a commit there is nothing to remove, or the replaced store; after an error that error
        // matters more.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns the path of the folder in which the store at `out` is written.
fn partial_path(out: &Path) -> Result<PathBuf> {
    refuse_within_store(out)?;
    let mut name = out.file_name().map(ToOwned::to_owned).ok_or_else(|| {
        Error::invalid(format!("expected the path of a folder to create, found {}", out.display()))
    })?;
    name.push(".partial");
    let path = out.with_file_name(name);
    if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()) {
        return Err(Error::invalid(format!(
            "expected no file at {}, because the store is written there first; move the file away",
            path.display()
        )));
    }
    Ok(path)
}

/// Returns the conversion of an error of the operating system, with the action and the path.
fn io<'a>(action: &'a str, path: &'a Path) -> impl Fn(io::Error) -> Error + use<'a> {
    move |e| Error::io(path, action, e)
}

/// Whether a preparation, an export or a copy writes a file or folder of this name.
fn is_ours(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let folders = ["tables", "tasks", "staging"];
    let files = [".bin", ".arrayrecord"];
    folders.contains(&&*name)
        || *name == *METADATA_FILE
        || files.iter().any(|ending| name.ends_with(ending))
}

/// Checks that the file system exchanges names, before the work: by two empty folders in `partial`.
fn check_exchange(partial: &Path, out: &Path) -> Result<()> {
    let pair = ["one", "other"].map(|name| partial.join("staging").join(name));
    for folder in &pair {
        fs::create_dir(folder).map_err(|e| Error::io(folder, "creating", e))?;
    }
    Disk.exchange(&pair[0], &pair[1]).map_err(|_| {
        Error::invalid(format!(
            "the file system of {} cannot exchange two folders in one step, so a store there cannot \
             be replaced; remove it, or choose another folder",
            out.display()
        ))
    })
}

/// Whether `opened` still lies at `path`: the folder could be moved between opening and locking.
fn is_still_at(opened: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::symlink_metadata(path) {
        Ok(found) => Ok(identity(found) == identity(opened.metadata()?)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Refuses a folder within a store, which `verify` would then not know.
pub(super) fn refuse_within_store(out: &Path) -> Result<()> {
    let absolute = std::path::absolute(out).map_err(|e| Error::io(out, "examining", e))?;
    // Links may lead into a store; the last folders may not exist yet.
    let is_missing = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    let mut folders = absolute.ancestors().skip(1).map(|folder| (folder, fs::canonicalize(folder)));
    let found = folders.find(|(_, found)| !found.as_ref().is_err_and(is_missing));
    let folder = found.map(|(folder, found)| found.map_err(|e| Error::io(folder, "examining", e)));
    let folder = folder.transpose()?;
    for store in folder.iter().flat_map(|folder| folder.ancestors()) {
        if is_store(store)? {
            return Err(Error::invalid(format!(
                "{}: expected a folder outside of stores, found one within the store {}; choose a \
                 folder beside it",
                out.display(),
                store.display()
            )));
        }
    }
    Ok(())
}

fn in_use(path: &Path) -> Error {
    Error::invalid(format!(
        "another process is preparing {}; wait until it ends, or choose another folder",
        path.display()
    ))
}

/// Returns the error about a store folder that exists.
pub(super) fn exists(out: &Path) -> Error {
    Error::invalid(format!(
        "{} is there already; choose another folder, or replace the store there (--force, force=True)",
        out.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::Partial;

    #[test]
    fn a_store_that_got_its_name_meanwhile_leaves_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("shop.store");
        std::fs::create_dir(&out).unwrap();
        let refused = Partial::create(&out, None, &[]).err().unwrap().to_string();
        assert!(refused.contains("is there already; choose another folder, or "));
        assert!(!folder.path().join("shop.store.partial").exists());
    }
}
