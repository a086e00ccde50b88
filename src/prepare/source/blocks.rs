//! Tables cut into blocks of rows, which several processes can share, and the versions of their files.

use std::fmt;
use std::fs::Metadata;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::Batches;
use crate::bytes::Digest;
use crate::days::time_text;
use crate::error::{Error, Result};
use crate::files::try_open;

/// A source whose tables are cut into blocks, each of which any process can read alone.
pub trait InBlocks {
    /// Returns the versions of the files of `tables`, in the order of their names.
    ///
    /// # Errors
    /// `Data` when a file has changed since the source was opened; `Schema` when there is no such table.
    fn files(&self, tables: &[&str]) -> Result<Vec<FileVersion>>;

    /// Returns the blocks of a table.
    ///
    /// # Determinism
    /// The cut depends on the files alone.
    ///
    /// # Errors
    /// As [`super::Source::read`].
    fn blocks(&self, table: &str) -> Result<Box<dyn Blocks + '_>>;
}

/// The blocks of a table, in the order of its rows. A block may have no rows.
pub trait Blocks: Sync {
    /// Returns the number of blocks.
    fn count(&self) -> usize;

    /// Streams the rows of a block, with `columns` in that order. Messages count rows from `first_row` on.
    ///
    /// # Errors
    /// As [`super::Source::read`].
    fn read(&self, block: usize, columns: &[String], first_row: u64) -> Result<Batches>;

    /// Counts the rows of the table before a block.
    ///
    /// # Cost
    /// May read all of them.
    ///
    /// # Errors
    /// As [`super::Source::read`].
    fn rows_before(&self, block: usize) -> Result<u64>;
}

/// What tells two versions of a file apart, also on machines that have a copy each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileVersion {
    /// The path within the source.
    pub path: String,
    /// The length in bytes.
    pub length: u64,
    /// The time of the last write, in nanoseconds since 1970. Copies that keep it count as the same version.
    pub written: i64,
    /// The digest of the first and the last bytes: Parquet and SQLite have there what changes with every row. Some
    /// file systems and archives give all files one time.
    pub ends: Digest,
}

/// How many bytes of each end of a file are in its version.
const END_BYTES: u64 = 64 << 10;

impl FileVersion {
    /// Returns the version of the file at `path`, which is named from the folder `root` on.
    pub(super) fn of(path: &Path, root: &Path) -> Result<Self> {
        let fail = |e| Error::io(path, "looking at", e);
        let metadata = std::fs::metadata(path).map_err(fail)?;
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        let (length, written) = (metadata.len(), written(&metadata).map_err(fail)?);
        let ends = ends(path, length).map_err(|e| Error::io(path, "reading", e))?;
        Ok(Self { path: name, length, written, ends })
    }
}

/// Returns the digest of the first and the last bytes of a file of this length.
fn ends(path: &Path, length: u64) -> std::io::Result<Digest> {
    let mut file = try_open(path)?;
    let mut bytes = Vec::new();
    for from in [0, length.saturating_sub(END_BYTES)] {
        file.seek(SeekFrom::Start(from))?;
        (&mut file).take(END_BYTES).read_to_end(&mut bytes)?;
    }
    Ok(Digest::of(&bytes))
}

/// Returns the time of the last write.
fn written(metadata: &Metadata) -> std::io::Result<i64> {
    let time = metadata.modified()?;
    let nanoseconds = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()),
        Err(before) => i64::try_from(before.duration().as_nanos()).map(|time| -time),
    };
    Ok(nanoseconds.unwrap_or(i64::MAX))
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} bytes, written {} UTC and {} ns, digest of its ends {:.8}",
            self.path.escape_debug(),
            self.length,
            time_text(self.written.div_euclid(1_000_000_000) * 1_000_000),
            self.written.rem_euclid(1_000_000_000),
            self.ends.to_string()
        )
    }
}

/// Returns the folder that a file lies in.
pub(super) fn folder_of(file: &Path) -> PathBuf {
    file.parent().map_or_else(PathBuf::new, Path::to_owned)
}
