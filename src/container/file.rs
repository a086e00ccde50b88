//! Reads a `.bin` file: named sections, each in blocks that have a digest.
//!
//! `FORMAT.md` describes the bytes. A [`Container`] trusts nothing: it checks the section table when
//! it opens a file, and every block against its digest on first read, so that damage is reported
//! where it is found and is never decoded.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::checks::{Checks, SHARED_BYTES_MIN};
use super::read_ahead::ReadAhead;
use crate::bytes::{ALIGNMENT, Digest, no_memory, u32_at, u64_at};
use crate::error::{Error, Result};
use crate::files::open_file;
#[cfg(feature = "prepare")]
use crate::files::try_open;
use crate::map::{Map, Memory, Words};

pub(super) const MAGIC: [u8; 8] = *b"HWSTORE\0";
/// The version of a file whose sections all have large blocks.
pub(super) const VERSION: u32 = 1;
/// The version of a file in which a section has small blocks.
pub(super) const VERSION_OF_SMALL_BLOCKS: u32 = 2;
pub(super) const HEADER_BYTES: usize = 64;
pub(super) const ENTRY_BYTES: usize = 64;
pub(super) const NAME_BYTES: usize = 24;
pub(super) const DIGEST_BYTES: usize = 32;
const CACHE_LINE: usize = 64;

const _: () = assert!(
    HEADER_BYTES.is_multiple_of(ALIGNMENT) && BlockSize::Small.bytes().is_multiple_of(ALIGNMENT)
);

/// The size of the blocks of a section, each of which has a digest. A process that reads a few bytes first
/// checks their whole block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockSize {
    /// 8 KiB, for scattered reads of a store that memory does not hold: as few bytes as BLAKE3 hashes at the
    /// full speed of AVX2. It hashes 4 KiB at two thirds of that.
    Small = 13,
    /// 16 KiB, as few bytes as BLAKE3 hashes at the full speed of any processor.
    Large = 14,
}

impl BlockSize {
    /// Returns the number of bytes of a block.
    pub(super) const fn bytes(self) -> usize {
        1 << self as u32
    }

    /// Returns the block of a byte of the section.
    #[inline]
    const fn block_of(self, at: usize) -> usize {
        at >> self as u32
    }

    /// Returns the number of blocks of a section of `length` bytes.
    pub(super) const fn count(self, length: usize) -> usize {
        length.div_ceil(self.bytes())
    }

    /// Returns how the entry of a section names the size: large blocks have no name.
    pub(super) const fn in_entry(self) -> u32 {
        match self {
            Self::Small => self.bytes() as u32,
            Self::Large => 0,
        }
    }
}

/// One open file of a store.
#[derive(Clone)]
pub(crate) struct Container {
    pub(super) file: Arc<File>,
    pub(super) sections: Vec<Entry>,
    /// Whether the bytes are a copy in memory, which no digest fits.
    is_copy: bool,
}

pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) map: Map,
    checks: Checks,
    /// What is read ahead; unset while memory holds the files.
    read_ahead: OnceLock<Arc<ReadAhead>>,
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) blocks: BlockSize,
    digests_at: usize,
    /// The words of the file's checks that have a bit for each of the section's blocks.
    words: Range<usize>,
}

impl Entry {
    /// Where the digests of the section's blocks lie in the file.
    #[cfg(feature = "prepare")]
    pub(super) fn digests(&self) -> Range<usize> {
        self.digests_at..self.digests_at + self.blocks.count(self.length) * DIGEST_BYTES
    }
}

