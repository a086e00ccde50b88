//! The blocks of a file, and the chunks in them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use highway::{HighwayHash, HighwayHasher, Key};

use crate::bytes::u64_at;
use crate::error::{Error, Result};
use crate::files::open_file;

pub(super) const BLOCK_BYTES: u64 = 1 << 16;
const BLOCK_HEADER_BYTES: u64 = 24;
const CHUNK_HEADER_BYTES: u64 = 40;
const USABLE_BYTES: u64 = BLOCK_BYTES - BLOCK_HEADER_BYTES;

/// The kinds of chunks.
pub(super) const SIGNATURE: u8 = b's';
pub(super) const METADATA: u8 = b'm';
pub(super) const PADDING: u8 = b'p';
pub(super) const RECORDS: u8 = b'r';
pub(super) const COLUMNS: u8 = b't';

/// A chunk, whose hashes are right.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub kind: u8,
    pub record_count: u64,
    /// The bytes of all records, before compression.
    pub record_bytes: u64,
    pub data: Vec<u8>,
}

impl Chunk {
    /// Returns a chunk without records.
    pub(super) fn of(kind: u8, data: Vec<u8>) -> Self {
        Self { kind, record_count: 0, record_bytes: 0, data }
    }

    fn header(&self) -> Vec<u8> {
        with_hash(&[
            self.data.len() as u64,
            hash(&self.data),
            self.record_count << 8 | u64::from(self.kind),
            self.record_bytes,
        ])
    }

    /// Writes the chunk at the offset `begin` of a file; returns the offset of its end.
    pub(super) fn write(&self, file: &mut impl Write, begin: u64) -> io::Result<u64> {
        let end = end_of(begin, self.data.len() as u64, self.record_count);
        let mut at = begin;
        for bytes in [&self.header()[..], &self.data] {
            let mut left = bytes;
            while !left.is_empty() {
                at += block_header(file, at, begin, end)?;
                let (now, rest) = left.split_at(left.len().min(in_block(at)));
                file.write_all(now)?;
                at += now.len() as u64;
                left = rest;
            }
        }
        while at < end {
            at += block_header(file, at, begin, end)?;
            let zeros = vec![0; in_block(at).min((end - at) as usize)];
            file.write_all(&zeros)?;
            at += zeros.len() as u64;
        }
        Ok(end)
    }
}

/// Writes the header of the block at `at`, if one begins there; returns its length.
fn block_header(file: &mut impl Write, at: u64, begin: u64, end: u64) -> io::Result<u64> {
    if !at.is_multiple_of(BLOCK_BYTES) {
        return Ok(0);
    }
    file.write_all(&with_hash(&[at - begin, end - at]))?;
    Ok(BLOCK_HEADER_BYTES)
}

/// Returns numbers as bytes, behind their hash.
fn with_hash(numbers: &[u64]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    [&hash(&bytes).to_le_bytes(), &bytes[..]].concat()
}

/// Returns the numbers behind their hash; none if the hash is another.
fn without_hash<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let numbers = bytes.get(8..)?;
    (u64_at(bytes, 0)? == hash(numbers)).then_some(())?;
    let mut found = [0; N];
    for (index, number) in found.iter_mut().enumerate() {
        *number = u64_at(numbers, 8 * index)?;
    }
    Some(found)
}

fn hash(bytes: &[u8]) -> u64 {
    // The text `Riegeli/records\n`, twice.
    const HALF: [u64; 2] = [0x2f69_6c65_6765_6952, 0x0a73_6472_6f63_6572];
    HighwayHasher::new(Key([HALF[0], HALF[1], HALF[0], HALF[1]])).hash64(bytes)
}

/// The bytes from `at` to the end of its block.
fn in_block(at: u64) -> usize {
    (BLOCK_BYTES - at % BLOCK_BYTES) as usize
}

