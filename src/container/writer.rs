//! Writes the `.bin` files of a store, section after section, in one pass.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use rayon::prelude::*;

use super::FileMetadata;
use super::file::{
    BlockSize, ENTRY_BYTES, HEADER_BYTES, MAGIC, NAME_BYTES, VERSION, VERSION_OF_SMALL_BLOCKS,
};
use super::strings::GROUP;
use crate::bytes::ALIGNMENT;
use crate::error::{Error, Result};

/// The bytes that are hashed and written together: some blocks, so that threads share the hashing.
const PIECE_BYTES: usize = 32 * BlockSize::Large.bytes();

/// After so many bytes they go to the disk while more are written, so that the fsync of the finished file
/// finds few that are not there.
const WRITTEN_OUT_BYTES: u64 = 32 << 20;

/// A `.bin` file being written.
///
/// Sections are written in order, each once, so that memory stays at one piece for any file size.
pub(crate) struct ContainerWriter {
    path: PathBuf,
    name: String,
    file: File,
    position: u64,
    entries: Vec<[u8; ENTRY_BYTES]>,
    digests: Vec<u8>,
    section: Option<OpenSection>,
    version: u32,
    /// The bytes of the section that are not written yet; they begin at a block.
    piece: Vec<u8>,
    /// The bytes that have begun to go to the disk, and the thread that waits for them.
    written_out: u64,
    writing_out: WritingOut,
}

/// A thread that waits for bytes on their way to the disk, if there is one. Dropped, it is waited for: it has the
/// file open, and after an error its folder is removed.
#[derive(Default)]
struct WritingOut(Option<JoinHandle<io::Result<()>>>);

/// The section that is being written.
struct OpenSection {
    name: String,
    start: u64,
    blocks: BlockSize,
}

impl ContainerWriter {
    /// Creates the file `name` in `folder`; the metadata record this name.
    pub(crate) fn create(folder: &Path, name: &str) -> Result<Self> {
        let path = folder.join(name);
        let mut file = File::create_new(&path).map_err(|e| Error::io(&path, "creating", e))?;
        file.write_all(&[0; HEADER_BYTES]).map_err(|e| Error::io(&path, "writing", e))?;
        Ok(Self {
            path,
            name: name.to_owned(),
            file,
            position: HEADER_BYTES as u64,
            entries: Vec::new(),
            digests: Vec::new(),
            section: None,
            version: VERSION,
            piece: Vec::new(),
            written_out: 0,
            writing_out: WritingOut::default(),
        })
    }

    /// Ends the current section and starts the section `name`.
    pub(crate) fn begin(&mut self, name: &str) -> Result<()> {
        self.begin_in_blocks(name, BlockSize::Large)
    }

    /// Ends the current section and starts the section `name`, in blocks of this size.
    pub(crate) fn begin_in_blocks(&mut self, name: &str, blocks: BlockSize) -> Result<()> {
        self.end()?;
        debug_assert!(name.len() < NAME_BYTES);
        self.pad()?;
        if blocks == BlockSize::Small {
            self.version = VERSION_OF_SMALL_BLOCKS;
        }
        self.section = Some(OpenSection { name: name.to_owned(), start: self.position, blocks });
        Ok(())
    }

    /// Appends `bytes` to the section.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        debug_assert!(self.section.is_some());
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.piece.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Appends a whole section.
    pub(crate) fn section<T: bytemuck::NoUninit>(
        &mut self,
        name: &str,
        values: &[T],
    ) -> Result<()> {
        self.begin(name)?;
        self.write(bytemuck::cast_slice(values))
    }

    /// Returns the offset of the current section in the file.
    pub(crate) fn section_start(&self) -> u64 {
        self.section.as_ref().map_or(self.position, |section| section.start)
    }

    /// Ends the current section, so that its bytes can be read back from the file.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(OpenSection { name, start, blocks }) = self.section.take() {
            let mut entry = [0; ENTRY_BYTES];
            entry[..name.len()].copy_from_slice(name.as_bytes());
            entry[24..32].copy_from_slice(&start.to_le_bytes());
            entry[32..40].copy_from_slice(&(self.position - start).to_le_bytes());
            entry[40..44].copy_from_slice(&blocks.in_entry().to_le_bytes());
            self.entries.push(entry);
        }
        Ok(())
    }

    /// Writes the section table and the header.
    pub(crate) fn finish(mut self) -> Result<FileMetadata> {
        self.end()?;
        self.pad()?;
        let table_at = self.position;
        let mut table = self.entries.concat();
        table.append(&mut self.digests);
        self.put(&table)?;

        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&self.version.to_le_bytes());
        header[12..16].copy_from_slice(&(self.entries.len() as u32).to_le_bytes());
        header[16..24].copy_from_slice(&table_at.to_le_bytes());
        header[24..32].copy_from_slice(&(table.len() as u64).to_le_bytes());
        let mut hasher = blake3::Hasher::new();
        hasher.update(&header[..32]).update(&table);
        let digest = *hasher.finalize().as_bytes();
        header[32..].copy_from_slice(&digest);
        self.file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.write_all(&header))
            .map_err(|e| Error::io(&self.path, "writing", e))?;
        self.writing_out.end().map_err(|e| Error::io(&self.path, "writing", e))?;
        Ok(FileMetadata {
            path: self.name,
            length: self.position,
            digest: crate::bytes::Digest(digest),
        })
    }

    /// Pads with zeros to the next aligned offset.
    fn pad(&mut self) -> Result<()> {
        let gap = self.position.next_multiple_of(ALIGNMENT as u64) - self.position;
        self.put(&[0; ALIGNMENT][..gap as usize])
    }

    fn flush(&mut self) -> Result<()> {
        let Some(section) = &self.section else { return Ok(()) };
        let piece = std::mem::take(&mut self.piece);
        let digests =
            piece.par_chunks(section.blocks.bytes()).map(|block| *blake3::hash(block).as_bytes());
        self.digests.extend(digests.collect::<Vec<_>>().as_flattened());
        self.put(&piece)?;
        self.piece = piece;
        self.piece.clear();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, "writing", e))?;
        self.position += bytes.len() as u64;
        if self.position - self.written_out >= WRITTEN_OUT_BYTES && self.writing_out.is_over() {
            let begun = self.writing_out.end().and_then(|()| self.writing_out.begin(&self.file));
            begun.map_err(|e| Error::io(&self.path, "writing", e))?;
            self.written_out = self.position;
        }
        Ok(())
    }
}

