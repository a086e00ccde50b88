//! Stores the distinct texts of a database, numbered in the order of their first occurrence.
//!
//! The first pass spills the digest of each text to the partition of its first byte, and its bytes to a
//! file of its table. Then the partitions are worked off one by one, each with a table of its own
//! digests: a text gets the number of its *entry*, the texts of its partition before it. Then the first
//! texts of all entries are numbered and written, in the order of the bytes. At last each partition
//! replaces entries by numbers, which the second pass takes in the order in which the digests were
//! spilled. So memory holds the digests of a partition for each thread, however many texts there are.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, RecordBatch, UInt32Array};
use half::f16;
use rayon::prelude::*;

use super::chain::{Chain, ChainReader, SpillWriter, replaced};
use super::in_order::in_order;
use super::keys::{KeyDigest, KeyIndex, PARTS, part_of};
use super::read_batch::TextColumn;
use super::scratch::Scratch;
use super::text_runs::{TextRun, Unnumbered};
use crate::bytes::{filled, reserve};
use crate::container::{BlockSize, ContainerWriter, StringsWriter, read_next};
use crate::error::{Error, Result};
use crate::files::open_file;
use crate::prepare::embed::Embedder;
use crate::prepare::values::arrow_error;
use crate::progress::Progress;
use crate::store::{FileMetadata, TEXT_FILE, TextEncoding, quantise};

/// No more runs are numbered at once when they have as many bytes, however many threads there are.
const BYTES_TOGETHER: u64 = 32 << 20;

/// The number of texts in one call of the embedder.
const TEXTS_PER_CALL: usize = 2048;

/// The texts of the first pass.
pub(super) struct SpilledTexts {
    scratch: Scratch,
    spill: SpillWriter,
    /// The digests of each partition.
    digests: Vec<Chain>,
    /// Those that have been read, in their order.
    tables: Vec<TableTexts>,
    /// The file of the last one.
    bytes: Option<BufWriter<File>>,
}

/// The texts of a table in the order of its rows, and within a row in that of its columns.
struct TableTexts {
    /// The place of the table in the schema.
    place: usize,
    /// A file with the number of its partition and its length before each text.
    path: PathBuf,
    runs: Vec<TextRun>,
}

/// All texts, numbered.
pub(super) struct Texts {
    /// The numbers of each partition, in the order of its digests.
    numbers: Vec<Chain>,
    /// For each table its place in the schema, and where its numbers begin in each partition.
    starts: Vec<(usize, Vec<u64>)>,
    count: u32,
    strings: StringsWriter,
    file: ContainerWriter,
    path: PathBuf,
    scratch: Scratch,
}

/// The numbers of the texts of one table, in the order of its rows.
#[derive(Default)]
pub(super) struct TableNumbers {
    partitions: Vec<ChainReader>,
    /// The places of the columns of texts.
    columns: Vec<usize>,
}

impl SpilledTexts {
    pub(super) fn new(scratch: &Scratch) -> Self {
        Self {
            scratch: scratch.clone(),
            spill: SpillWriter::new(scratch),
            digests: vec![Chain::default(); PARTS],
            tables: Vec::new(),
            bytes: None,
        }
    }

    /// Begins the texts of the table at `place` of the schema, after those of other tables.
    pub(super) fn begin_table(&mut self, place: usize, name: &str) -> Result<()> {
        self.end_table()?;
        let path = self.scratch.folder().join(format!("{name}.texts"));
        let file = File::create_new(&path).map_err(|e| Error::io(&path, "creating", e))?;
        self.bytes = Some(BufWriter::with_capacity(1 << 20, file));
        self.tables.push(TableTexts { place, path, runs: Vec::new() });
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        let (Some(mut bytes), Some(table)) = (self.bytes.take(), self.tables.last()) else {
            return Ok(());
        };
        bytes.flush().map_err(|e| failed_to_write(&table.path, e))
    }

