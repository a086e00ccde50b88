//! Stores the distinct texts of a database.

use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use arrow_array::{Array, UInt32Array};
use half::f16;

use super::keys::KeyIndex;
use super::read_batch::TextColumn;
use crate::container::{ContainerWriter, StringsWriter, read_next};
use crate::error::{Error, Result};
use crate::files::open_file;
use crate::prepare::embed::Embedder;
use crate::progress::Progress;
use crate::store::{FileMetadata, TEXT_FILE};

/// The number of texts in one call of the embedder.
const TEXTS_PER_CALL: usize = 2048;

/// Distinct texts in the order of their first occurrence.
pub(super) struct Texts {
    index: KeyIndex,
    strings: StringsWriter,
    file: ContainerWriter,
    path: PathBuf,
}

impl Texts {
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let mut file = ContainerWriter::create(folder, TEXT_FILE)?;
        let strings = StringsWriter::begin(&mut file, "texts")?;
        Ok(Self { index: KeyIndex::new(), strings, file, path: folder.join(TEXT_FILE) })
    }

    /// Returns the indexes of the texts of each column of a batch, adding new texts.
    ///
    /// Texts are numbered row by row, so the numbers do not depend on the batches.
    pub(super) fn intern(&mut self, columns: &[TextColumn]) -> Result<Vec<UInt32Array>> {
        columns.iter().for_each(|column| self.index.warm(&column.digests));
        let rows = columns.first().map_or(0, |column| column.texts.len());
        let mut indexes = vec![Vec::with_capacity(rows); columns.len()];
        for row in 0..rows {
            for (TextColumn { texts, digests, .. }, indexes) in columns.iter().zip(&mut indexes) {
                if texts.is_null(row) {
                    indexes.push(0);
                    continue;
                }
                let (index, is_new) = self.index.intern(digests[row])?;
                if is_new {
                    self.strings.push(&mut self.file, texts.value(row))?;
                }
                indexes.push(index);
            }
        }
        let nulls = columns.iter().map(|column| column.texts.logical_nulls());
        Ok((indexes.into_iter().zip(nulls))
            .map(|(i, nulls)| UInt32Array::new(i.into(), nulls))
            .collect())
    }

    /// Returns the number of distinct texts.
    pub(super) fn count(&self) -> u32 {
        self.index.len() as u32
    }

    /// Writes the vectors of the texts, if there is an embedder for them, and ends the file.
    pub(super) fn finish(
        mut self,
        embedder: Option<&dyn Embedder>,
        progress: &dyn Progress,
    ) -> Result<FileMetadata> {
        drop(self.index);
        let start = self.file.section_start();
        let count = self.strings.count();
        self.strings.finish(&mut self.file, "texts")?;
        if let Some(embedder) = embedder {
            self.file.begin("vectors")?;
            let failed = |e| Error::io(&self.path, "reading", e);
            let mut reader = open_file(&self.path)?;
            reader.seek(SeekFrom::Start(start)).map_err(failed)?;
            let mut reader = BufReader::with_capacity(1 << 20, reader);
            let mut done = 0;
            while done < count {
                let now = TEXTS_PER_CALL.min(count - done);
                let texts = (0..now)
                    .map(|_| {
                        let mut text = Vec::new();
                        read_next(&mut reader, &mut text).map_err(failed)?;
                        String::from_utf8(text).map_err(|e| {
                            Error::corrupt(format!(
                                "internal error: a stored text is not UTF-8: {e}"
                            ))
                        })
                    })
                    .collect::<Result<Vec<_>>>()?;
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let mut vectors = vec![f16::ZERO; now * embedder.dimension()];
                embedder.embed(&texts, &mut vectors)?;
                self.file.write(bytemuck::cast_slice(&vectors))?;
                progress.advance(now as u64)?;
                done += now;
            }
        }
        self.file.finish()
    }
}
