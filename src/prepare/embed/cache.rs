//! A cache of a model's vectors: a file that only grows.
//!
//! ```text
//! offset  bytes
//! 0       8     magic "HWEMBED\0"
//! 8       4     format version, 1
//! 12      4     numbers in a vector, d
//! 16      32    digest of the model's name
//! 48      16    the first bytes of the digest of bytes 0..48
//! 64      ...   entries: digest of the text (32), d f16, and the first 8 bytes of the digest of both
//! ```
//!
//! A truncated or damaged entry is ignored; its vector is requested again.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use half::f16;

use crate::bytes::{Digest, u32_at};
use crate::durable::try_lock;
use crate::error::{Error, Result};
use crate::files::open_as;
use crate::prepare::build::keys::KeyIndex;

const MAGIC: [u8; 8] = *b"HWEMBED\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const DIGEST_BYTES: usize = 32;
const CHECK_BYTES: usize = 8;

/// The open cache of one model.
pub(super) struct Cache {
    path: PathBuf,
    file: File,
    dimension: usize,
    /// The index of complete entries by text.
    index: KeyIndex,
    /// The offset of each of these entries.
    offsets: Vec<u64>,
    end: u64,
    /// Whether this process created the file.
    is_new: bool,
}

impl Cache {
    /// Opens the cache at `path`; creates it if it does not exist.
    pub(super) fn open(path: &Path, model: &str, dimension: usize) -> Result<Self> {
        let failed = |e| Error::io(path, "opening", e);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = open_as(path, options).map_err(failed)?;
        if !try_lock(&file).map_err(|e| Error::io(path, "locking", e))? {
            return Err(Error::invalid(format!(
                "another process uses the embedding cache {}; wait until it ends, or name another \
                 file",
                path.display()
            )));
        }
        let expected = header(model, dimension);
        let mut found = Vec::new();
        (&file).take(HEADER_BYTES as u64).read_to_end(&mut found).map_err(failed)?;
        if found.len() < HEADER_BYTES && expected.starts_with(&found) {
            file.seek(SeekFrom::Start(0)).map_err(failed)?;
            file.write_all(&expected).map_err(failed)?;
        } else if found != expected {
            return Err(mismatch(path, &found, model, dimension));
        }
        let mut cache = Self {
            path: path.to_path_buf(),
            file,
            dimension,
            index: KeyIndex::new(),
            offsets: Vec::new(),
            end: HEADER_BYTES as u64,
            is_new: found.is_empty(),
        };
        cache.load()?;
        Ok(cache)
    }

    /// Indexes the complete entries, and truncates an incomplete last one.
    fn load(&mut self) -> Result<()> {
        let path = self.path.clone();
        let failed = |e| Error::io(&path, "reading", e);
        let length = self.file.metadata().map_err(failed)?.len();
        let size = self.entry_bytes() as u64;
        let count = (length - HEADER_BYTES as u64) / size;
        self.file.seek(SeekFrom::Start(HEADER_BYTES as u64)).map_err(failed)?;
        let mut reader = BufReader::with_capacity(1 << 20, &self.file);
        let mut entry = vec![0; self.entry_bytes()];
        for _ in 0..count {
            reader.read_exact(&mut entry).map_err(failed)?;
            if is_complete(&entry) && self.index.intern(key_of(&entry))?.1 {
                self.offsets.push(self.end);
            }
            self.end += size;
        }
        self.file.set_len(self.end).map_err(failed)
    }

    /// Copies the vector of `text` to `vector`; returns false if there is none.
    pub(super) fn get(&mut self, text: &str, vector: &mut [f16]) -> Result<bool> {
        let digest = Digest::of(text.as_bytes());
        let Some(entry) = self.index.find(key_of(&digest.0)) else { return Ok(false) };
        let at = self.offsets[entry as usize] + DIGEST_BYTES as u64;
        let bytes = bytemuck::cast_slice_mut(vector);
        self.file
            .seek(SeekFrom::Start(at))
            .and_then(|_| self.file.read_exact(bytes))
            .map_err(|e| Error::io(&self.path, "reading", e))?;
        Ok(true)
    }

    /// Adds the vector of `text`.
    pub(super) fn put(&mut self, text: &str, vector: &[f16]) -> Result<()> {
        debug_assert_eq!(vector.len(), self.dimension);
        let mut entry = Digest::of(text.as_bytes()).0.to_vec();
        entry.extend_from_slice(bytemuck::cast_slice(vector));
        let check = Digest::of(&entry);
        entry.extend_from_slice(&check.0[..CHECK_BYTES]);
        self.file
            .seek(SeekFrom::Start(self.end))
            .and_then(|_| self.file.write_all(&entry))
            .map_err(|e| Error::io(&self.path, "writing", e))?;
        if self.index.intern(key_of(&entry))?.1 {
            self.offsets.push(self.end);
        }
        self.end += entry.len() as u64;
        Ok(())
    }

    fn entry_bytes(&self) -> usize {
        DIGEST_BYTES + self.dimension * 2 + CHECK_BYTES
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if self.is_new && self.offsets.is_empty() {
            // Removes a new file without vectors; a failure to do so is harmless.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn is_complete(entry: &[u8]) -> bool {
    let (content, check) = entry.split_at(entry.len() - CHECK_BYTES);
    Digest::of(content).0[..CHECK_BYTES] == *check
}

/// Returns the key of an entry: the first half of its text's digest.
fn key_of(digest: &[u8]) -> u128 {
    digest.first_chunk().map_or(0, |first| u128::from_le_bytes(*first))
}

fn header(model: &str, dimension: usize) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(dimension as u32).to_le_bytes());
    header.extend_from_slice(&Digest::of(model.as_bytes()).0);
    let check = Digest::of(&header);
    header.extend_from_slice(&check.0[..16]);
    header
}

/// Returns the error about a file that is not the cache of this model.
fn mismatch(path: &Path, found: &[u8], model: &str, dimension: usize) -> Error {
    let path = path.display();
    if found.get(..8) != Some(&MAGIC[..]) {
        return Error::not_ours(format!("{path} is not an embedding cache; name another file"));
    }
    if found.len() < HEADER_BYTES || Digest::of(&found[..48]).0[..16] != found[48..] {
        return Error::corrupt(format!("the embedding cache {path} is damaged; remove it"));
    }
    match (u32_at(found, 8), u32_at(found, 12)) {
        (Some(VERSION), Some(other)) if other as usize != dimension => Error::mismatch(format!(
            "expected vectors of {dimension} numbers in the embedding cache {path}, found {other}; \
             name another file"
        )),
        (Some(VERSION), _) => Error::mismatch(format!(
            "the embedding cache {path} holds vectors of another model than {model:?}; name \
             another file"
        )),
        _ => Error::version(format!(
            "the embedding cache {path} has another format version; name another file"
        )),
    }
}