    /// Adds the texts of a batch of the last table; returns what is staged of each column: the partition of
    /// each text.
    pub(super) fn add(&mut self, columns: &[TextColumn]) -> Result<Vec<UInt32Array>> {
        let rows = columns.first().map_or(0, |column| column.texts.len());
        let mut partitions = vec![Vec::with_capacity(rows); columns.len()];
        let (Some(bytes), Some(table)) = (&mut self.bytes, self.tables.last_mut()) else {
            return Ok(Vec::new());
        };
        for row in 0..rows {
            let run = TextRun::last_of(&mut table.runs);
            for (TextColumn { texts, digests, .. }, partitions) in
                columns.iter().zip(&mut partitions)
            {
                if texts.is_null(row) {
                    partitions.push(0);
                    continue;
                }
                let part = part_of(digests[row]);
                self.spill.append(&mut self.digests[part], [&digests[row].to_le_bytes()])?;
                let written = run.write(bytes, part as u8, texts.value(row));
                written.map_err(|e| failed_to_write(&table.path, e))?;
                partitions.push(part as u32);
            }
        }
        let nulls = columns.iter().map(|column| column.texts.logical_nulls());
        let arrays = partitions.into_iter().zip(nulls);
        Ok(arrays.map(|(partitions, nulls)| UInt32Array::new(partitions.into(), nulls)).collect())
    }

    /// Numbers the texts, and writes each once to the file of texts in `folder`.
    pub(super) fn number(mut self, folder: &Path, progress: &dyn Progress) -> Result<Texts> {
        self.end_table()?;
        let Self { scratch, spill, digests, tables, bytes: _ } = self;
        let all = tables.iter().flat_map(|table| &table.runs).map(TextRun::count).sum();
        progress.begin("resolving references, numbering texts", Some(all));
        let entries_spill = SpillWriter::new(&scratch);
        let entries =
            replaced(&digests, &entries_spill, |_, digests| entries_of(&digests.load()?))?;
        drop((digests, spill));

        let mut file = ContainerWriter::create(folder, TEXT_FILE)?;
        let mut strings = StringsWriter::begin(&mut file, "texts")?;
        let firsts_spill = SpillWriter::new(&scratch);
        // The number of the first text of each entry.
        let mut firsts = vec![Chain::default(); PARTS];
        let mut waiting = Unnumbered::new(&entries);
        for table in &tables {
            let (bytes, mut position) = (open_file(&table.path)?, 0);
            let (mut runs, held) = (table.runs.iter(), Cell::new(0));
            in_order(
                |waits| {
                    if !waits && held.get() >= BYTES_TOGETHER {
                        return None;
                    }
                    let (run, at) = (runs.next()?, position);
                    position += run.bytes;
                    held.set(held.get() + run.bytes);
                    Some(waiting.next(run).map(|firsts| (run, at, firsts)))
                },
                |next| {
                    let (run, at, firsts) = next?;
                    let mut texts = filled(0, run.bytes as usize)?;
                    let read = bytes.read_exact_at(&mut texts, at);
                    read.map_err(|e| Error::io(&table.path, "reading", e))?;
                    Ok((run, firsts.number(&texts)?))
                },
                |(run, numbered)| {
                    held.set(held.get() - run.bytes);
                    strings.append(&mut file, &numbered.strings)?;
                    for (all, numbers) in firsts.iter_mut().zip(&numbered.numbers) {
                        firsts_spill.append_all(all, numbers)?;
                    }
                    progress.advance(run.count())
                },
            )?;
            remove(&table.path)?;
        }
        let count = waiting.count();
        drop(waiting);

        let numbers_spill = SpillWriter::new(&scratch);
        let numbers = replaced(&entries, &numbers_spill, |partition, entries| {
            let firsts = firsts[partition].load()?;
            let firsts: &[[u8; 4]] = firsts.as_chunks().0;
            let entries = entries.load()?;
            let entries = entries.as_chunks().0.iter().map(|&entry| u32::from_le_bytes(entry));
            Ok(entries.flat_map(|entry| firsts[entry as usize]).collect())
        })?;
        drop((entries, entries_spill, firsts, firsts_spill));
        let path = folder.join(TEXT_FILE);
        Ok(Texts { numbers, starts: starts(&tables), count, strings, file, path, scratch })
    }
}

impl Texts {
    /// Returns the number of distinct texts.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the numbers of the texts of the table at `place` of the schema, whose staged columns at
    /// `columns` are texts.
    pub(super) fn of_table(&self, place: usize, columns: Vec<usize>) -> TableNumbers {
        let starts = self.starts.iter().find(|(of, _)| *of == place);
        let Some((_, starts)) = starts.filter(|_| !columns.is_empty()) else {
            return TableNumbers::default();
        };
        let partitions = self.numbers.iter().zip(starts);
        let readers =
            partitions.map(|(numbers, start)| numbers.reader(start * size_of::<u32>() as u64));
        TableNumbers { partitions: readers.collect(), columns }
    }