impl Container {
    /// Maps the file and checks its header and section table.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_sharing(path, SHARED_BYTES_MIN)
    }

    /// Opens the file for a reading from end to end, whose checks no other process shares.
    #[cfg(feature = "prepare")]
    pub(crate) fn open_alone(path: &Path) -> Result<Self> {
        Self::open_sharing(path, usize::MAX)
    }

    /// Opens the file; other processes share its checks if it has at least `shared_min` bytes.
    pub(super) fn open_sharing(path: &Path, shared_min: usize) -> Result<Self> {
        check_is_file(path)?;
        let file = open_file(path)?;
        let map = Map::of(&file, path)?;
        let (sections, digest) =
            parse(map.bytes()).map_err(|e| e.context(format_args!("{}", path.display())))?;
        let words = words_of(&sections);
        let checks = match map.bytes().len() >= shared_min {
            true => Checks::shared(words, digest, &file),
            false => Checks::own(words),
        };
        Ok(Self::of(path, map, checks, sections, false))
    }

    fn of(path: &Path, map: Map, checks: Checks, sections: Vec<Entry>, is_copy: bool) -> Self {
        let file = File { path: path.to_path_buf(), map, checks, read_ahead: OnceLock::new() };
        Self { file: Arc::new(file), sections, is_copy }
    }

    /// Returns a copy of the file in memory whose sections `change` has changed: it is called with the
    /// name and the bytes of each. Every block of the file is checked first.
    pub(crate) fn changed(
        &self,
        mut change: impl FnMut(&str, &mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let length = self.file.map.bytes().len();
        let mut memory = Memory::zeros(length).ok_or_else(|| no_memory(length))?;
        for entry in &self.sections {
            let bytes = &mut memory.bytes_mut()[entry.offset..entry.offset + entry.length];
            bytes.copy_from_slice(self.section_checked_anew(entry).get(0, entry.length)?);
            change(&entry.name, bytes)?;
        }
        let checks = Checks::all_set(words_of(&self.sections));
        let map = memory.into_map()?;
        Ok(Self::of(&self.file.path, map, checks, self.sections.clone(), true))
    }

    /// Returns the digest of the header and the section table, which holds every block's digest.
    pub(crate) fn digest(&self) -> Digest {
        header_digest(self.file.map.bytes()).unwrap_or(Digest([0; 32]))
    }

    /// Returns the length of the file in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file.map.bytes().len() as u64
    }

    /// Reads blocks ahead from now on, because memory does not hold the files that share `read_ahead`.
    pub(super) fn start_reading_ahead(&self, read_ahead: Arc<ReadAhead>) {
        self.file.map.expect_scattered_reads();
        // Files that are read ahead already go on as before.
        let _ = self.file.read_ahead.set(read_ahead);
    }

    /// Whether blocks are read ahead, because memory does not hold the files.
    pub(crate) fn reads_ahead(&self) -> bool {
        self.file.read_ahead.get().is_some()
    }

    /// Whether the bytes are a copy in memory.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Begins a batch, for all files that are read ahead together.
    pub(crate) fn begin_batch(&self) {
        if let Some(read_ahead) = self.file.read_ahead.get() {
            read_ahead.begin_batch();
        }
    }

    /// Reads the file into memory, from its beginning to its end.
    pub(crate) fn warm(&self, progress: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        const PIECE: usize = 8 << 20;
        let length = self.file.map.bytes().len();
        for from in (0..length).step_by(PIECE) {
            let to = length.min(from + PIECE);
            // The next piece is read while this one is waited for.
            self.file.map.read_ahead(from..length.min(to + PIECE));
            let fail = |e| Error::io(&self.file.path, "reading", e);
            self.file.map.load(from..to).map_err(fail)?;
            progress((to - from) as u64)?;
        }
        Ok(())
    }

    /// Returns the section `name`, which must be exactly `length` bytes long.
    pub(crate) fn section(&self, name: &str, length: u64) -> Result<Section> {
        let section = self.any_section(name)?;
        if section.len() as u64 != length {
            return Err(self.corrupt(format!(
                "section {name:?}: expected {length} bytes by the metadata, found {}",
                section.len()
            )));
        }
        Ok(section)
    }

    /// Returns the section `name`, of any length.
    pub(crate) fn any_section(&self, name: &str) -> Result<Section> {
        let entry = self
            .sections
            .iter()
            .find(|s| s.name == name)
            .ok_or_else(|| self.corrupt(format!("expected a section {name:?}, found none")))?;
        Ok(self.section_of(entry, self.file.checks.part(entry.words.clone())))
    }

    /// Returns a section each block of which is checked anew, whatever this or another process has checked.
    fn section_checked_anew(&self, entry: &Entry) -> Section {
        let count = entry.words.len();
        let checks = if self.is_copy { Checks::all_set(count) } else { Checks::own(count) };
        self.section_of(entry, checks.part(0..count))
    }

    fn section_of(&self, entry: &Entry, checked: Words) -> Section {
        Section {
            file: Arc::clone(&self.file),
            name: entry.name.clone(),
            offset: entry.offset,
            length: entry.length,
            blocks: entry.blocks,
            digests_at: entry.digests_at,
            checked,
        }
    }

    /// Checks every byte of the file, whatever was checked before: blocks against their digests, and that gaps
    /// are zero.
    pub(crate) fn verify(&self, progress: &dyn Fn(u64) -> Result<()>) -> Result<()> {
        self.check_gaps()?;
        for entry in &self.sections {
            let section = self.section_checked_anew(entry);
            for block in 0..entry.blocks.count(entry.length) {
                section.check_block(block)?;
                progress(section.block(block).len() as u64)?;
            }
        }
        Ok(())
    }

    /// Checks that there are zeros between the sections, and before the section table.
    pub(super) fn check_gaps(&self) -> Result<()> {
        let bytes = self.file.map.bytes();
        let mut end = HEADER_BYTES;
        for entry in &self.sections {
            let gap = bytes.get(end..entry.offset).unwrap_or(&[]);
            if gap.iter().any(|&b| b != 0) {
                let name = &entry.name;
                return Err(self.corrupt(format!(
                    "expected zeros in the {} bytes before section {name:?}, found others",
                    gap.len()
                )));
            }
            end = entry.offset + entry.length;
        }
        let table_at = u64_at(bytes, 16).map_or(end, |at| at as usize);
        if bytes.get(end..table_at).unwrap_or(&[]).iter().any(|&b| b != 0) {
            return Err(self.corrupt("expected zeros before the section table, found others"));
        }
        Ok(())
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        corrupt(&self.file.path, what)
    }
}

