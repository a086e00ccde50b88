//! Copies a `.bin` file; what was damaged is found before it is written.
//!
//! Three threads work at a time, because each waits for a disk: one loads the map and has its blocks hashed,
//! one has the system copy them, file to file, and one has the system store what was written, which would
//! otherwise begin after the last write.

use std::fs::File;
use std::io::{ErrorKind, Read, copy};
use std::ops::Range;
use std::path::Path;
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use rayon::prelude::*;

use super::Container;
use super::file::{BLOCK_BYTES, DIGEST_BYTES, Entry, changed_block};
use crate::error::{Error, Result};
use crate::files::open_file;

/// The bytes that are loaded, hashed and written together: some blocks, so that threads share the hashing.
const PIECE_BLOCKS: usize = 512;
const PIECE_BYTES: usize = PIECE_BLOCKS * BLOCK_BYTES;
/// So many pieces may be hashed and not yet written, so that they are still in memory then.
const HASHED_AHEAD: usize = 4;
/// The number of pieces after whose writing the system stores them.
const STORED_TOGETHER: usize = 8;

/// Bytes of the file; those of a section with the digests of its blocks.
struct Piece<'a> {
    bytes: Range<usize>,
    section: Option<(&'a Entry, &'a [[u8; DIGEST_BYTES]])>,
}

impl Container {
    /// Copies the file to the new file `to`; each block is checked against its digest before it is
    /// written. The header and the section table are not checked: who opens the copy checks them.
    ///
    /// Calls `progress` with the number of bytes written since its last call; its error stops the copy.
    ///
    /// # Errors
    /// `Corrupt`, naming the file and the place, when a byte has changed; `LimitExceeded` without threads;
    /// else `Io`.
    pub(crate) fn copy_to(&self, to: &Path, progress: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        self.check_gaps()?;
        let (path, map) = (&self.file.path, &self.file.map);
        let source = open_file(path)?;
        let target = File::create_new(to).map_err(|e| Error::io(to, "creating", e))?;
        let (from, to) = ((&**path, &source), (to, &target));
        scope(|scope| {
            let (to_write, hashed) = bounded(HASHED_AHEAD);
            let (to_store, unstored) = unbounded();
            let (to_report, written) = unbounded();
            let storing = start(scope, move || store(to, &unstored))?;
            let writing = start(scope, move || write((from, to), &hashed, &to_report, &to_store))?;
            let hash_all = || {
                for piece in self.pieces() {
                    written.try_iter().try_for_each(progress)?;
                    let Range { start, end } = piece.bytes;
                    // The next piece is read while this one is hashed.
                    map.read_ahead(start..map.bytes().len().min(end + PIECE_BYTES));
                    map.load(start..end).map_err(|e| Error::io(path, "reading", e))?;
                    piece.check(path, &map.bytes()[start..end])?;
                    // A writer that has failed takes no more; its error is returned below.
                    if to_write.send((end - start) as u64).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            let read = hash_all();
            drop(to_write);
            read.and(joined(writing)).and(joined(storing))?;
            written.try_iter().try_for_each(progress)
        })
    }

    /// Returns the pieces of the file, in order.
    fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let map = self.file.map.bytes();
        let starts = self.sections.iter().map(|entry| entry.offset).chain([map.len()]);
        let ends = self.sections.iter().map(|entry| entry.offset + entry.length);
        // The header, zeros between sections, and the section table.
        let between = [0].into_iter().chain(ends).zip(starts);
        let sections = self.sections.iter().map(Some).chain([None]);
        between.zip(sections).flat_map(move |((start, end), section)| {
            let plain = (start..end)
                .step_by(PIECE_BYTES)
                .map(move |at| Piece { bytes: at..end.min(at + PIECE_BYTES), section: None });
            let of_section = section.into_iter().flat_map(move |entry| {
                let (digests, _) = map[entry.digests()].as_chunks::<DIGEST_BYTES>();
                let end = entry.offset + entry.length;
                digests.chunks(PIECE_BLOCKS).enumerate().map(move |(number, digests)| {
                    let at = entry.offset + number * PIECE_BYTES;
                    let bytes = at..end.min(at + PIECE_BYTES);
                    Piece { bytes, section: Some((entry, digests)) }
                })
            });
            plain.chain(of_section)
        })
    }
}

impl Piece<'_> {
    /// Checks the blocks against their digests.
    fn check(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let Some((entry, digests)) = self.section else { return Ok(()) };
        let blocks = bytes.par_chunks(BLOCK_BYTES).zip(digests).enumerate();
        let changed =
            blocks.find_first(|(_, (block, digest))| blake3::hash(block).as_bytes() != *digest);
        let Some((number, (block, _))) = changed else { return Ok(()) };
        let from = self.bytes.start + number * BLOCK_BYTES;
        Err(changed_block(path, &entry.name, from..from + block.len()))
    }
}

/// Writes the next bytes of a file, as many as each message says, and tells that they are written, and when
/// the system should store them.
fn write(
    ((from_path, from), (to_path, mut to)): (Named<'_>, Named<'_>),
    lengths: &Receiver<u64>,
    to_report: &Sender<u64>,
    to_store: &Sender<()>,
) -> Result<()> {
    for (number, length) in lengths.iter().enumerate() {
        // On Linux the bytes do not pass through this process.
        let copied = copy(&mut from.take(length), &mut to);
        if copied.map_err(|e| Error::io(to_path, "writing", e))? < length {
            return Err(Error::io(from_path, "reading", ErrorKind::UnexpectedEof.into()));
        }
        // The other threads may have ended with an error.
        let _ = to_report.send(length);
        if number % STORED_TOGETHER == STORED_TOGETHER - 1 {
            let _ = to_store.send(());
        }
    }
    Ok(())
}

/// Has the system store what was written, at each request.
fn store((path, file): Named<'_>, requests: &Receiver<()>) -> Result<()> {
    for () in requests {
        // One call serves all requests until now.
        requests.try_iter().for_each(drop);
        file.sync_data().map_err(|e| Error::io(path, "writing", e))?;
    }
    Ok(())
}

/// A file and its path.
type Named<'a> = (&'a Path, &'a File);

fn start<'scope, F>(
    scope: &'scope Scope<'scope, '_>,
    work: F,
) -> Result<ScopedJoinHandle<'scope, Result<()>>>
where
    F: FnOnce() -> Result<()> + Send + 'scope,
{
    Builder::new().spawn_scoped(scope, work).map_err(|e| {
        Error::limit(format!(
            "cannot start a thread: {e}; stop other programs, or free some memory"
        ))
    })
}

fn joined(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
