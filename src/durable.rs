//! Writes files and folders atomically: after a crash, each is complete or absent.
//!
//! One protocol for all of headwater: write a temporary beside the target, fsync it, rename it over
//! the target, fsync the folder. It relies on two properties of the file system:
//! 1. rename replaces atomically;
//! 2. after an fsync the data survive a loss of power.
//!
//! Disks enter through [`Storage`], so that tests can fail, or cut the power, at every call.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::{Context, Error, Result, files};

/// The most writers of one target at a time, and the most temporaries of killed writers where the file
/// system has no locks.
const TEMPORARIES_MAX: u32 = 1000;

/// The end of the names of temporaries.
const TEMPORARY_END: &str = ".partial";

/// ENOLCK: the error of a network file system without a lock server.
const NO_LOCKS: i32 = if cfg!(target_os = "linux") { 37 } else { 77 };

/// Locks a file or folder for as long as it is open; false if another process holds the lock.
///
/// Some cluster file systems have no locks. There the work goes on without one.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    Ok(lock(file)? != Locked::Elsewhere)
}

/// Waits until no other process holds the lock of a file or folder, and takes it; false where the file
/// system has no locks.
///
/// Calls `wait` ten times a second, whose error ends the waiting.
///
/// # Errors
/// `Io`, and that of `wait`.
#[cfg(feature = "prepare")]
pub(crate) fn wait_for_lock(
    file: &File,
    path: &Path,
    wait: &dyn Fn() -> Result<()>,
) -> Result<bool> {
    loop {
        match lock(file).map_err(|e| Error::io(path, "locking", e))? {
            Locked::Here => return Ok(true),
            Locked::Never => return Ok(false),
            Locked::Elsewhere => wait()?,
        }
        sleep(Claim::PAUSE);
    }
}

/// Who holds the lock of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locked {
    Here,
    Elsewhere,
    /// The file system has no locks.
    Never,
}

fn lock(file: &File) -> io::Result<Locked> {
    match file.try_lock() {
        Ok(()) => Ok(Locked::Here),
        Err(TryLockError::Error(e))
            if e.kind() == io::ErrorKind::Unsupported || e.raw_os_error() == Some(NO_LOCKS) =>
        {
            Ok(Locked::Never)
        }
        Err(TryLockError::Error(e)) => Err(e),
        Err(TryLockError::WouldBlock) => Ok(Locked::Elsewhere),
    }
}

/// The exclusive right of this process to work in a folder. It ends with the process, also when the
/// process is killed.
#[derive(Debug)]
pub struct Claim {
    _locked: File,
}

impl Claim {
    /// The empty file that is locked, because most cluster file systems lock files and not folders. It
    /// is never removed, so that no process locks a removed file.
    pub const FILE: &str = ".lock";

    /// The time to wait for another process to end: processes of mpirun outlive it by about a second.
    const PATIENCE: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_millis(100);

    /// Claims an existing folder; waits at most 10 s for another process to end.
    ///
    /// # Errors
    /// `InvalidArgument` when another process has claimed the folder, else `Io`.
    pub fn of(folder: &Path) -> Result<Self> {
        let path = folder.join(Self::FILE);
        let file = open_to_lock(&path).map_err(|e| {
            Error::io(&path, "opening", e).context(
                "this folder needs a lock file: let this user read and write there, or choose \
                 another folder",
            )
        })?;
        let tries = Self::PATIENCE.as_millis() / Self::PAUSE.as_millis();
        for at in 0..=tries {
            if try_lock(&file).map_err(|e| Error::io(&path, "locking", e))? {
                return Ok(Self { _locked: file });
            }
            if at < tries {
                sleep(Self::PAUSE);
            }
        }
        Err(Error::invalid(format!(
            "another process is at work in {}; wait until it has ended, or choose another folder",
            folder.display()
        )))
    }
}

/// The right of one process to a piece of work. It ends with the process, also when the process is killed.
///
/// It is the lock of an empty file, which is removed when the lease is dropped; a killed process leaves
/// the file to the next. A file system without locks gives the lease to all who ask.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    _locked: File,
}

