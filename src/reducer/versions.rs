//! The versions of the files that a fold has read.

use std::collections::BTreeMap;
use std::fmt;

use crate::bytes::{u32_at, u64_at};
use crate::error::Error;
use crate::stamp::Stamp;

/// The length of a version in a portion, without its path.
const FIXED_BYTES: usize = 40;

/// The version of a file of a job, as a process found it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileVersion {
    /// The place of the file among the files of the job.
    pub place: u64,
    /// Its path on the machine that read it, for messages.
    pub path: String,
    /// What tells it from other versions.
    pub stamp: Stamp,
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path, self.stamp)
    }
}

impl FileVersion {
    /// Whether both are the same version of the same file; the path may be another one.
    fn is_same(&self, other: &Self) -> bool {
        (self.place, self.stamp) == (other.place, other.stamp)
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.place.to_le_bytes());
        bytes.extend(self.stamp.length.to_le_bytes());
        bytes.extend(self.stamp.changed.to_le_bytes());
        bytes.extend(self.stamp.file.to_le_bytes());
        bytes.extend((self.path.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.path.as_bytes());
    }

    /// Reads a version at the start of `bytes`; returns it with the bytes after it.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let [place, length, changed, file] = [0, 8, 16, 24].map(|at| u64_at(bytes, at));
        let path_bytes = u32_at(bytes, 32)? as usize;
        if u32_at(bytes, 36)? != 0 {
            return None;
        }
        let (path, rest) = bytes.get(FIXED_BYTES..)?.split_at_checked(path_bytes)?;
        let path = std::str::from_utf8(path).ok()?.to_owned();
        let stamp = Stamp { length: length?, changed: changed?.cast_signed(), file: file? };
        Some((Self { place: place?, path, stamp }, rest))
    }
}

/// Appends versions, which are in order, after their number.
pub(super) fn write(versions: &[FileVersion], bytes: &mut Vec<u8>) {
    bytes.extend((versions.len() as u64).to_le_bytes());
    versions.iter().for_each(|version| version.write(bytes));
}

/// The length of what [`write`] appends.
pub(super) fn length(versions: &[FileVersion]) -> usize {
    8 + versions.iter().map(|version| FIXED_BYTES + version.path.len()).sum::<usize>()
}

/// Reads versions at the start of `bytes`; returns them with the bytes after them.
pub(super) fn read(bytes: &[u8]) -> Option<(Vec<FileVersion>, &[u8])> {
    let (count, mut rest) = (u64_at(bytes, 0)?, bytes.get(8..)?);
    let mut versions: Vec<FileVersion> = Vec::new();
    for _ in 0..count {
        let (version, after) = FileVersion::read(rest)?;
        if versions.last().is_some_and(|last| *last >= version) {
            return None;
        }
        versions.push(version);
        rest = after;
    }
    Some((versions, rest))
}

/// The versions that a fold has read, and those that this process finds.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    /// The files of this process, by place.
    own: BTreeMap<u64, FileVersion>,
    /// All versions of the rows that are folded, in order.
    folded: Vec<FileVersion>,
}

impl Versions {
    pub(super) fn of(own: Vec<FileVersion>) -> Self {
        let own = own.into_iter().map(|version| (version.place, version)).collect();
        Self { own, folded: Vec::new() }
    }

    /// Returns the version that differs from one of `arriving`, with that one.
    pub(super) fn other<'a>(
        &'a self,
        arriving: &'a [FileVersion],
    ) -> Option<(&'a FileVersion, &'a FileVersion)> {
        arriving.iter().enumerate().find_map(|(at, new)| {
            let of_place = |known: &&FileVersion| known.place == new.place;
            let own = self.own.get(&new.place);
            let known = own.or_else(|| self.folded.iter().find(of_place));
            // A fold that compares versions at its end may have saved several.
            let known = known.or_else(|| arriving[..at].iter().find(of_place));
            known.filter(|known| !known.is_same(new)).map(|known| (known, new))
        })
    }

    /// Adds the versions of rows that were folded.
    pub(super) fn add(&mut self, arriving: Vec<FileVersion>) {
        for new in arriving {
            if let Err(place) = self.folded.binary_search(&new) {
                // Ranks may name one file by several paths.
                if !self.folded.iter().any(|known| known.is_same(&new)) {
                    self.folded.insert(place, new);
                }
            }
        }
    }

    /// Takes the files of this process in place of all other versions of them, whose rows are the same.
    pub(super) fn replace_others(&mut self) {
        for version in &mut self.folded {
            if let Some(own) = self.own.get(&version.place) {
                version.clone_from(own);
            }
        }
        // Those of one file stand together, and are the same now.
        self.folded.dedup();
    }

    pub(super) fn folded(&self) -> &[FileVersion] {
        &self.folded
    }
}

/// The error for rows of two versions of a file.
pub(super) fn differ(known: &FileVersion, found: &FileVersion, rows: &str) -> Error {
    Error::mismatch(format!(
        "{rows} were folded from another version of a file: from {found}, not from {known}; fold all rows \
         of one version, or, if only the file's date or place has changed, add --same-data, which reads \
         the rows again and compares them"
    ))
}