    /// Writes the vectors of the texts, if there is an embedder for them and an encoding, and ends the file.
    pub(super) fn finish(
        mut self,
        (embedder, encoding): (&dyn Embedder, Option<TextEncoding>),
        progress: &dyn Progress,
    ) -> Result<FileMetadata> {
        let start = self.file.section_start();
        let count = self.strings.count();
        self.strings.finish(&mut self.file, "texts")?;
        if let Some(encoding) = encoding {
            self.file.begin_in_blocks("vectors", BlockSize::Small)?;
            let failed = |e| Error::io(&self.path, "reading", e);
            let mut reader = open_file(&self.path)?;
            reader.seek(SeekFrom::Start(start)).map_err(failed)?;
            let mut reader = BufReader::with_capacity(1 << 20, reader);
            // For each text, once all vectors are written: there may be more of them than memory holds.
            let (spill, mut scales) = (SpillWriter::new(&self.scratch), Chain::default());
            let mut done = 0;
            while done < count {
                let now = TEXTS_PER_CALL.min(count - done);
                let texts = (0..now)
                    .map(|_| {
                        let mut text = Vec::new();
                        read_next(&mut reader, &mut text).map_err(failed)?;
                        utf8(&text).map(str::to_owned)
                    })
                    .collect::<Result<Vec<_>>>()?;
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let mut vectors = vec![f16::ZERO; now * embedder.dimension()];
                embedder.embed(&texts, &mut vectors)?;
                match encoding {
                    TextEncoding::F16 => self.file.write(bytemuck::cast_slice(&vectors))?,
                    TextEncoding::Int8 => {
                        let (values, of_texts) = quantised(&texts, &vectors, embedder)?;
                        self.file.write(bytemuck::cast_slice(&values))?;
                        let mut of_texts = of_texts.iter();
                        of_texts.try_for_each(|scale| {
                            spill.append(&mut scales, [&scale.to_le_bytes()])
                        })?;
                    }
                }
                progress.advance(now as u64)?;
                done += now;
            }
            if encoding == TextEncoding::Int8 {
                self.file.begin_in_blocks("scales", BlockSize::Small)?;
                scales.for_each(|bytes| self.file.write(bytes))?;
            }
        }
        self.file.finish()
    }
}

impl TableNumbers {
    /// Replaces the partition of each text of the next staged batch by its number.
    pub(super) fn number(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let staged: Vec<&UInt32Array> = self
            .columns
            .iter()
            .map(|&place| batch.column(place).as_primitive::<UInt32Type>())
            .collect();
        let mut numbers = vec![Vec::with_capacity(batch.num_rows()); staged.len()];
        for row in 0..batch.num_rows() {
            for (partitions, numbers) in staged.iter().zip(&mut numbers) {
                numbers.push(match partitions.is_null(row) {
                    true => 0,
                    false => self.partitions[partitions.value(row) as usize].next()?,
                });
            }
        }
        let mut columns = batch.columns().to_vec();
        for ((&place, partitions), numbers) in self.columns.iter().zip(staged).zip(numbers) {
            columns[place] = Arc::new(UInt32Array::new(numbers.into(), partitions.logical_nulls()));
        }
        match self.columns.is_empty() {
            true => Ok(batch.clone()),
            false => RecordBatch::try_new(batch.schema(), columns).map_err(arrow_error),
        }
    }
}

/// Returns the entry of each digest: the number of different digests before its first.
fn entries_of(digests: &[u8]) -> Result<Vec<u8>> {
    let digests: &[[u8; size_of::<KeyDigest>()]] = digests.as_chunks().0;
    let mut index = KeyIndex::new();
    let mut entries = reserve(digests.len() * size_of::<u32>())?;
    for &digest in digests {
        entries.extend(index.intern(KeyDigest::from_le_bytes(digest))?.0.to_le_bytes());
    }
    Ok(entries)
}

