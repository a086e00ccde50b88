//! Reads the blocks of one part, and writes its file.

use std::path::Path;

use arrow_array::{Array, RecordBatch, StringViewArray};

use super::batch::encode;
use super::head::{Origin, PartHead, TableHead, files, in_blocks, own_tables};
use super::part::Part;
use crate::container::ContainerWriter;
use crate::error::{Context, Error, Result};
use crate::prepare::build::columns::ColumnSummary;
use crate::prepare::build::read_ahead::{Unconverted, read_ahead};
use crate::prepare::build::read_batch::{BatchReading, ReadBatch};
use crate::prepare::build::references::looked_up;
use crate::prepare::build::table_columns::TableColumns;
use crate::prepare::options::PartReport;
use crate::prepare::schema::{Schema, Table};
use crate::prepare::source::{Batches, Blocks, Source};
use crate::prepare::values::{BadValues, Values};
use crate::progress::Progress;

/// The texts of a batch, in bytes, beyond which it is written as several: a source may give a long text that
/// repeats once for many rows.
const TEXT_BYTES: usize = 64 << 20;

/// Reads the rows of a part from the source, and writes them to the file `name` in `folder`.
///
/// `schema` has the tables that tasks add.
pub(in crate::prepare) fn write_part(
    source: &dyn Source,
    schema: &Schema,
    (part, origin): (Part, Origin),
    (folder, name): (&Path, &str),
    progress: &dyn Progress,
) -> Result<PartReport> {
    let in_blocks = in_blocks(source)?;
    let mut head = PartHead::new(part, origin);
    let mut file = ContainerWriter::create(folder, name)?;
    file.begin("rows")?;
    let mut report = PartReport { part, row_count: 0, block_count: 0, part_bytes: 0 };
    let mut first_block = 0;
    for (_, table) in own_tables(schema) {
        progress.begin(&format!("reading {}", table.name), None);
        let mut write = || -> Result<TableHead> {
            let blocks = &*in_blocks.blocks(table.source_name())?;
            let count = blocks.count() as u64;
            let own = (0..count).filter(|block| part.has(first_block + block));
            let own: Vec<usize> = own.map(|block| block as usize).collect();
            first_block += count;
            let reading = TableReading::new(schema, table, blocks)?;
            let held = reading.write(&own, &mut file, progress)?;
            Ok(TableHead { table: table.name.clone(), blocks: count, held })
        };
        let table = write().context(|| format!("table {:?}", table.name))?;
        report.block_count += table.held.len() as u64;
        report.row_count +=
            table.held.iter().flatten().map(|&(rows, _)| u64::from(rows)).sum::<u64>();
        head.tables.push(table);
    }
    // What was read is of the versions that the head names.
    if files(source, schema)? != head.origin.files {
        return Err(Error::data(format!(
            "{}: a file changed while it was read; wait until its writer has ended, and make part {part} again",
            source.describe()
        )));
    }
    let text = serde_json::to_vec(&head).map_err(|e| Error::data(e.to_string()))?;
    file.section("head", &text)?;
    report.part_bytes = file.finish()?.length;
    Ok(report)
}

/// The reading of some blocks of a table.
struct TableReading<'a> {
    blocks: &'a dyn Blocks,
    columns: Vec<ColumnSummary>,
    names: Vec<String>,
    reading: BatchReading,
}

/// A batch of a block.
struct BlockBatch {
    /// The place of the block among those that the part has.
    place: usize,
    /// The number of its first row in the block.
    first_row: u64,
    batch: RecordBatch,
}

/// Rows of a batch, as the part has them.
struct Encoded {
    /// The number of the first row in the batch.
    first_row: u64,
    row_count: usize,
    bytes: Vec<u8>,
    /// The values of each column that could not be read.
    bad: Vec<Option<BadValues>>,
}

impl Unconverted for BlockBatch {
    fn row_count(&self) -> u64 {
        self.batch.row_count()
    }

    fn bytes(&self) -> usize {
        self.batch.bytes()
    }
}

impl<'a> TableReading<'a> {
    fn new(schema: &Schema, table: &Table, blocks: &'a dyn Blocks) -> Result<Self> {
        let columns = TableColumns::of(table, &looked_up(schema, &table.name))?;
        let (names, reading) = (columns.names(), columns.reading());
        Ok(Self { blocks, columns: columns.read, names, reading })
    }

