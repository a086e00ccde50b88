//! Copies a `.bin` file, and checks each block of the copy.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rayon::prelude::*;

use super::Container;
use super::file::{DIGEST_BYTES, Entry, changed_block};
use crate::error::{Error, Result};
use crate::files::open_file;

/// The bytes that are copied while as many before them are checked: many pieces, so that threads share the check.
const STRETCH_BYTES: usize = 16 << 20;
/// The bytes that are read and hashed together: so few that a core's cache holds them.
const PIECE_BYTES: usize = 256 << 10;

/// Some blocks of a section that follow each other.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    section: &'a Entry,
    /// The digests of its blocks.
    digests: &'a [[u8; DIGEST_BYTES]],
    /// Where it begins and ends in the file.
    start: usize,
    end: usize,
}

impl Container {
    /// Copies the file to the new file `to`, and checks each block of the copy against its digest. The header and
    /// the section table are not checked: who opens the copy checks them.
    ///
    /// Calls `progress` with the number of bytes copied since its last call; its error stops the copy.
    ///
    /// # Errors
    /// `Corrupt`, naming the file and the place, when a byte has changed; else `Io`.
    pub(crate) fn copy_to(&self, to: &Path, progress: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        self.check_gaps()?;
        let (path, length) = (&self.file.path, self.file.map.bytes().len());
        let mut from = open_file(path)?;
        let create = File::options().read(true).write(true).create_new(true).open(to);
        let copy = create.map_err(|e| Error::io(to, "creating", e))?;
        let mut at = 0;
        let mut last: Option<Stretch<'_>> = None;
        let rest = std::iter::once((length, None));
        for (end, stretch) in self.stretches().map(|one| (one.end, Some(one))).chain(rest) {
            self.file.map.read_ahead(end..length.min(end + STRETCH_BYTES));
            let count = (end - at) as u64;
            let (copied, checked) = rayon::join(
                || append((&mut from, path), (&copy, to), count),
                || last.map_or(Ok(()), |last| last.check(path, (&copy, to))),
            );
            checked.and(copied)?;
            progress(count)?;
            (at, last) = (end, stretch);
        }
        Ok(())
    }

    /// Returns all blocks of the file, in its order.
    fn stretches(&self) -> impl Iterator<Item = Stretch<'_>> {
        self.sections.iter().flat_map(|section| {
            let (digests, _) = self.file.map.bytes()[section.digests()].as_chunks();
            let starts = (section.offset..).step_by(STRETCH_BYTES);
            let stretches = digests.chunks(STRETCH_BYTES / section.blocks.bytes());
            stretches.zip(starts).map(move |(digests, start)| {
                let end = (start + STRETCH_BYTES).min(section.offset + section.length);
                Stretch { section, digests, start, end }
            })
        })
    }
}

/// Copies the next `count` bytes; the system does so itself where it can.
fn append(from: (&mut File, &Path), to: (&File, &Path), count: u64) -> Result<()> {
    let ((from, from_path), (mut to, to_path)) = (from, to);
    let copied = io::copy(&mut from.take(count), &mut to)
        .map_err(|e| Error::io(to_path, &format!("copying {} to", from_path.display()), e))?;
    match copied == count {
        true => Ok(()),
        false => Err(Error::io(from_path, "reading", ErrorKind::UnexpectedEof.into())),
    }
}

impl Stretch<'_> {
    /// Checks the blocks of the copy; an error about them names the file `path` that was copied.
    fn check(&self, path: &Path, (copy, copy_path): (&File, &Path)) -> Result<()> {
        let block_bytes = self.section.blocks.bytes();
        let check_piece =
            |buffer: &mut Vec<u8>, (digests, start): (&[[u8; DIGEST_BYTES]], usize)| {
                let piece = &mut buffer[..PIECE_BYTES.min(self.end - start)];
                let read = copy.read_exact_at(piece, start as u64);
                read.map_err(|e| Error::io(copy_path, "reading", e))?;
                let blocks = piece.chunks(block_bytes).zip(digests);
                for ((block, digest), from) in blocks.zip((start..).step_by(block_bytes)) {
                    if blake3::hash(block).as_bytes() != digest {
                        let bytes = from..from + block.len();
                        return Err(changed_block(path, &self.section.name, bytes));
                    }
                }
                Ok(())
            };
        let pieces = self.digests.par_chunks(PIECE_BYTES / block_bytes);
        let starts = (self.start..self.end).into_par_iter().step_by(PIECE_BYTES);
        let checked = pieces.zip(starts).map_init(|| vec![0; PIECE_BYTES], check_piece);
        checked.find_map_first(Result::err).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::container::file::BlockSize;
    use crate::container::writer::ContainerWriter;

    /// Sections shorter and longer than a stretch, the last block of which is not full.
    #[test]
    fn a_changed_byte_anywhere_in_the_source_is_found_by_its_place() {
        let folder = TempDir::new().unwrap();
        let mut writer = ContainerWriter::create(folder.path(), "store.bin").unwrap();
        let bytes: Vec<u8> =
            (0..2 * STRETCH_BYTES + 12_345).map(|at| (at * at % 251) as u8).collect();
        let small = BlockSize::Small.bytes();
        writer.section("short", &bytes[..100]).unwrap();
        writer.begin_in_blocks("long", BlockSize::Small).unwrap();
        writer.write(&bytes).unwrap();
        writer.section("last", &bytes[..1000]).unwrap();
        writer.finish().unwrap();
        let (store, copy) = (folder.path().join("store.bin"), folder.path().join("copy.bin"));
        let copied = std::cell::Cell::new(0);
        let count = |bytes| {
            copied.set(copied.get() + bytes);
            Ok(())
        };
        Container::open(&store).unwrap().copy_to(&copy, &count).unwrap();
        let whole = fs::read(&store).unwrap();
        assert!(fs::read(&copy).unwrap() == whole);
        assert_eq!(copied.get(), whole.len() as u64);

        let long = Container::open(&store).unwrap().sections[1].offset;
        let last_block = bytes.len() / small * small;
        for at in [0, PIECE_BYTES - 1, PIECE_BYTES, STRETCH_BYTES - 1, STRETCH_BYTES, last_block] {
            let (start, mut changed) = (long + at / small * small, whole.clone());
            changed[long + at] ^= 1;
            fs::write(&store, changed).unwrap();
            fs::remove_file(&copy).unwrap();
            let error = Container::open(&store).unwrap().copy_to(&copy, &count).unwrap_err();
            let end = (start + small).min(long + bytes.len());
            let place = format!("section \"long\": the bytes {start}..{end} of the file");
            assert!(error.to_string().contains(&place), "{error}");
            assert!(error.to_string().contains("store.bin"), "{error}");
        }
    }
}