/// Whether a file begins as the files of a store of any version do.
#[cfg(feature = "prepare")]
pub(crate) fn is_container(path: &Path) -> std::io::Result<bool> {
    use std::io::Read;
    let mut start = Vec::new();
    try_open(path)?.take(MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == MAGIC)
}

/// Rejects a folder, and a pipe, because opening a pipe may wait for ever.
pub(crate) fn check_is_file(path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).map_err(|e| Error::io(path, "opening", e))?.file_type();
    match (found.is_file(), found.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(corrupt(path, "expected a file, found a folder")),
        _ => Err(corrupt(path, "expected a file, found a pipe or a device")),
    }
}

fn corrupt_section(path: &Path, name: &str, what: impl std::fmt::Display) -> Error {
    corrupt(path, format_args!("section {name:?}: {what}"))
}

/// Returns the error of a block that is not the one that was written.
pub(super) fn changed_block(path: &Path, section: &str, bytes: Range<usize>) -> Error {
    let Range { start, end } = bytes;
    let what = format_args!("the bytes {start}..{end} of the file do not match their digest");
    corrupt_section(path, section, what)
}

fn corrupt(path: &Path, what: impl std::fmt::Display) -> Error {
    damaged(what).context(path.display())
}

/// The remedy for a damaged file of a store.
pub(crate) const COPY_AGAIN: &str =
    "; copy the store again from an intact copy, or prepare it again";

/// Returns the error of a damaged file, with its remedy.
fn damaged(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{what}{COPY_AGAIN}"))
}

/// Returns the digest in the header, which [`parse`] checks.
fn header_digest(bytes: &[u8]) -> Option<Digest> {
    Some(Digest(*bytes.get(32..)?.first_chunk()?))
}