    /// Writes the rows of the blocks `own`; returns the rows and the bytes of each batch of each.
    fn write(
        mut self,
        own: &[usize],
        file: &mut ContainerWriter,
        progress: &dyn Progress,
    ) -> Result<Vec<Vec<(u32, u64)>>> {
        let mut held = vec![Vec::new(); own.len()];
        let (blocks, names, reading) = (self.blocks, &self.names, &self.reading);
        let columns = &mut self.columns;
        // A bad value tells the number of its row in the table.
        let mut first_rows: Vec<Option<u64>> = vec![None; own.len()];
        let batches = (own.iter().enumerate())
            .flat_map(|(place, &block)| BlockBatches::new(blocks, names, (place, block)));
        read_ahead(
            batches,
            |_, BlockBatch { place, first_row, batch }| {
                let mut encoded = Vec::new();
                encode_all(reading, &batch, first_row, &mut encoded)?;
                Ok((place, encoded))
            },
            |(place, encoded)| {
                for Encoded { first_row, row_count, bytes, bad } in encoded {
                    for (column, bad) in columns.iter_mut().zip(bad) {
                        let Some(bad) = bad else { continue };
                        let before = match first_rows[place] {
                            Some(before) => before,
                            None => *first_rows[place].insert(blocks.rows_before(own[place])?),
                        };
                        column.note(Some(bad), before + first_row);
                    }
                    progress.advance(row_count as u64)?;
                    file.write(&bytes)?;
                    held[place].push((row_count as u32, bytes.len() as u64));
                }
                Ok(())
            },
        )?;
        self.columns.iter().try_for_each(ColumnSummary::check)?;
        Ok(held)
    }
}

/// Reads and encodes a batch: in halves, if its texts are too long.
fn encode_all(
    reading: &BatchReading,
    batch: &RecordBatch,
    first_row: u64,
    encoded: &mut Vec<Encoded>,
) -> Result<()> {
    let mut read = reading.read(batch)?;
    let rows = batch.num_rows();
    if rows > 1 && text_bytes(&read) > TEXT_BYTES {
        drop(read);
        let half = rows / 2;
        encode_all(reading, &batch.slice(0, half), first_row, encoded)?;
        let rest = batch.slice(half, rows - half);
        return encode_all(reading, &rest, first_row + half as u64, encoded);
    }
    let bad = read.columns.iter_mut().map(|column| column.bad.take()).collect();
    let bytes = encode(reading, &read)?;
    encoded.push(Encoded { first_row, row_count: rows, bytes, bad });
    Ok(())
}

/// Returns the bytes of the texts of a batch, each as often as it is there.
fn text_bytes(batch: &ReadBatch) -> usize {
    let of_array = |texts: &StringViewArray| texts.lengths().map(|length| length as usize).sum();
    let of_column = |values: &Values| match values {
        Values::Texts(texts) if texts.len() > texts.null_count() => of_array(texts),
        _ => 0,
    };
    let of_columns: usize = batch.columns.iter().map(|column| of_column(&column.values)).sum();
    let of_keys: usize = batch.key_texts.iter().flatten().map(of_array).sum();
    of_columns + of_keys
}

/// The batches of a block.
struct BlockBatches<'a> {
    blocks: &'a dyn Blocks,
    names: &'a [String],
    place: usize,
    block: usize,
    batches: Option<Result<Batches>>,
    row: u64,
}

impl<'a> BlockBatches<'a> {
    fn new(blocks: &'a dyn Blocks, names: &'a [String], (place, block): (usize, usize)) -> Self {
        let batches = Some(blocks.read(block, names, 0));
        Self { blocks, names, place, block, batches, row: 0 }
    }

    /// Returns the error of reading the block as a preparation without parts has it: with the number of the row
    /// in the table.
    fn error_in_table(&self, error: Error) -> Error {
        let again = || -> Result<Option<Error>> {
            let first_row = self.blocks.rows_before(self.block)?;
            let mut batches = self.blocks.read(self.block, self.names, first_row)?;
            Ok(batches.find_map(Result::err))
        };
        match again() {
            Ok(None) => error,
            Ok(Some(error)) | Err(error) => error,
        }
    }
}

impl Iterator for BlockBatches<'_> {
    type Item = Result<BlockBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.batches.as_mut()? {
            Ok(batches) => batches.next()?,
            Err(_) => Err(self.batches.take()?.err()?),
        };
        Some(match batch {
            Ok(batch) => {
                let first_row = self.row;
                self.row += batch.num_rows() as u64;
                Ok(BlockBatch { place: self.place, first_row, batch })
            }
            Err(error) => {
                self.batches = None;
                Err(self.error_in_table(error))
            }
        })
    }
}