impl Lease {
    /// Takes the lease whose file is at `path`, without waiting; `None` if another process has it.
    ///
    /// # Errors
    /// `Io`.
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        let opened = if link { Err(io::Error::other("it is a link")) } else { open_to_lock(path) };
        let file = opened.map_err(|e| {
            let remedy = if UNWRITABLE.contains(&e.kind()) {
                "; let this process write to the folder"
            } else {
                "; remove it"
            };
            Error::io(path, "opening", e).followed_by(remedy)
        })?;
        let is_mine = try_lock(&file).map_err(|e| Error::io(path, "locking", e))?
            // The process that had it may have removed the file before it was locked here.
            && is_at(&file, path).map_err(|e| Error::io(path, "examining", e))?;
        Ok(is_mine.then(|| Self { path: path.to_owned(), _locked: file }))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // While it is locked, so that no other process has it already. Left there, it would do no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// The errors of opening a file that this process may not write.
const UNWRITABLE: [io::ErrorKind; 2] =
    [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];

/// Opens a file only to lock it; another user's read-only file is enough.
fn open_to_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    match files::open_as(path, options.write(true).create(true).truncate(false)) {
        // If reading fails too, the first error says more.
        Err(e) if UNWRITABLE.contains(&e.kind()) => files::try_open(path).map_err(|_| e),
        opened => opened,
    }
}

/// An entry of a folder, as a [`Storage`] lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name within the folder.
    pub name: OsString,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// A file that is being written.
pub trait NewFile {
    /// Appends bytes.
    ///
    /// # Errors
    /// The operating system's.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything written so far survives a loss of power.
    ///
    /// # Errors
    /// The operating system's.
    fn sync(&mut self) -> io::Result<()>;
}

/// The calls to a disk on which files are written and read, by any thread.
pub trait Storage: Sync {
    /// Creates a file that must not exist, and locks it for as long as it is open.
    ///
    /// # Errors
    /// `AlreadyExists` when it exists, else the operating system's.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    /// Removes a file of [`Storage::create_new`] whose writer has ended; false if there is none, or it cannot be
    /// removed. The lock tells whether the writer lives; without locks, no file is removed.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_abandoned(&self, path: &Path) -> io::Result<bool>;

    /// Returns when a finished file survives a loss of power.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Returns when the names in a folder survive a loss of power.
    ///
    /// # Errors
    /// The operating system's.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or folder, in place of any that has the new name.
    ///
    /// # Errors
    /// The operating system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives each of two folders, which lie in one folder, the other's name, in one step.
    ///
    /// # Errors
    /// `Unsupported` or `InvalidInput` when the file system cannot do so, else the operating system's.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Lists a folder in the order of the names.
    ///
    /// # Errors
    /// The operating system's.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// The operating system's.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Whether a file, folder or link exists at a path.
    ///
    /// # Errors
    /// The operating system's.
    fn exists(&self, path: &Path) -> io::Result<bool>;
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

impl NewFile for File {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

impl Storage for Disk {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        // Another process may have taken the file for an abandoned one before it was locked. Some file
        // systems fail to lock in ways of their own; what is written there is written without a lock.
        if lock(&file).is_ok_and(|locked| locked == Locked::Elsewhere) || !is_at(&file, path)? {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        Ok(Box::new(file))
    }