impl WritingOut {
    fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Begins to wait for all bytes of the file so far.
    fn begin(&mut self, file: &File) -> io::Result<()> {
        let file = file.try_clone()?;
        // The call that the finished file needs anyway. Without the thread that takes longer, and that is all.
        self.0 = thread::Builder::new().spawn(move || file.sync_all()).ok();
        Ok(())
    }

    /// Waits for what goes to the disk: the system tells an error only once, so it must not be lost.
    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.0.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    }
}

impl Drop for WritingOut {
    fn drop(&mut self) {
        // There was another error before.
        let _ = self.end();
    }
}

/// Strings being written: their bytes go to the file at once, their offsets at the end.
pub(crate) struct StringsWriter {
    count: usize,
    position: u64,
    offsets: Vec<u64>,
    buffer: Vec<u8>,
}

impl StringsWriter {
    /// Begins the section `{prefix}.bytes`.
    pub(crate) fn begin(writer: &mut ContainerWriter, prefix: &str) -> Result<Self> {
        writer.begin(&format!("{prefix}.bytes"))?;
        Ok(Self { count: 0, position: 0, offsets: Vec::new(), buffer: Vec::new() })
    }

    /// Appends a string.
    pub(crate) fn push(&mut self, writer: &mut ContainerWriter, string: &str) -> Result<()> {
        if self.count.is_multiple_of(GROUP) {
            self.offsets.push(self.position);
        }
        self.buffer.clear();
        encode(string.as_bytes(), &mut self.buffer);
        self.count += 1;
        self.position += self.buffer.len() as u64;
        writer.write(&self.buffer)
    }

    /// Appends strings that were encoded to follow those before.
    pub(crate) fn append(
        &mut self,
        writer: &mut ContainerWriter,
        strings: &EncodedStrings,
    ) -> Result<()> {
        debug_assert_eq!(self.count, strings.first);
        self.offsets.extend(strings.starts.iter().map(|start| self.position + start));
        self.count += strings.count;
        self.position += strings.bytes.len() as u64;
        writer.write(&strings.bytes)
    }

    /// Returns the number of strings written.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Writes the section `{prefix}.offsets`.
    pub(crate) fn finish(self, writer: &mut ContainerWriter, prefix: &str) -> Result<()> {
        writer.section(&format!("{prefix}.offsets"), &self.offsets)
    }
}

/// Strings that are encoded before they are written, so that threads encode several runs of strings at once.
pub(crate) struct EncodedStrings {
    /// The number of strings before them.
    first: usize,
    count: usize,
    bytes: Vec<u8>,
    /// Where those begin whose offsets are recorded.
    starts: Vec<u64>,
}

impl EncodedStrings {
    /// Returns no strings, which will follow `first` others.
    pub(crate) fn after(first: usize) -> Self {
        Self { first, count: 0, bytes: Vec::new(), starts: Vec::new() }
    }

    /// Adds a string by its bytes, which must be UTF-8.
    pub(crate) fn push(&mut self, string: &[u8]) {
        if (self.first + self.count).is_multiple_of(GROUP) {
            self.starts.push(self.bytes.len() as u64);
        }
        encode(string, &mut self.bytes);
        self.count += 1;
    }
}

/// Appends a string to `bytes`, after its length.
fn encode(string: &[u8], bytes: &mut Vec<u8>) {
    let mut length = string.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(string);
}

/// Reads the next string from a file of strings that is still being written.
pub(crate) fn read_next(
    reader: &mut impl std::io::BufRead,
    string: &mut Vec<u8>,
) -> std::io::Result<()> {
    let mut length = 0_usize;
    let mut shift = 0;
    loop {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] < 0x80 {
            break;
        }
    }
    string.resize(length, 0);
    reader.read_exact(string)
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};
    use std::thread;

    use super::{ContainerWriter, WRITTEN_OUT_BYTES, WritingOut};

    /// The system tells an error of the disk once, here to the thread that waits for it.
    #[test]
    fn an_error_of_bytes_that_go_to_the_disk_early_is_told() {
        let failing = |folder: &tempfile::TempDir| {
            let mut writer = ContainerWriter::create(folder.path(), "rows.bin").unwrap();
            let failed = thread::spawn(|| Err(Error::from(ErrorKind::StorageFull)));
            while !failed.is_finished() {
                thread::yield_now();
            }
            writer.writing_out = WritingOut(Some(failed));
            writer
        };
        let is_told = |error: crate::Error| {
            let message = error.to_string();
            assert_eq!(error.kind(), crate::ErrorKind::Io);
            assert!(message.contains("rows.bin") && message.contains("no storage"), "{message}");
        };
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        is_told(failing(&one).finish().unwrap_err());
        let mut writer = failing(&other);
        writer.begin("rows").unwrap();
        is_told(writer.write(&vec![0; WRITTEN_OUT_BYTES as usize + 1]).unwrap_err());
    }
}
