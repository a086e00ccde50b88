//! Copies a `.bin` file; what was damaged is found before it is written.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rayon::prelude::*;

use super::Container;
use super::file::{DIGEST_BYTES, changed_block};
use crate::bytes::filled;
use crate::error::{Error, Result};
use crate::files::open_file;

/// The bytes that are read, hashed and written together: many blocks, so that threads share the hashing.
const PIECE_BYTES: usize = 8 << 20;

impl Container {
    /// Copies the file to the new file `to`; each block is checked against its digest before it is
    /// written. The header and the section table are not checked: who opens the copy checks them.
    ///
    /// Calls `progress` with the number of bytes written since its last call; its error stops the copy.
    ///
    /// # Errors
    /// `Corrupt`, naming the file and the place, when a byte has changed; else `Io`.
    pub(crate) fn copy_to(&self, to: &Path, progress: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        self.check_gaps()?;
        let path = &self.file.path;
        let map = self.file.map.bytes();
        let mut copy = Copy {
            from: (path, open_file(path)?),
            to: (to, File::create_new(to).map_err(|e| Error::io(to, "creating", e))?),
            piece: filled(0, PIECE_BYTES.min(map.len()))?,
            progress,
        };
        let mut at = 0;
        for entry in &self.sections {
            // The header, or zeros.
            copy.copy_bytes(entry.offset - at)?;
            let (digests, _) = map[entry.digests()].as_chunks::<DIGEST_BYTES>();
            at = entry.offset;
            let block_bytes = entry.blocks.bytes();
            for digests in digests.chunks(PIECE_BYTES / block_bytes) {
                let end = entry.offset + entry.length;
                let piece = copy.read(PIECE_BYTES.min(end - at))?;
                let blocks = piece.par_chunks(block_bytes).zip(digests).enumerate();
                let changed = blocks
                    .find_first(|(_, (block, digest))| blake3::hash(block).as_bytes() != *digest);
                if let Some((number, (block, _))) = changed {
                    let from = at + number * block_bytes;
                    return Err(changed_block(path, &entry.name, from..from + block.len()));
                }
                let length = piece.len();
                copy.write(length)?;
                at += length;
            }
        }
        // Zeros, and the section table.
        copy.copy_bytes(map.len() - at)
    }
}

/// A file that is being copied, piece by piece.
struct Copy<'a> {
    from: (&'a Path, File),
    to: (&'a Path, File),
    piece: Vec<u8>,
    progress: &'a dyn Fn(u64) -> Result<()>,
}

impl Copy<'_> {
    /// Copies the next `count` bytes.
    fn copy_bytes(&mut self, mut count: usize) -> Result<()> {
        while count > 0 {
            let length = count.min(PIECE_BYTES);
            self.read(length)?;
            self.write(length)?;
            count -= length;
        }
        Ok(())
    }

    /// Reads the next `length` bytes into the piece.
    fn read(&mut self, length: usize) -> Result<&[u8]> {
        let (path, file) = &mut self.from;
        let piece = &mut self.piece[..length];
        file.read_exact(piece).map_err(|e| Error::io(path, "reading", e))?;
        Ok(piece)
    }

    /// Writes the first `length` bytes of the piece.
    fn write(&mut self, length: usize) -> Result<()> {
        let (path, file) = &mut self.to;
        file.write_all(&self.piece[..length]).map_err(|e| Error::io(path, "writing", e))?;
        (self.progress)(length as u64)
    }
}