/// Returns the number of words of the checks of a file with these sections.
fn words_of(sections: &[Entry]) -> usize {
    sections.last().map_or(0, |last| last.words.end)
}

/// Reads and checks the header and the section table; returns the sections, and the digest in the header.
fn parse(bytes: &[u8]) -> Result<(Vec<Entry>, Digest)> {
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Err(Error::not_ours(
            "expected a file of a headwater store, which begins with HWSTORE, found another kind of file",
        ));
    }
    let short = || damaged("the file ends inside its header");
    let version = u32_at(bytes, 8).ok_or_else(short)?;
    if !(VERSION..=VERSION_OF_SMALL_BLOCKS).contains(&version) {
        return Err(Error::version(format!(
            "expected a file of format version {VERSION} or {VERSION_OF_SMALL_BLOCKS}, found version \
             {version}; prepare the store with \
             this version of headwater, or read it with the version that wrote it"
        )));
    }
    let count = u32_at(bytes, 12).ok_or_else(short)? as usize;
    let table_at = u64_at(bytes, 16).ok_or_else(short)?;
    let table_bytes = u64_at(bytes, 24).ok_or_else(short)?;
    let recorded = header_digest(bytes).ok_or_else(short)?;
    if table_at.checked_add(table_bytes) != Some(bytes.len() as u64) {
        return Err(damaged(format_args!(
            "expected a file of {} bytes by its header, found {}",
            table_at.saturating_add(table_bytes),
            bytes.len()
        )));
    }
    let table = bytes.get(table_at as usize..).ok_or_else(short)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes[..32]).update(table);
    if *hasher.finalize().as_bytes() != recorded.0 {
        return Err(damaged("the section table does not match the header's digest"));
    }
    let sections = entries(table, count, table_at as usize)?;
    let is_small = |section: &Entry| section.blocks == BlockSize::Small;
    if sections.iter().any(is_small) != (version == VERSION_OF_SMALL_BLOCKS) {
        return Err(damaged(format_args!(
            "the section table is wrong: expected blocks of 8 KiB in files of format version \
             {VERSION_OF_SMALL_BLOCKS} and in no others, found version {version}"
        )));
    }
    Ok((sections, recorded))
}

/// Reads the section table. Its digest is right; its numbers are checked all the same, because
/// later reads take slices by them.
fn entries(table: &[u8], count: usize, table_at: usize) -> Result<Vec<Entry>> {
    let wrong = |what: &str| damaged(format_args!("the section table is wrong: {what}"));
    let digests_start = count.checked_mul(ENTRY_BYTES).ok_or_else(|| wrong("too many sections"))?;
    let mut digests_at = digests_start;
    let mut end = HEADER_BYTES;
    let mut sections: Vec<Entry> = Vec::new();
    for raw in table.get(..digests_start).ok_or_else(|| wrong("cut off"))?.chunks(ENTRY_BYTES) {
        let name = std::str::from_utf8(raw[..NAME_BYTES].trim_ascii_end())
            .map(|name| name.trim_end_matches('\0').to_owned())
            .map_err(|_| wrong("a section's name is not text"))?;
        let offset = u64_at(raw, 24).and_then(|v| usize::try_from(v).ok());
        let length = u64_at(raw, 32).and_then(|v| usize::try_from(v).ok());
        let (Some(offset), Some(length)) = (offset, length) else {
            return Err(wrong("a section is larger than this machine's memory"));
        };
        let stop = offset.checked_add(length).ok_or_else(|| wrong("a section overflows"))?;
        if offset % ALIGNMENT != 0 || offset < end || stop > table_at {
            return Err(wrong("a section overlaps another, or is not aligned"));
        }
        let size = u32_at(raw, 40).unwrap_or_default();
        let sizes = [BlockSize::Small, BlockSize::Large];
        let Some(blocks) = sizes.into_iter().find(|blocks| blocks.in_entry() == size) else {
            return Err(wrong("a section has blocks of an unknown size"));
        };
        if raw[44..].iter().any(|&b| b != 0) || sections.iter().any(|s| s.name == name) {
            return Err(wrong("reserved bytes are set, or two sections have one name"));
        }
        let count = blocks.count(length);
        let first_word = words_of(&sections);
        let words = first_word..first_word + count.div_ceil(64);
        let at = table_at + digests_at;
        sections.push(Entry { name, offset, length, blocks, digests_at: at, words });
        digests_at += count * DIGEST_BYTES;
        end = stop;
    }
    if digests_at != table.len() {
        return Err(wrong("it does not hold one digest for each block"));
    }
    Ok(sections)
}