/// Returns the end of a chunk: the offset of the next one. Saturates, which is past the end of any file.
fn end_of(begin: u64, data_bytes: u64, record_count: u64) -> u64 {
    let usable = usable_before(begin).saturating_add(CHUNK_HEADER_BYTES).saturating_add(data_bytes);
    let last = usable - 1;
    let by_data = (last / USABLE_BYTES)
        .saturating_mul(BLOCK_BYTES)
        .saturating_add(BLOCK_HEADER_BYTES + last % USABLE_BYTES + 1);
    // No chunk begins in a block header or right after it.
    let by_count = begin.saturating_add(record_count);
    let by_count = match by_count % BLOCK_BYTES {
        inside @ 1..=BLOCK_HEADER_BYTES => by_count.saturating_add(BLOCK_HEADER_BYTES + 1 - inside),
        _ => by_count,
    };
    by_data.max(by_count)
}

/// Returns the number of bytes before `at` that are not of block headers.
fn usable_before(at: u64) -> u64 {
    let inside = (at % BLOCK_BYTES).saturating_sub(BLOCK_HEADER_BYTES);
    at / BLOCK_BYTES * USABLE_BYTES + inside
}

/// Returns the chunk that fills a file from `at` to the end of a block; none at the end of one.
pub(super) fn padding(at: u64) -> Option<Chunk> {
    if at.is_multiple_of(BLOCK_BYTES) {
        return None;
    }
    let mut end = at.next_multiple_of(BLOCK_BYTES);
    if end - at < CHUNK_HEADER_BYTES {
        end += BLOCK_BYTES;
    }
    let data = usable_before(end) - usable_before(at) - CHUNK_HEADER_BYTES;
    Some(Chunk::of(PADDING, vec![0; data as usize]))
}

/// A file of chunks, to be read.
pub(super) struct ChunkFile {
    file: File,
    path: PathBuf,
    pub length: u64,
}

