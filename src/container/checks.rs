//! Which blocks of a file matched their digest: a bit for each, which begins as 0 and is set once.
//!
//! A process has bits of its own for a file, or shares them with the other processes of its machine and user
//! that have the file open: what one of them has checked, the others need not check again. Only large files
//! share: the check of a small one takes milliseconds.
//!
//! Shared bits are found by a key: the digest of the file's header and section table, which holds the digest of
//! every block, and the file's device, number, length and times. So a set bit says that a process of this user
//! read this block of this very file, and that it matched its digest. A copy of the file, a file that replaces
//! it and a file that was written to in place have other keys, hence other bits.
//!
//! Bytes that change after the check are not noticed, with own bits as with shared ones. With shared bits this
//! lasts as long as any process has the file open, and ends with the last of them. Two kinds of change leave the key as it is. A disk that returns other bytes when a
//! page is read again is one. Writing into an open file is the other, where its time of change stays: twice
//! within a tick of the system's clock, or through a memory map to a page that was not clean, or to a file in
//! memory. Nobody writes into the files of a store, whose writers replace files. `verify` never takes a bit for
//! an answer.
//!
//! Sharing is speed: where it fails, for whatever reason, the process has bits of its own.

use std::fs::File;
use std::ops::Range;

#[cfg(not(target_os = "linux"))]
use super::no_shared_bits::SharedBits;
#[cfg(target_os = "linux")]
use super::shared_bits::SharedBits;
use crate::bytes::Digest;
use crate::map::Words;

/// The length from which on the bits of a file are shared, in bytes.
pub(super) const SHARED_BYTES_MIN: usize = 64 << 20;

/// A bit for each block of a file that matched its digest.
pub(super) struct Checks {
    words: Words,
    /// Keeps the bits for the other processes.
    _shared: Option<SharedBits>,
}

impl Checks {
    /// Returns `count` words of bits, of this process alone.
    pub(super) fn own(count: usize) -> Self {
        Self { words: Words::new(count, 0), _shared: None }
    }

    /// Returns `count` words of bits that are all set.
    pub(super) fn all_set(count: usize) -> Self {
        Self { words: Words::new(count, u64::MAX), _shared: None }
    }

    /// Returns the `count` words of bits of an open file, whose header has this digest: shared ones, or own ones
    /// where that is not possible.
    pub(super) fn shared(count: usize, digest: Digest, file: &File) -> Self {
        match SharedBits::of(file, digest, count) {
            Ok((shared, words)) => Self { words, _shared: Some(shared) },
            Err(_) => Self::own(count),
        }
    }

    /// Returns some of the words.
    pub(super) fn part(&self, words: Range<usize>) -> Words {
        self.words.part(words)
    }
}
