//! `STORE.splits`: the splits of many seeds in files beside a store, so that a start reads them in place of
//! hashing every seed.
//!
//! The files are speed alone. If one is missing, damaged or of other settings, its splits are found anew; if
//! it cannot be written, nothing is lost. So no error leaves this file. `FORMAT.md` has the bytes.

use std::fs::{self, Metadata};
use std::io::Read;
use std::path::PathBuf;

use crate::bytes::Digest;
use crate::container::METADATA_FILE;
use crate::durable::{Disk, Lease, write_file_by};
use crate::error::Result;
use crate::files::try_open;
use crate::store::Store;

const MAGIC: [u8; 8] = *b"HWSPLIT\0";
const VERSION: u64 = 1;
const DIGEST_BYTES: usize = 32;
/// Of a folder, after the path of the store.
const FOLDER_END: &str = ".splits";
const FILE_END: &str = ".split";
const LOCK_END: &str = ".lock";
/// How many digits of a digest are in the name of a file.
const NAME_DIGITS: usize = 16;
/// The most files of a store; of more, the oldest are removed.
const FILES_MAX: usize = 32;

/// Of 64 seeds that follow each other a bit each, for train, val and test.
pub(super) type Word = [u64; 3];

/// The file with the splits of the seeds of one task or pool.
pub(super) struct KeptSplits {
    folder: PathBuf,
    /// The first digits of the store's root, and of the digest of the facts.
    name: [String; 2],
    /// The bytes before the words.
    heading: Vec<u8>,
    word_count: usize,
    /// Of a file of the store, whose owner is the store's.
    of_store: Metadata,
}

impl KeptSplits {
    /// Returns the file of the splits that these facts decide; none for a changed copy of a store, in memory.
    pub(super) fn of(store: &Store, facts: &str, word_count: usize) -> Option<Self> {
        if store.is_copy() {
            return None;
        }
        let path = fs::canonicalize(store.path()).ok()?;
        let mut folder = path.file_name()?.to_owned();
        folder.push(FOLDER_END);
        let digits = |digest: Digest| digest.to_string()[..NAME_DIGITS].to_owned();
        let numbers = [VERSION, facts.len() as u64].map(u64::to_le_bytes);
        Some(Self {
            folder: path.with_file_name(folder),
            name: [digits(store.root()), digits(Digest::of(facts.as_bytes()))],
            heading: [&MAGIC, numbers.as_flattened(), facts.as_bytes()].concat(),
            word_count,
            of_store: fs::metadata(path.join(METADATA_FILE)).ok()?,
        })
    }

    fn path(&self, end: &str) -> PathBuf {
        self.folder.join(self.name.join("-") + end)
    }

    /// Reads the words; none if there is no such file, or it is not intact.
    pub(super) fn read(&self) -> Option<Vec<Word>> {
        let mut file = try_open(&self.path(FILE_END)).ok()?;
        let found = file.metadata().ok()?;
        let bytes = self.heading.len() + self.word_count * size_of::<Word>() + DIGEST_BYTES;
        if found.len() != bytes as u64 || !has_same_owner(&found, &self.of_store) {
            return None;
        }
        let mut heading = vec![0; self.heading.len()];
        file.read_exact(&mut heading).ok()?;
        if heading != self.heading {
            return None;
        }
        let mut words = vec![[0; 3]; self.word_count];
        file.read_exact(bytemuck::cast_slice_mut(&mut words)).ok()?;
        let mut digest = [0; DIGEST_BYTES];
        file.read_exact(&mut digest).ok()?;
        (self.digest(&words) == digest).then_some(words)
    }

    fn digest(&self, words: &[Word]) -> [u8; DIGEST_BYTES] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.heading).update(bytemuck::cast_slice(words));
        *hasher.finalize().as_bytes()
    }

    /// Writes the words, if this process can.
    pub(super) fn write(&self, words: &[Word]) {
        let is_new = fs::create_dir(&self.folder).is_ok();
        let _ = self.write_into_folder(words);
        if is_new {
            // Only if it is empty.
            let _ = fs::remove_dir(&self.folder);
        }
    }

    fn write_into_folder(&self, words: &[Word]) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let lease = Lease::of(&self.path(LOCK_END))?;
        // Another process writes the same, or has written it meanwhile.
        if lease.is_none() || self.read().as_deref() == Some(words) {
            return Ok(());
        }
        self.remove_old();
        let digest = self.digest(words);
        write_file_by(&Disk, &self.path(FILE_END), &mut |file| {
            let words = bytemuck::cast_slice(words);
            [&self.heading, words, &digest].iter().try_for_each(|bytes| file.write_all(bytes))
        })
    }

    /// Whether the folder is no store, and its owner is the store's.
    fn is_ours(&self) -> bool {
        fs::symlink_metadata(&self.folder)
            .is_ok_and(|found| found.is_dir() && has_same_owner(&found, &self.of_store))
            && !self.folder.join(METADATA_FILE).exists()
    }

    /// Removes the files of stores that were at this path before, and the oldest of this store's if it has
    /// too many.
    fn remove_old(&self) {
        let mut own = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            match name.to_str().and_then(root_of) {
                Some(root) if root != self.name[0] => {
                    let _ = fs::remove_file(entry.path());
                }
                Some(_) if entry.path().extension().is_some_and(|end| end == &FILE_END[1..]) => {
                    let written = entry.metadata().and_then(|found| found.modified()).ok();
                    own.push((written, entry.path()));
                }
                _ => {}
            }
        }
        own.sort();
        for (_, path) in own.iter().take((own.len() + 1).saturating_sub(FILES_MAX)) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Returns the digits of the root in the name of a file of splits, of its lock or of a temporary.
fn root_of(name: &str) -> Option<&str> {
    let (root, rest) = name.strip_prefix('.').unwrap_or(name).split_once('-')?;
    let (facts, end) = rest.split_once('.')?;
    let are_digits = |text: &str| {
        text.len() == NAME_DIGITS
            && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let is_of_splits = [FILE_END, LOCK_END].iter().any(|known| end.starts_with(&known[1..]));
    (are_digits(root) && are_digits(facts) && is_of_splits).then_some(root)
}

/// Whether two files have the same owner, so that no other user chooses the splits.
#[cfg(unix)]
fn has_same_owner(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    one.uid() == other.uid()
}

#[cfg(not(unix))]
fn has_same_owner(_: &Metadata, _: &Metadata) -> bool {
    true
}