/// One section of a file; each block is checked on first read.
pub(crate) struct Section {
    file: Arc<File>,
    name: String,
    offset: usize,
    length: usize,
    blocks: BlockSize,
    digests_at: usize,
    /// A bit for each block that matched its digest.
    checked: Words,
}

impl Section {
    /// Returns the number of bytes of the section.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns the bytes `[at, at + count)` of the section.
    ///
    /// # Cost
    /// A bit test for each block touched; the first touch of a block computes its digest.
    #[inline]
    pub(crate) fn get(&self, at: usize, count: usize) -> Result<&[u8]> {
        let end = at.checked_add(count).filter(|&end| end <= self.length);
        let Some(end) = end else { return Err(self.out_of_range(at, count)) };
        if count > 0 {
            for block in self.blocks.block_of(at)..=self.blocks.block_of(end - 1) {
                self.check_block(block)?;
            }
        }
        Ok(&self.file.map.bytes()[self.offset + at..self.offset + end])
    }

    /// Returns `count` values of `T` from the `first` on, in place.
    #[inline]
    pub(crate) fn slice<T: bytemuck::Pod>(&self, first: usize, count: usize) -> Result<&[T]> {
        let size = size_of::<T>();
        let bytes = match (first.checked_mul(size), count.checked_mul(size)) {
            (Some(at), Some(count)) => self.get(at, count)?,
            _ => return Err(self.out_of_range(first, count)),
        };
        bytemuck::try_cast_slice(bytes)
            .map_err(|e| corrupt(&self.file.path, format!("section {:?}: {e}", self.name)))
    }

    /// Returns the value of `T` at `index`.
    #[inline]
    pub(crate) fn value<T: bytemuck::Pod>(&self, index: usize) -> Result<T> {
        self.slice(index, 1).map(|values| values[0])
    }

    /// Loads the bytes `[at, at + count)`, which will all be read, into memory at once.
    #[cfg(feature = "prepare")]
    pub(crate) fn populate(&self, at: usize, count: usize) {
        self.file.map.populate(self.in_file(at, count));
    }

    /// Gives back the memory of the bytes `[at, at + count)`, which are read no more.
    #[cfg(feature = "prepare")]
    pub(crate) fn release(&self, at: usize, count: usize) {
        self.file.map.release(self.in_file(at, count));
    }

    /// Where the bytes `[at, at + count)` of the section lie in the file, as far as they are there.
    #[cfg(feature = "prepare")]
    fn in_file(&self, at: usize, count: usize) -> Range<usize> {
        let (from, to) = (at.min(self.length), at.saturating_add(count).min(self.length));
        self.offset + from..self.offset + to
    }