    fn remove_abandoned(&self, path: &Path) -> io::Result<bool> {
        // What cannot be opened is no file of this user.
        let Ok(file) = files::open_as(path, OpenOptions::new().write(true)) else {
            return Ok(false);
        };
        // The lock is kept while the file is removed, so that no writer begins with it.
        let is_abandoned = lock(&file).is_ok_and(|locked| locked == Locked::Here);
        // In a folder where only the owner may remove a file, that of another user stays.
        Ok(is_abandoned && is_at(&file, path)? && fs::remove_file(path).is_ok())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        files::try_open(path)?.sync_all()
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // Windows does not open folders as files, and need not: it journals names.
        if cfg!(windows) { Ok(()) } else { files::try_open_folder(path)?.sync_all() }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Renaming would put a file in the place of a device such as /dev/null.
        if fs::metadata(to).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it exists already and is not a file; choose another path",
            ));
        }
        fs::rename(from, to)
    }

    #[cfg(feature = "prepare")]
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }

    #[cfg(not(feature = "prepare"))]
    fn exchange(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = fs::read_dir(folder)?
            .map(|entry| {
                let entry = entry?;
                let is_folder = entry.file_type()?.is_dir();
                Ok(Entry { name: entry.file_name(), is_folder })
            })
            .collect::<io::Result<Vec<Entry>>>()?;
        entries.sort();
        Ok(entries)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        files::try_read(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        // Unlike with `Path::try_exists`, a dangling link exists.
        match fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Whether an open file is the one at a path.
pub(crate) fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let (open, found) = (file.metadata()?, fs::symlink_metadata(path));
    match found {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        found => {
            #[cfg(unix)]
            {
                use std::os::unix::fs::MetadataExt;
                let found = found?;
                Ok((open.dev(), open.ino()) == (found.dev(), found.ino()))
            }
            #[cfg(not(unix))]
            {
                let _ = open;
                found.map(|_| true)
            }
        }
    }
}

/// Writes a file with these bytes at `path`, in place of any file there.
///
/// At every moment a reader finds the complete old file or the complete new one. A killed writer leaves a
/// temporary, `.NAME.N.partial`, which is never read; the next writer of the same file removes it. Of two
/// concurrent writers, one wins with its complete file.
///
/// # Cost
/// Two fsyncs, and a temporary of the file's length.
///
/// # Errors
/// `Io`; the message says whether the old file is unchanged.
pub fn write_file(storage: &dyn Storage, path: &Path, bytes: &[u8]) -> Result<()> {
    write_file_by(storage, path, &mut |file| file.write_all(bytes))
}

/// [`write_file`] for bytes that `fill` writes piece by piece.
///
/// # Errors
/// As [`write_file`].
pub fn write_file_by(
    storage: &dyn Storage,
    path: &Path,
    fill: &mut dyn FnMut(&mut dyn NewFile) -> io::Result<()>,
) -> Result<()> {
    let (mut file, temporary) = create_temporary(storage, path)?;
    let filled =
        fill(&mut *file).and_then(|()| file.sync()).map_err(|e| Error::io(&temporary, "write", e));
    let renamed = filled.and_then(|()| {
        storage.rename(&temporary, path).map_err(|e| Error::io(path, "rename a temporary to", e))
    });
    // Open until here: its lock tells other writers that the temporary is in use.
    drop(file);
    if let Err(error) = renamed {
        // The first error is returned; a leftover does no harm, and the next writer removes it.
        let _ = storage.remove_file(&temporary);
        return Err(unchanged(error, path));
    }
    sync_names(storage, path)
}

/// Renames a finished folder to its final name, so that readers never see an incomplete one.
///
/// # Cost
/// An fsync of every file and folder in it.
///
/// # Errors
/// `InvalidArgument` when `to` exists, else `Io`.
pub fn commit_folder(storage: &dyn Storage, partial: &Path, to: &Path) -> Result<()> {
    if storage.exists(to).map_err(|e| Error::io(to, "look for", e))? {
        return Err(Error::invalid(format!(
            "{} exists already, and headwater never replaces a folder; remove it, or choose another \
             path",
            to.display()
        )));
    }
    sync_tree(storage, partial).map_err(|e| unchanged(e, to))?;
    let rename = || format!("rename {} to", partial.display());
    storage.rename(partial, to).map_err(|e| unchanged(Error::io(to, &rename(), e), to))?;
    sync_names(storage, to)
}

/// Puts a finished folder in the place of the folder at `to`, which gets the name of `partial`.
///
/// At every moment a complete folder, the old or the new one, is at `to`.
///
/// # Cost
/// An fsync of every file and folder in the new one.
///
/// # Errors
/// `Io`; the message says whether the old folder is unchanged.
pub fn replace_folder(storage: &dyn Storage, partial: &Path, to: &Path) -> Result<()> {
    sync_tree(storage, partial).map_err(|e| unchanged(e, to))?;
    let exchange = || format!("exchange {} with", partial.display());
    storage.exchange(partial, to).map_err(|e| unchanged(Error::io(to, &exchange(), e), to))?;
    sync_names(storage, to)
}

/// The names of a series of numbered files in one folder: `PREFIX-000000000042SUFFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The start of the names.
    pub prefix: String,
    /// The end of the names, such as `.cursor`.
    pub suffix: String,
}

impl Series {
    /// Returns the name of file `number`.
    #[must_use]
    pub fn file_name(&self, number: u64) -> String {
        format!("{}-{number:012}{}", self.prefix, self.suffix)
    }

