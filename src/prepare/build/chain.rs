//! Chains of bytes that are appended in small parts and read back whole, in one file for all.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// The bytes of a chain that are in memory before they are written.
pub(super) const CHUNK_BYTES: usize = 32 << 10;

/// A file of chunks, without a name.
pub(super) struct SpillFile {
    path: PathBuf,
    file: File,
}

impl SpillFile {
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, at).map_err(|e| Error::io(&self.path, "reading", e))
    }
}

/// Writes chains of bytes to a file, each in chunks. Threads may append to chains of their own.
pub(super) struct SpillWriter {
    file: Arc<SpillFile>,
    position: AtomicU64,
}

impl SpillWriter {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let (path, file) = unnamed(folder)?;
        Ok(Self { file: Arc::new(SpillFile { path, file }), position: AtomicU64::new(0) })
    }

    /// Appends a record in parts to a chain.
    pub(super) fn append<const N: usize>(
        &self,
        chain: &mut Chain,
        parts: [&[u8]; N],
    ) -> Result<()> {
        parts.iter().for_each(|part| chain.open.extend_from_slice(part));
        if chain.open.len() < CHUNK_BYTES {
            return Ok(());
        }
        self.write_open(chain)
    }

    /// Writes what is open of a chain, to which nothing more comes; its memory is free then.
    pub(super) fn close(&self, chain: &mut Chain) -> Result<()> {
        if !chain.open.is_empty() {
            self.write_open(chain)?;
        }
        chain.open = Vec::new();
        Ok(())
    }

    fn write_open(&self, chain: &mut Chain) -> Result<()> {
        let SpillFile { path, file } = &*self.file;
        let length = chain.open.len();
        let position = self.position.fetch_add(length as u64, Ordering::Relaxed);
        file.write_all_at(&chain.open, position).map_err(|e| Error::io(path, "writing", e))?;
        chain.chunks.push((Arc::clone(&self.file), position, length));
        chain.written += length;
        chain.open.clear();
        Ok(())
    }

    /// Appends bytes of whole records to a chain.
    pub(super) fn append_all(&self, chain: &mut Chain, bytes: &[u8]) -> Result<()> {
        bytes.chunks(CHUNK_BYTES).try_for_each(|bytes| self.append(chain, [bytes]))
    }
}

/// Creates a file in `folder` and takes its name away: whatever ends the process, the file ends with it.
/// Returns what was its name.
pub(super) fn unnamed(folder: &Path) -> Result<(PathBuf, File)> {
    // Threads create some at a time.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let path = folder.join(format!("{}.spill", COUNT.fetch_add(1, Ordering::Relaxed)));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|e| Error::io(&path, "creating", e))?;
    fs::remove_file(&path).map_err(|e| Error::io(&path, "removing", e))?;
    Ok((path, file))
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

    /// Returns what reads the chain from the byte `from` on.
    pub(super) fn reader(&self, mut from: u64) -> ChainReader {
        let mut first = 0;
        while let Some((_, _, length)) = self.chunks.get(first).filter(|of| of.2 as u64 <= from) {
            from -= *length as u64;
            first += 1;
        }
        ChainReader {
            chunks: self.chunks[first..].to_vec().into(),
            open: self.open.clone(),
            bytes: Vec::new(),
            at: from as usize,
        }
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

/// Reads a chain from its beginning to its end, a chunk at a time.
#[derive(Default)]
pub(super) struct ChainReader {
    /// Those that follow.
    chunks: VecDeque<(Arc<SpillFile>, u64, usize)>,
    open: Vec<u8>,
    /// The present chunk, and where its next record begins.
    bytes: Vec<u8>,
    at: usize,
}

impl ChainReader {
    /// Returns the next number of a chain of these.
    pub(super) fn next(&mut self) -> Result<u32> {
        loop {
            let next = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk);
            if let Some(number) = next {
                self.at += size_of::<u32>();
                return Ok(u32::from_le_bytes(*number));
            }
            // A chunk has whole records; the first one is read at the place where the reader begins.
            let begins_at = if self.bytes.is_empty() { self.at } else { 0 };
            self.bytes.clear();
            if let Some((file, position, length)) = self.chunks.pop_front() {
                self.bytes.resize(length, 0);
                file.read(position, &mut self.bytes)?;
            } else {
                std::mem::swap(&mut self.bytes, &mut self.open);
            }
            self.at = begins_at;
            if self.bytes.get(self.at..).is_none_or(|rest| rest.len() < size_of::<u32>()) {
                return Err(Error::corrupt(
                    "internal error: a spilled chain of numbers is too short",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Chain, SpillWriter};

    #[test]
    fn numbers_are_read_back_from_any_place_on() {
        let folder = tempfile::tempdir().unwrap();
        let writer = SpillWriter::create(folder.path()).unwrap();
        let (mut numbers, mut others) = (Chain::default(), Chain::default());
        let count = (CHUNK_BYTES / 4 * 2 + 5) as u32;
        for number in 0..count {
            writer.append(&mut numbers, [&number.to_le_bytes()]).unwrap();
            writer.append(&mut others, [&[7_u8; 3]]).unwrap();
        }
        let chunk = (CHUNK_BYTES / 4) as u32;
        for from in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 4] {
            let mut reader = numbers.reader(u64::from(from) * 4);
            for number in from..count {
                assert_eq!(reader.next().unwrap(), number, "from {from}");
            }
            assert!(reader.next().is_err());
        }
        assert!(numbers.reader(u64::from(count) * 4).next().is_err());
        assert!(Chain::default().reader(0).next().is_err());
    }
}