/// Returns where the texts of each table begin in each partition.
fn starts(tables: &[TableTexts]) -> Vec<(usize, Vec<u64>)> {
    let mut next = vec![0; PARTS];
    let start_of = |table: &TableTexts| {
        let start = (table.place, next.clone());
        for run in &table.runs {
            next.iter_mut().zip(&run.counts).for_each(|(next, &count)| *next += u64::from(count));
        }
        start
    };
    tables.iter().map(start_of).collect()
}

/// Returns the vectors of texts as integers, and their scales.
fn quantised(
    texts: &[&str],
    vectors: &[f16],
    embedder: &dyn Embedder,
) -> Result<(Vec<i8>, Vec<f32>)> {
    let dimension = embedder.dimension();
    let mut values = vec![0; vectors.len()];
    let slots = values.par_chunks_mut(dimension).zip(vectors.par_chunks(dimension)).zip(texts);
    let scales = slots.map(|((values, vector), text)| {
        quantise(vector, values).map_err(|bad| {
            Error::data(format!(
                "expected finite numbers from the embedder {}, found {bad} in the vector of {text:?}; \
                 correct the embedder",
                embedder.name()
            ))
        })
    });
    // Of several errors, the first.
    let scales: Vec<Result<f32>> = scales.collect();
    Ok((values, scales.into_iter().collect::<Result<_>>()?))
}

fn failed_to_write(path: &Path, error: std::io::Error) -> Error {
    Error::io(path, "writing", error)
}

fn utf8(text: &[u8]) -> Result<&str> {
    std::str::from_utf8(text)
        .map_err(|e| Error::corrupt(format!("internal error: a stored text is not UTF-8: {e}")))
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|e| Error::io(path, "removing", e))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::UInt32Type;
    use arrow_array::{ArrayRef, RecordBatch, StringViewArray};

    use super::SpilledTexts;
    use crate::container::{Container, Strings};
    use crate::prepare::build::keys::digest;
    use crate::prepare::build::read_batch::TextColumn;
    use crate::prepare::build::scratch::Scratch;
    use crate::prepare::embed::HashingEmbedder;
    use crate::progress::Silent;
    use crate::store::TEXT_FILE;

    /// Several runs of two tables; each text is there twice, the second time in a later run or table.
    #[test]
    fn texts_are_numbered_in_their_order_on_any_number_of_threads() {
        let text = |number: usize| format!("{number} {}", "long ".repeat(200));
        let tables = [0..6000, 3000..9000].map(|numbers| {
            let again = numbers.start / 2..numbers.end;
            numbers.chain(again).map(text).collect::<Vec<_>>()
        });
        for (threads, memory) in [(1, 1 << 30), (2, 0), (7, 1 << 30)] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let mut spilled = SpilledTexts::new(&Scratch::new(folder.path().to_owned(), memory));
            let mut staged = Vec::new();
            for (place, table) in tables.iter().enumerate() {
                spilled.begin_table(place, &place.to_string()).unwrap();
                let texts = StringViewArray::from_iter_values(table);
                let digests = table.iter().map(|text| digest(text.as_bytes())).collect();
                let partitions = spilled.add(&[TextColumn { place: 0, texts, digests }]).unwrap();
                let partitions: ArrayRef = Arc::new(partitions[0].clone());
                staged.push(RecordBatch::try_from_iter([("0", partitions)]).unwrap());
            }
            assert!(spilled.tables.iter().all(|table| table.runs.len() > 2));

            let texts = pool.install(|| spilled.number(folder.path(), &Silent)).unwrap();
            let mut numbers = BTreeMap::new();
            for (place, table) in tables.iter().enumerate() {
                let numbered = texts.of_table(place, vec![0]).number(&staged[place]).unwrap();
                let found = numbered.column(0).as_primitive::<UInt32Type>();
                for (text, &found) in table.iter().zip(found.values()) {
                    let next = numbers.len() as u32;
                    assert_eq!(found, *numbers.entry(text).or_insert(next), "{threads} threads");
                }
            }
            assert_eq!(texts.count() as usize, numbers.len());
            texts.finish((&HashingEmbedder::new(8), None), &Silent).unwrap();
            let file = Container::open_alone(&folder.path().join(TEXT_FILE)).unwrap();
            let strings = Strings::open(&file, "texts", numbers.len()).unwrap();
            for (text, number) in numbers {
                assert_eq!(strings.get(number as usize).unwrap(), *text);
            }
        }
    }
}