    /// Returns the number in a name, if it is exactly a name of this series.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let number = digits.strip_suffix(&self.suffix)?.parse().ok()?;
        (self.file_name(number) == name).then_some(number)
    }

    /// Returns the numbers of the existing files, in ascending order.
    ///
    /// # Errors
    /// `Io` when the folder cannot be listed.
    pub fn numbers(&self, storage: &dyn Storage, folder: &Path) -> Result<Vec<u64>> {
        let entries = storage.list(folder).map_err(|e| Error::io(folder, "list", e))?;
        let mut numbers: Vec<u64> = entries
            .iter()
            .filter(|entry| !entry.is_folder)
            .filter_map(|entry| self.number_of(entry.name.to_str()?))
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes all but the `count` files with the highest numbers up to `newest`, which was just written;
    /// keeps files of other names.
    ///
    /// Files with higher numbers are removed, too: whoever writes `newest` has passed them over because
    /// they are damaged, and they must not count in the place of good ones. Files that are `unread`, for an
    /// error of the disk that may pass, count neither: they stay until `count` others are newer.
    ///
    /// # Errors
    /// `InvalidArgument` when `count` is 0, else `Io`; the newest file stays in any case.
    pub fn keep_last(
        &self,
        storage: &dyn Storage,
        folder: &Path,
        (newest, count): (u64, usize),
        unread: &[u64],
    ) -> Result<()> {
        if count == 0 {
            return Err(Error::invalid(format!(
                "expected to keep at least 1 file of {}, found 0; the newest is never removed",
                folder.join(self.file_name(0)).display()
            )));
        }
        let numbers = self.numbers(storage, folder)?;
        let is_unread = |number: u64| number != newest && unread.contains(&number);
        let good = numbers.iter().rev().filter(|&&n| n <= newest && !is_unread(n));
        let oldest = good.take(count).last().copied().unwrap_or(newest);
        let stays = |n: u64| n >= oldest && (n <= newest || is_unread(n));
        for number in numbers.into_iter().filter(|&number| !stays(number)) {
            let path = folder.join(self.file_name(number));
            match storage.remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(&path, "remove", e));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Series {
    /// Removes the temporaries that killed writers of files of this series have left.
    ///
    /// # Errors
    /// `Io` when the folder cannot be listed, or a temporary not be removed.
    pub fn remove_abandoned(&self, storage: &dyn Storage, folder: &Path) -> Result<()> {
        for entry in storage.list(folder).map_err(|e| Error::io(folder, "list", e))? {
            let target = entry.name.to_str().and_then(target_of);
            if !entry.is_folder && target.is_some_and(|name| self.number_of(name).is_some()) {
                let path = folder.join(&entry.name);
                storage.remove_abandoned(&path).map_err(|e| Error::io(&path, "remove", e))?;
            }
        }
        Ok(())
    }
}

/// Removes the temporaries of the file `path` that killed writers have left, from number `first` on: writers
/// at one time leave them one after the other. A disk that refuses keeps them.
pub fn remove_temporaries(storage: &dyn Storage, path: &Path, first: u32) {
    let Some(name) = path.file_name() else { return };
    let is_removed = |attempt: &u32| {
        let temporary = path.with_file_name(temporary_name(name, *attempt));
        storage.remove_abandoned(&temporary).is_ok_and(|removed| removed)
    };
    (first..TEMPORARIES_MAX).take_while(is_removed).for_each(drop);
}

/// Returns the name of a temporary of the file with this name.
fn temporary_name(name: &OsStr, attempt: u32) -> OsString {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{attempt}{TEMPORARY_END}"));
    hidden
}

/// Returns the name of the file whose temporary has this name.
fn target_of(name: &str) -> Option<&str> {
    let (target, attempt) =
        name.strip_prefix('.')?.strip_suffix(TEMPORARY_END)?.rsplit_once('.')?;
    attempt.parse::<u32>().ok().map(|_| target)
}

fn create_temporary(storage: &dyn Storage, path: &Path) -> Result<(Box<dyn NewFile>, PathBuf)> {
    let Some(name) = path.file_name() else {
        return Err(Error::invalid(format!(
            "expected the path of a file, found {:?}, which has no file name",
            path.display()
        )));
    };
    for attempt in 0..TEMPORARIES_MAX {
        let temporary = path.with_file_name(temporary_name(name, attempt));
        let fail = |e| {
            let error = unchanged(Error::io(&temporary, "create", e), path);
            error.followed_if_not_found("; make its folder first")
        };
        let created = match storage.create_new(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                match storage.remove_abandoned(&temporary).map_err(fail)? {
                    true => storage.create_new(&temporary),
                    false => continue,
                }
            }
            created => created,
        };
        match created {
            Ok(file) => {
                remove_temporaries(storage, path, attempt + 1);
                return Ok((file, temporary));
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(fail(e)),
        }
    }
    Err(Error::limit(format!(
        "found {TEMPORARIES_MAX} temporary files beside {}, and no locks that tell whether their writers \
         live; delete the files named .*.partial",
        path.display()
    )))
}

fn sync_tree(storage: &dyn Storage, folder: &Path) -> Result<()> {
    for entry in storage.list(folder).map_err(|e| Error::io(folder, "list", e))? {
        let path = folder.join(&entry.name);
        if entry.is_folder {
            sync_tree(storage, &path)?;
        } else {
            storage.sync_file(&path).map_err(|e| Error::io(&path, "write", e))?;
        }
    }
    storage.sync_folder(folder).map_err(|e| Error::io(folder, "write", e))
}

/// Makes the new name of `path` survive a loss of power.
fn sync_names(storage: &dyn Storage, path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    storage
        .sync_folder(folder)
        .map_err(|e| Error::io(folder, "write the names in", e))
        .context(|| format!("{} is written, but a loss of power may undo it", path.display()))
}

fn unchanged(error: Error, path: &Path) -> Error {
    error.context(format!("{} was not written and is as it was", path.display()))
}