    /// Prefetches the bytes `[at, at + count)`: from memory, or from the disk.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize, count: usize) {
        if let Some(ahead) = self.file.read_ahead.get()
            && self.try_read_ahead(ahead, at, count)
        {
            return;
        }
        let start = self.offset.saturating_add(at);
        let end = start.saturating_add(count);
        (start..end).step_by(CACHE_LINE).for_each(|line| self.file.map.prefetch(line));
    }

    /// Reads the bytes `[at, at + count)` ahead, without waiting, if memory does not hold the file.
    #[inline]
    pub(crate) fn read_ahead(&self, at: usize, count: usize) {
        if let Some(ahead) = self.file.read_ahead.get() {
            self.try_read_ahead(ahead, at, count);
        }
    }

    /// Reads the bytes `[at, at + count)` ahead, without waiting; false when they count as in memory.
    ///
    /// A block that was not checked yet is read whole, because its check needs all of it.
    #[cold]
    fn try_read_ahead(&self, ahead: &ReadAhead, at: usize, count: usize) -> bool {
        let end = at.saturating_add(count).min(self.length);
        if at >= end {
            return false;
        }
        let (first, last) = (self.blocks.block_of(at), self.blocks.block_of(end - 1));
        if !ahead.includes_checked() && (first..=last).all(|block| self.is_checked(block)) {
            return false;
        }
        let from = if self.is_checked(first) { at } else { self.start_of(first) };
        let to = if self.is_checked(last) { end } else { self.end_of(last) };
        self.file.map.read_ahead(self.offset + from..self.offset + to);
        true
    }

    /// Reads ahead block `block`, which is about to be checked, and some more if the blocks before it
    /// were checked and those after it were not: then the section is read from end to end.
    fn read_ahead_to_check(&self, block: usize) {
        const SCAN: usize = 8;
        const AHEAD: usize = 64;
        let blocks = self.blocks.count(self.length);
        let is_scan = block >= SCAN
            && (block - SCAN..block).all(|before| self.is_checked(before))
            && (block..blocks.min(block + SCAN)).all(|after| !self.is_checked(after));
        // Once in so many blocks, because reading ahead what is in memory costs time, too.
        let ahead = if is_scan && block.is_multiple_of(SCAN) { AHEAD } else { 1 };
        let to = self.end_of(blocks.min(block + ahead) - 1);
        self.file.map.read_ahead(self.offset + self.start_of(block)..self.offset + to);
    }

    /// Returns an error about this section.
    pub(crate) fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        corrupt_section(&self.file.path, &self.name, what)
    }

    #[cold]
    fn out_of_range(&self, at: usize, count: usize) -> Error {
        self.corrupt(format!(
            "expected a range within {} bytes, found {count} bytes at {at}",
            self.length
        ))
    }

    #[inline]
    fn check_block(&self, block: usize) -> Result<()> {
        if self.is_checked(block) {
            return Ok(());
        }
        self.check_block_against_digest(block)
    }

    #[inline]
    fn is_checked(&self, block: usize) -> bool {
        // Relaxed: the bit says only that these bytes matched their digest. The thread or the process that set it
        // wrote none of them, so no write must be seen before the bit.
        self.checked[block / 64].load(Ordering::Relaxed) >> (block % 64) & 1 == 1
    }

    #[cold]
    fn check_block_against_digest(&self, block: usize) -> Result<()> {
        if self.file.read_ahead.get().is_some() {
            self.read_ahead_to_check(block);
        }
        let at = self.digests_at + block * DIGEST_BYTES;
        let recorded = &self.file.map.bytes()[at..at + DIGEST_BYTES];
        if blake3::hash(self.block(block)).as_bytes()[..] != *recorded {
            let from = self.offset + self.start_of(block);
            let bytes = from..from + self.block(block).len();
            return Err(changed_block(&self.file.path, &self.name, bytes));
        }
        self.checked[block / 64].fetch_or(1 << (block % 64), Ordering::Relaxed);
        Ok(())
    }

    fn block(&self, block: usize) -> &[u8] {
        let bytes = self.offset + self.start_of(block)..self.offset + self.end_of(block);
        &self.file.map.bytes()[bytes]
    }

    /// Returns the start of a block in the section.
    fn start_of(&self, block: usize) -> usize {
        block * self.blocks.bytes()
    }

    /// Returns the end of a block in the section.
    fn end_of(&self, block: usize) -> usize {
        self.start_of(block + 1).min(self.length)
    }
}
