//! Chains of bytes that are appended in small parts and read back whole, in memory or in one file for all.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::in_order::in_order;
use super::scratch::{Scratch, Taken};
use crate::error::{Error, Result};

/// The bytes of a chain that are open to more.
pub(super) const CHUNK_BYTES: usize = 32 << 10;

/// Writes chains of bytes, each in chunks. Threads may append to chains of their own.
pub(super) struct SpillWriter {
    scratch: Scratch,
    /// The file of the chunks that memory had no room for.
    file: Mutex<Option<(Arc<SpillFile>, u64)>>,
}

/// A file of chunks, without a name.
struct SpillFile {
    path: PathBuf,
    file: File,
}

/// Whole records of a chain.
#[derive(Clone)]
enum Chunk {
    Memory(Arc<(Vec<u8>, Taken)>),
    File { file: Arc<SpillFile>, position: u64, length: usize },
}

impl SpillWriter {
    pub(super) fn new(scratch: &Scratch) -> Self {
        Self { scratch: scratch.clone(), file: Mutex::new(None) }
    }

    /// Appends a record in parts to a chain.
    pub(super) fn append<const N: usize>(
        &self,
        chain: &mut Chain,
        parts: [&[u8]; N],
    ) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if chain.open.len() + length > CHUNK_BYTES {
            self.end_chunk(chain)?;
        }
        parts.iter().for_each(|part| chain.open.extend_from_slice(part));
        Ok(())
    }

    /// Ends a chain, to which nothing more comes.
    pub(super) fn close(&self, chain: &mut Chain) -> Result<()> {
        self.end_chunk(chain)?;
        chain.open = Vec::new();
        Ok(())
    }

    /// Puts what is open of a chain away.
    fn end_chunk(&self, chain: &mut Chain) -> Result<()> {
        let length = chain.open.len();
        if length == 0 {
            return Ok(());
        }
        if let Some(taken) = self.scratch.take(length) {
            let mut bytes = std::mem::take(&mut chain.open);
            bytes.shrink_to_fit();
            chain.chunks.push(Chunk::Memory(Arc::new((bytes, taken))));
        } else {
            let (file, position) = self.place(length)?;
            let written = file.file.write_all_at(&chain.open, position);
            written.map_err(|e| Error::io(&file.path, "writing", e))?;
            chain.chunks.push(Chunk::File { file, position, length });
            chain.open.clear();
        }
        chain.ended += length;
        Ok(())
    }

    /// Returns the file, and where so many bytes go in it.
    fn place(&self, length: usize) -> Result<(Arc<SpillFile>, u64)> {
        let mut place = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            let (path, file) = self.scratch.unnamed_file()?;
            *place = Some((Arc::new(SpillFile { path, file }), 0));
        }
        let (file, next) =
            place.as_mut().ok_or_else(|| Error::corrupt("internal error: no spill file"))?;
        let position = *next;
        *next += length as u64;
        Ok((Arc::clone(file), position))
    }

    /// Appends bytes of whole records to a chain.
    pub(super) fn append_all(&self, chain: &mut Chain, bytes: &[u8]) -> Result<()> {
        bytes.chunks(CHUNK_BYTES).try_for_each(|bytes| self.append(chain, [bytes]))
    }
}

impl Chunk {
    fn length(&self) -> usize {
        match self {
            Self::Memory(held) => held.0.len(),
            Self::File { length, .. } => *length,
        }
    }

    /// Copies the chunk, which has the length of `bytes`.
    fn read(&self, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::Memory(held) => bytes.copy_from_slice(&held.0),
            Self::File { file, position, .. } => {
                let read = file.file.read_exact_at(bytes, *position);
                read.map_err(|e| Error::io(&file.path, "reading", e))?;
            }
        }
        Ok(())
    }
}

/// Bytes that were appended: chunks, and the rest.
#[derive(Clone, Default)]
pub(super) struct Chain {
    chunks: Vec<Chunk>,
    /// The bytes of all chunks.
    ended: usize,
    open: Vec<u8>,
}

impl Chain {
    /// Returns the number of bytes.
    pub(super) fn len(&self) -> usize {
        self.ended + self.open.len()
    }

    /// Returns all bytes.
    pub(super) fn load(&self) -> Result<Vec<u8>> {
        let mut bytes = crate::bytes::filled(0, self.len())?;
        let mut at = 0;
        for chunk in &self.chunks {
            chunk.read(&mut bytes[at..at + chunk.length()])?;
            at += chunk.length();
        }
        bytes[at..].copy_from_slice(&self.open);
        Ok(bytes)
    }

    /// Returns what reads the chain from the byte `from` on.
    pub(super) fn reader(&self, mut from: u64) -> ChainReader {
        let mut first = 0;
        while let Some(chunk) = self.chunks.get(first).filter(|of| of.length() as u64 <= from) {
            from -= chunk.length() as u64;
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
        for chunk in &self.chunks {
            if let Chunk::Memory(held) = chunk {
                take(&held.0)?;
                continue;
            }
            bytes.resize(chunk.length(), 0);
            chunk.read(&mut bytes)?;
            take(&bytes)?;
        }
        take(&self.open)
    }
}

/// Reads a chain from its beginning to its end, a chunk at a time.
#[derive(Default)]
pub(super) struct ChainReader {
    /// Those that follow.
    chunks: VecDeque<Chunk>,
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
            if let Some(chunk) = self.chunks.pop_front() {
                self.bytes.resize(chunk.length(), 0);
                chunk.read(&mut self.bytes)?;
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

/// Writes what `replace` makes of each chain to a chain of its own; threads work on several chains.
pub(super) fn replaced(
    chains: &[Chain],
    spill: &SpillWriter,
    replace: impl Fn(usize, &Chain) -> Result<Vec<u8>> + Sync,
) -> Result<Vec<Chain>> {
    let mut all = Vec::with_capacity(chains.len());
    let mut numbered = chains.iter().enumerate();
    in_order(
        |_| numbered.next(),
        |(place, chain): (usize, &Chain)| replace(place, chain),
        |bytes| {
            let mut chain = Chain::default();
            spill.append_all(&mut chain, &bytes)?;
            all.push(chain);
            Ok(())
        },
    )?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{CHUNK_BYTES, Chain, SpillWriter};
    use crate::prepare::build::scratch::Scratch;

    /// In memory, in a file, and in both.
    #[test]
    fn numbers_are_read_back_from_any_place_on() {
        for memory in [1 << 30, 0, CHUNK_BYTES as u64] {
            let folder = tempfile::tempdir().unwrap();
            let writer = SpillWriter::new(&Scratch::new(folder.path().to_owned(), memory));
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

            let all: Vec<u8> = (0..count).flat_map(u32::to_le_bytes).collect();
            assert_eq!((numbers.load().unwrap(), numbers.len()), (all.clone(), all.len()));
            writer.close(&mut numbers).unwrap();
            let mut parts = Vec::new();
            let mut add = |bytes: &[u8]| {
                parts.extend_from_slice(bytes);
                Ok(())
            };
            numbers.for_each(&mut add).unwrap();
            assert_eq!((parts, numbers.len()), (all.clone(), all.len()));
            assert_eq!(others.load().unwrap(), vec![7; 3 * count as usize]);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
