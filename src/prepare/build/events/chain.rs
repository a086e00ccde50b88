//! Chains of bytes that are appended in small parts and read back whole, in one file for all.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};

/// The bytes of a chain that are in memory before they are written.
const CHUNK_BYTES: usize = 32 << 10;

/// A file of chunks.
pub(super) struct SpillFile {
    path: PathBuf,
    file: File,
}

impl SpillFile {
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(|e| Error::io(&self.path, "reading", e))
    }
}

/// Writes chains of bytes to a file, each in chunks.
pub(super) struct SpillWriter {
    file: Arc<SpillFile>,
    position: u64,
}

impl SpillWriter {
    pub(super) fn create(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|e| Error::io(&path, "creating", e))?;
        Ok(Self { file: Arc::new(SpillFile { path, file }), position: 0 })
    }

    /// Appends a record in parts to a chain.
    pub(super) fn append<const N: usize>(
        &mut self,
        chain: &mut Chain,
        parts: [&[u8]; N],
    ) -> Result<()> {
        parts.iter().for_each(|part| chain.open.extend_from_slice(part));
        if chain.open.len() < CHUNK_BYTES {
            return Ok(());
        }
        let SpillFile { path, file } = &*self.file;
        file.write_all_at(&chain.open, self.position).map_err(|e| Error::io(path, "writing", e))?;
        chain.chunks.push((Arc::clone(&self.file), self.position, chain.open.len()));
        self.position += chain.open.len() as u64;
        chain.written += chain.open.len();
        chain.open.clear();
        Ok(())
    }
}

/// Bytes that were appended: whole chunks in the file, and the rest in memory.
#[derive(Clone, Default)]
pub(super) struct Chain {
    chunks: Vec<(Arc<SpillFile>, u64, usize)>,
    written: usize,
    open: Vec<u8>,
}

impl Chain {
    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.written + self.open.len()
    }

    /// Returns all bytes.
    pub(super) fn load(&self) -> Result<Vec<u8>> {
        let mut bytes = crate::bytes::filled(0, self.len())?;
        let mut at = 0;
        for (file, position, length) in &self.chunks {
            file.read(*position, &mut bytes[at..at + length])?;
            at += length;
        }
        bytes[at..].copy_from_slice(&self.open);
        Ok(bytes)
    }

    /// Calls `take` with the bytes of each chunk.
    pub(super) fn for_each(&self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut bytes = Vec::new();
        for (file, position, length) in &self.chunks {
            bytes.resize(*length, 0);
            file.read(*position, &mut bytes)?;
            take(&bytes)?;
        }
        take(&self.open)
    }
}
