//! What tells two versions of a file apart without reading them.

use std::fmt;
use std::fs::Metadata;
use std::path::Path;

use crate::days::Date;
use crate::error::{Error, Result};
use crate::files::open_file;

/// The length of a file, when it last changed, and which file of its disk it is.
///
/// A program can set the time of the last *write* back, but not that of the last change, which the
/// system keeps. A copy of a file has another stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The length in bytes.
    pub length: u64,
    /// The time of the last change, in nanoseconds since 1970.
    pub changed: i64,
    /// The number of the file on its disk (the inode); 0 where the system has none.
    pub file: u64,
}

impl Stamp {
    /// Returns the stamp of the file at `path`.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, "looking at", e))?;
        Ok(Self::from(&metadata))
    }

    /// Returns the stamp of the file at `path`, which is read from now on.
    ///
    /// A store through a memory map changes the time of the file only where it is the first to a clean page:
    /// so the pages are written to the disk first. File systems in memory (tmpfs) tell of no such store.
    pub(crate) fn before_reading(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        // Where it fails, as on a disk that is read only, nobody stores either.
        let _ = file.sync_data();
        let metadata = file.metadata().map_err(|e| Error::io(path, "looking at", e))?;
        Ok(Self::from(&metadata))
    }

    /// Checks that the file at `path` still has this stamp, after its bytes were read.
    ///
    /// # Errors
    /// `Data` when it was changed or replaced; `Io` when it is gone.
    pub(crate) fn check(self, path: &Path) -> Result<()> {
        let found = Self::of(path)?;
        let what = if self.file != found.file {
            "another file in its place".to_owned()
        } else if self.length != found.length {
            format!("{} bytes, and {} before", found.length, self.length)
        } else if self.changed != found.changed {
            "a later time of change".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::data(format!(
            "{}: expected a file that nobody changes while it is read, found {what}; wait until its \
             writer has ended, or read a copy",
            path.display()
        )))
    }
}

impl From<&Metadata> for Stamp {
    #[cfg(unix)]
    fn from(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        let seconds = metadata.ctime().saturating_mul(1_000_000_000);
        Self {
            length: metadata.len(),
            changed: seconds.saturating_add(metadata.ctime_nsec()),
            file: metadata.ino(),
        }
    }

    #[cfg(not(unix))]
    fn from(metadata: &Metadata) -> Self {
        let written = metadata.modified().ok();
        let since = written.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let changed = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
        Self { length: metadata.len(), changed: changed.unwrap_or_default(), file: 0 }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.changed.div_euclid(1_000_000_000);
        let (day, of_day) = (second.div_euclid(86_400), second.rem_euclid(86_400));
        let date = Date::of(day);
        write!(
            f,
            "{} bytes, changed {:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:09} UTC, file number {}",
            self.length,
            date.year,
            date.month + 1,
            date.day + 1,
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60,
            self.changed.rem_euclid(1_000_000_000),
            self.file
        )
    }
}
