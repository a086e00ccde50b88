//! Opens the files that a user, or another program, names.
//!
//! The name may be that of a pipe, whose opening waits for a writer for ever, or of a device, which never
//! ends. Both are told at once, and so are folders. No other place opens a file to read it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// Opens without waiting: `O_NONBLOCK`, which the standard library does not name. It changes nothing for
/// files and folders.
#[cfg(unix)]
const WITHOUT_WAITING: i32 =
    if cfg!(any(target_os = "linux", target_os = "android")) { 0o4000 } else { 4 };

/// Opens the file at `path` to read it.
///
/// # Errors
/// Those of the operating system; `InvalidInput` when there is something other than a file.
pub(crate) fn try_open(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true))
}

/// Opens the file at `path` with these options, as [`try_open`] does.
pub(crate) fn open_as(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = open(path, options);
    let found = match &opened {
        Ok(file) => file.metadata()?,
        // A socket cannot be opened at all, and a folder not to write.
        Err(_) => match std::fs::metadata(path) {
            Ok(found) => found,
            Err(_) => return opened,
        },
    };
    if found.is_file() { opened } else { Err(not_a_file(&found)) }
}

/// Opens the folder at `path`, to lock it or to make its names durable.
///
/// # Errors
/// Those of the operating system; `NotADirectory` when there is something other than a folder.
pub(crate) fn try_open_folder(path: &Path) -> io::Result<File> {
    let folder = open(path, OpenOptions::new().read(true))?;
    if folder.metadata()?.is_dir() { Ok(folder) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Reads at most `count` bytes from the beginning of the file at `path`.
///
/// # Errors
/// As [`try_open`].
pub(crate) fn try_read_beginning(path: &Path, count: usize) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::with_capacity(count);
    try_open(path)?.take(count as u64).read_to_end(&mut beginning)?;
    Ok(beginning)
}

/// Reads the file at `path`, as [`std::fs::read`] does.
///
/// # Errors
/// As [`try_open`].
pub(crate) fn try_read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = try_open(path)?;
    let mut bytes = Vec::new();
    // A file that claims too much is no reason to end the process.
    bytes.try_reserve(file.metadata()?.len() as usize).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// ELOOP: a link that leads to itself.
const LOOP: i32 = if cfg!(target_os = "linux") { 40 } else { 62 };

/// What lies at `path`; `None` when nothing does, or a link that leads nowhere. Unlike with
/// [`Path::exists`], an error of the disk does not mean that there is nothing.
pub(crate) fn found_at(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(e) if e.raw_os_error() == Some(LOOP) => Ok(None),
        Err(e) => Err(Error::io(path, "examining", e)),
    }
}

/// Whether a folder, or a link to one, lies at `path`.
#[cfg(any(feature = "prepare", feature = "reduce"))]
pub(crate) fn is_folder(path: &Path) -> Result<bool> {
    Ok(found_at(path)?.is_some_and(|found| found.is_dir()))
}

/// [`try_open`], with the path in the error.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    try_open(path).map_err(|e| Error::io(path, "opening", e))
}

/// [`try_read`], with the path in the error.
///
/// # Errors
/// `Io`, with the path.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    try_read(path).map_err(|e| Error::io(path, "reading", e))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, WITHOUT_WAITING);
    options.open(path)
}

/// Returns the error about something that is no file.
pub(crate) fn not_a_file(found: &Metadata) -> io::Error {
    let (what, remedy) = match found.is_dir() {
        true => ("a folder", "name a file"),
        false => (special(found), "write its content to a file, and name that"),
    };
    let words = format!("expected a file, found {what}; {remedy}");
    io::Error::new(io::ErrorKind::InvalidInput, words)
}

/// Names what is neither a file nor a folder.
#[cfg(unix)]
fn special(found: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let of = found.file_type();
    match (of.is_fifo(), of.is_socket()) {
        (true, _) => "a pipe",
        (_, true) => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn special(_: &Metadata) -> &'static str {
    "a pipe or a device"
}
