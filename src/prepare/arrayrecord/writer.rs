//! Writes a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::chunks::{Chunk, SIGNATURE, padding};
use super::messages::{Entry, Summary, VERSION, postscript};
use super::records::{WINDOW_LOG, ZSTD_LEVEL, packed, plain};
use crate::error::{Error, Result};

/// A file that is written record by record.
pub(in crate::prepare) struct Writer {
    file: BufWriter<File>,
    path: PathBuf,
    at: u64,
    group_size: usize,
    /// The records of the next chunk.
    group: Vec<Vec<u8>>,
    entries: Vec<Entry>,
}

impl Writer {
    /// Creates a file whose chunks have `group_size` records, the last one the rest.
    ///
    /// Readers find a record by the number of its chunk, so no chunk may have another number.
    pub(in crate::prepare) fn create(path: &Path, group_size: usize) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io(path, "creating", e))?;
        let mut writer = Self {
            file: BufWriter::new(file),
            path: path.to_owned(),
            at: 0,
            group_size,
            group: Vec::new(),
            entries: Vec::new(),
        };
        writer.append(&Chunk::of(SIGNATURE, Vec::new()))?;
        Ok(writer)
    }

    pub(in crate::prepare) fn write(&mut self, record: Vec<u8>) -> Result<()> {
        self.group.push(record);
        if self.group.len() == self.group_size { self.write_group() } else { Ok(()) }
    }

    /// Writes the footer and the postscript; returns the length of the file.
    pub(in crate::prepare) fn finish(mut self) -> Result<u64> {
        if !self.group.is_empty() {
            self.write_group()?;
        }
        let footer = self.at;
        let summary = Summary {
            version: VERSION,
            chunk_count: self.entries.len() as u64,
            record_count: self.entries.iter().map(|entry| entry.record_count).sum(),
            options: format!(
                "group_size:{},transpose:false,pad_to_block_boundary:false,zstd:{ZSTD_LEVEL},\
                 window_log:{WINDOW_LOG}",
                self.group_size
            ),
        };
        let mut records = vec![summary.encode()];
        records.extend(self.entries.iter().map(Entry::encode));
        self.append(&packed(&records)?)?;
        self.pad()?;
        self.append(&plain(&vec![postscript(footer); 3]))?;
        self.pad()?;
        self.file.flush().map_err(|e| Error::io(&self.path, "writing", e))?;
        Ok(self.at)
    }

    fn write_group(&mut self) -> Result<()> {
        let chunk = packed(&self.group)?;
        self.group.clear();
        let Chunk { record_count, record_bytes, .. } = chunk;
        self.entries.push(Entry { offset: self.at, record_bytes, record_count });
        self.append(&chunk)
    }

    fn pad(&mut self) -> Result<()> {
        padding(self.at).map_or(Ok(()), |chunk| self.append(&chunk))
    }

    fn append(&mut self, chunk: &Chunk) -> Result<()> {
        self.at = chunk
            .write(&mut self.file, self.at)
            .map_err(|e| Error::io(&self.path, "writing", e))?;
        Ok(())
    }
}