impl ChunkFile {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = open_file(path)?;
        let length = file.metadata().map_err(|e| Error::io(path, "opening", e))?.len();
        Ok(Self { file, path: path.to_owned(), length })
    }

    /// Reads the chunk at `begin`, which ends at `limit` or before; returns it with its end.
    ///
    /// Checks each byte: the headers by their hashes and by their places, the data, and what follows it.
    pub(super) fn read(&self, begin: u64, limit: u64) -> Result<(Chunk, u64)> {
        let mut at = begin;
        let mut blocks = Vec::new();
        let header = self.bytes(&mut at, CHUNK_HEADER_BYTES, limit, &mut blocks)?;
        let [data_bytes, data_hash, kind_and_count, record_bytes] = without_hash(&header)
            .ok_or_else(|| self.damaged(begin, "the header of a chunk does not have its hash"))?;
        let (kind, record_count) = (kind_and_count as u8, kind_and_count >> 8);
        let end = end_of(begin, data_bytes, record_count);
        if end > limit {
            return Err(
                self.damaged(begin, "a chunk ends after the part of the file that it is in")
            );
        }
        let data = self.bytes(&mut at, data_bytes, limit, &mut blocks)?;
        if hash(&data) != data_hash {
            return Err(self.damaged(begin, "the data of a chunk do not have their hash"));
        }
        let after = usable_before(end) - usable_before(at);
        let zeros = self.bytes(&mut at, after, limit, &mut blocks)?;
        if zeros.iter().any(|&byte| byte != 0) {
            return Err(self.damaged(begin, "a chunk is followed by bytes other than zero"));
        }
        if blocks.iter().any(|&(at, before, after)| (at - before, at + after) != (begin, end)) {
            return Err(self.damaged(begin, "the header of a block has another chunk"));
        }
        Ok((Chunk { kind, record_count, record_bytes, data }, end))
    }

    /// Reads `count` bytes of a chunk from `at` on; appends the headers of blocks to `blocks`.
    fn bytes(
        &self,
        at: &mut u64,
        count: u64,
        limit: u64,
        blocks: &mut Vec<(u64, u64, u64)>,
    ) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < count {
            if at.is_multiple_of(BLOCK_BYTES) {
                let header = self.exactly(*at, BLOCK_HEADER_BYTES as usize, limit)?;
                let [before, after] = without_hash(&header).ok_or_else(|| {
                    self.damaged(*at, "the header of a block does not have its hash")
                })?;
                // Distances of an intact file are within it.
                if before > *at || after > self.length {
                    return Err(self.damaged(*at, "the header of a block leads out of the file"));
                }
                blocks.push((*at, before, after));
                *at += BLOCK_HEADER_BYTES;
            }
            let now = (count - bytes.len() as u64).min(in_block(*at) as u64);
            bytes.extend_from_slice(&self.exactly(*at, now as usize, limit)?);
            *at += now;
        }
        Ok(bytes)
    }

    fn exactly(&self, at: u64, count: usize, limit: u64) -> Result<Vec<u8>> {
        if at.saturating_add(count as u64) > limit {
            return Err(self.damaged(at, "a chunk ends after the part of the file that it is in"));
        }
        let mut bytes = vec![0; count];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(at, "the file ends"))
            }
            Err(e) => Err(Error::io(&self.path, "reading", e)),
        }
    }

    /// Returns an error about the file.
    pub(super) fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::data(format!("{}: {what}", self.path.display()))
    }

    /// Returns an error about damage at an offset.
    pub(super) fn damaged(&self, at: u64, what: impl std::fmt::Display) -> Error {
        self.wrong(format_args!(
            "byte {at}: {what}; the file is damaged or truncated, copy or write it again"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Chunks of many lengths at many places, also around the ends of blocks.
    #[test]
    fn chunks_are_read_as_they_were_written() {
        let mut bytes = Vec::new();
        let mut chunks = Vec::new();
        let mut at = 0;
        for step in 0..600_u64 {
            let length = match step % 7 {
                0 => 65_400 + step,
                1 => 0,
                2 => 200_000,
                _ => step * 37 % 3000,
            };
            let data: Vec<u8> = (0..length).map(|n| (n * step) as u8).collect();
            // Also more records than bytes.
            let record_count = if step % 11 == 0 { 70_000 } else { step };
            let chunk = Chunk { kind: RECORDS, record_count, record_bytes: step, data };
            chunks.push((at, chunk));
            at = chunks.last().unwrap().1.write(&mut bytes, at).unwrap();
            assert_eq!(at, bytes.len() as u64);
            if step % 5 == 0
                && let Some(chunk) = padding(at)
            {
                let end = chunk.write(&mut bytes, at).unwrap();
                assert!(end.is_multiple_of(BLOCK_BYTES) && end - at < 2 * BLOCK_BYTES);
                chunks.push((at, chunk));
                at = end;
            }
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let file = ChunkFile::open(file.path()).unwrap();
        let mut next = 0;
        for (begin, chunk) in &chunks {
            assert_eq!(*begin, next);
            let (read, end) = file.read(*begin, file.length).unwrap();
            assert_eq!(read, *chunk);
            next = end;
        }
        assert_eq!(next, file.length);
    }

    /// What no hash of the chunk has: the zeros after it, and another chunk's header of a block.
    #[test]
    fn what_is_around_a_chunk_is_checked() {
        let chunk = Chunk { kind: RECORDS, record_count: 70_000, record_bytes: 0, data: vec![] };
        let mut bytes = Vec::new();
        let end = chunk.write(&mut bytes, 0).unwrap();
        assert!((70_000..70_100).contains(&end));
        let read = |bytes: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            ChunkFile::open(file.path()).unwrap().read(0, end).map(|(chunk, _)| chunk)
        };
        assert_eq!(read(&bytes).unwrap(), chunk);
        let refused = |at: usize, changed: &[u8], message: &str| {
            let mut bytes = bytes.clone();
            bytes[at..at + changed.len()].copy_from_slice(changed);
            let found = read(&bytes).unwrap_err().to_string();
            assert!(found.contains(message), "{found}");
        };
        for at in [64, 40_000, 65_560, bytes.len() - 1] {
            refused(at, &[1], "a chunk is followed by bytes other than zero");
        }
        let block = BLOCK_BYTES;
        for distances in [[block - 1, end - block], [block, 1]] {
            refused(block as usize, &with_hash(&distances), "the header of a block has another");
        }
        for distances in [[block + 1, end - block], [u64::MAX, 0], [0, u64::MAX]] {
            let found =
                [&bytes[..block as usize], &with_hash(&distances), &bytes[65_560..]].concat();
            assert!(read(&found).is_err(), "{distances:?}");
        }
    }
}
