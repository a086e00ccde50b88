//! The first pass: reads each table once, as a stream, from its source into a staging file.
//!
//! Keys, links, times and texts go to spill files, so memory holds batches and categories. The staging
//! file holds cells as numbers, because z-scores and the order of categories are known only at the end.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use rayon::prelude::*;

use super::chain::SpillWriter;
use super::columns::{ColumnSummary, Summary};
use super::links::Links;
use super::parts::{PartBatch, PartBatches};
use super::read_ahead::{Unconverted, read_ahead};
use super::read_batch::ReadBatch;
use super::row_keys::{KeyLists, RowKeys, TextOf, WrittenKeys};
use super::row_numbers::{RowNumbers, RowNumbersWriter};
use super::scratch::Scratch;
use super::table_columns::TableColumns;
use super::texts::SpilledTexts;
use crate::container::ContainerWriter;
use crate::error::{Error, Result};
use crate::prepare::schema::{Limits, Table};
use crate::prepare::source::Batches;
use crate::prepare::values::{Values, arrow_error};
use crate::progress::Progress;
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, table_file};

/// The most rows of a table; the two numbers above are reserved.
const ROW_LIMIT: u64 = u32::MAX as u64 - 1;

/// A table after the first pass.
pub(super) struct Ingested {
    /// The number of rows.
    pub row_count: u32,
    /// The columns that the store keeps, in the schema's order.
    pub columns: Vec<ColumnSummary>,
    /// The keys of each list of columns that other tables refer to.
    pub keys: KeyLists,
    /// The links of each reference.
    pub links: Vec<Links>,
    /// The values of the time column.
    pub times: Option<RowNumbers<i64>>,
    /// The values of each column of times at which others are known; of a NULL a time that never comes.
    pub known_times: Vec<RowNumbers<i64>>,
    /// The number of rows that repeat a key.
    pub duplicate_keys: u64,
    /// The table's file; it contains the keys, and not yet the rows.
    pub file: ContainerWriter,
    /// The path of the staging file.
    pub staged: PathBuf,
}

/// The state of the first pass over a table.
struct Ingest<'a> {
    table: &'a Table,
    limits: &'a Limits,
    /// The columns to read; those that the store keeps come first.
    read: Vec<ColumnSummary>,
    kept: usize,
    keys: RowKeys<'a>,
    /// The links of each reference.
    references: Vec<Links>,
    time_place: Option<usize>,
    times: RowNumbersWriter<i64>,
    known_places: Vec<usize>,
    known_times: Vec<RowNumbersWriter<i64>>,
    /// Where keys and links go.
    spill: &'a SpillWriter,
    schema: SchemaRef,
    row_count: u64,
}

/// The rows of a table.
pub(super) enum TableRows<'a> {
    /// As the source has them.
    OfSource(Batches),
    /// As the parts of a preparation have them, which have read them.
    OfParts(PartBatches<'a>),
}

/// The input of the first pass over a table.
pub(super) struct TableInput<'a> {
    /// Returns the table's rows, with these columns.
    pub rows: &'a dyn Fn(&[String]) -> Result<TableRows<'a>>,
    /// The place of the table in the schema.
    pub place: usize,
    pub table: &'a Table,
    pub limits: &'a Limits,
    /// The lists of columns that other tables refer to.
    pub looked_up: &'a [Vec<String>],
    /// Where keys and links go.
    pub spill: &'a SpillWriter,
    pub scratch: &'a Scratch,
    pub text_of: &'a TextOf<'a>,
    pub folder: &'a Path,
    pub progress: &'a dyn Progress,
}

/// Reads a table from its source, and stages it.
pub(super) fn ingest(input: TableInput<'_>, texts: &mut SpilledTexts) -> Result<Ingested> {
    let TableInput { rows, place, table, text_of, scratch, progress, .. } = input;
    let columns = TableColumns::of(table, input.looked_up)?;
    let (names, reading) = (columns.names(), columns.reading());
    let mut ingest = Ingest::new(input, columns)?;
    let rows = rows(&names)?;
    let staged = scratch.folder().join(format!("{}.arrow", table.name));
    let create = File::create_new(&staged).map_err(|e| Error::io(&staged, "creating", e))?;
    let writer = BufWriter::with_capacity(1 << 20, create);
    let mut writer = StreamWriter::try_new(writer, &ingest.schema).map_err(arrow_error)?;
    if !reading.texts.is_empty() {
        texts.begin_table(place, &table.name)?;
    }
    let add = |batch: ReadBatch| {
        progress.advance(batch.row_count as u64)?;
        let staged_batch = ingest.add_batch(batch, texts)?;
        writer.write(&staged_batch).map_err(|e| staging_error(&staged, e))
    };
    match rows {
        TableRows::OfSource(batches) => read_ahead(
            batches,
            |first_row, batch: RecordBatch| {
                check_row_count(first_row + batch.num_rows() as u64)?;
                reading.read(&batch)
            },
            add,
        ),
        TableRows::OfParts(batches) => read_ahead(
            batches,
            |first_row, batch: PartBatch| {
                check_row_count(first_row + batch.row_count())?;
                batch.decode(&reading)
            },
            add,
        ),
    }?;
    writer
        .into_inner()
        .map_err(|e| staging_error(&staged, e))?
        .into_inner()
        .map_err(|e| Error::io(&staged, "writing", e.into_error()))?;
    ingest.finish(staged, text_of)
}

fn check_row_count(count: u64) -> Result<()> {
    if count > ROW_LIMIT {
        return Err(Error::limit(format!(
            "expected at most {ROW_LIMIT} rows, found more; split the table"
        )));
    }
    Ok(())
}

fn staging_error(path: &Path, error: arrow_schema::ArrowError) -> Error {
    match error {
        arrow_schema::ArrowError::IoError(_, e) => Error::io(path, "writing", e),
        other => arrow_error(other).context(path.display()),
    }
}

impl<'a> Ingest<'a> {
    fn new(input: TableInput<'a>, columns: TableColumns) -> Result<Self> {
        let TableInput { table, limits, spill, scratch, folder, .. } = input;
        let TableColumns { read, kept, keys, references, time_place, known_places, .. } = columns;
        let references = references.iter().map(|_| Links::new()).collect();
        let (name, has_key) = (table_file(&table.name), !table.key.is_empty());
        let keys = RowKeys::create(folder, &name, keys, has_key, spill)?;
        let times = || RowNumbersWriter::new(scratch);
        let schema = staging_schema(&read[..kept]);
        Ok(Self {
            table,
            limits,
            read,
            kept,
            keys,
            references,
            time_place,
            times: times(),
            known_times: known_places.iter().map(|_| times()).collect(),
            known_places,
            spill,
            schema,
            row_count: 0,
        })
    }

    /// Adds a batch; returns the cells to stage.
    fn add_batch(&mut self, mut batch: ReadBatch, texts: &mut SpilledTexts) -> Result<RecordBatch> {
        let first_row = self.row_count;
        self.row_count += batch.row_count as u64;
        for (column, read) in self.read.iter_mut().zip(&mut batch.columns) {
            column.note(read.bad.take(), first_row);
        }
        let (batch, kept) = (&batch, &mut self.read[..self.kept]);
        let (keys, references, spill) = (&mut self.keys, &mut self.references, self.spill);
        // None of these needs another.
        let ((keys, spilled), (mut staged, linked)) = rayon::join(
            || rayon::join(|| keys.add(first_row, batch), || texts.add(&batch.texts)),
            || rayon::join(|| add_cells(kept, batch), || add_links(references, spill, batch)),
        );
        keys?;
        self.read.iter().try_for_each(|column| column.check_categories(self.limits))?;
        for (column, partitions) in batch.texts.iter().zip(spilled?) {
            staged[column.place] = Arc::new(partitions);
        }
        linked?;
        if let Some(Values::Times(times)) = self.time_place.map(|place| batch.values(place)) {
            let times = times.iter().map(|time| time.unwrap_or(ALWAYS_VISIBLE));
            self.times.extend(&times.collect::<Vec<_>>())?;
        }
        for (&place, known) in self.known_places.iter().zip(&mut self.known_times) {
            if let Values::Times(times) = batch.values(place) {
                let times = times.iter().map(|time| time.unwrap_or(NEVER_VISIBLE));
                known.extend(&times.collect::<Vec<_>>())?;
            }
        }
        // A table of pairs keeps no column.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.row_count));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), staged, &options)
            .map_err(arrow_error)
    }

    fn finish(mut self, staged: PathBuf, text_of: &TextOf<'_>) -> Result<Ingested> {
        if self.row_count == 0 {
            return Err(Error::data(match self.table.labels_of {
                Some(_) => "the task has no seed; correct its rows or times, or remove it",
                None => {
                    "the table has no rows; remove it, and the references to it, from the schema"
                }
            }));
        }
        self.read.iter().try_for_each(ColumnSummary::check)?;
        let WrittenKeys { duplicates, lists, file } = self.keys.finish(self.limits, text_of)?;
        self.references.iter_mut().try_for_each(|links| links.close(self.spill))?;
        self.read.truncate(self.kept);
        let times = self.times.finish()?;
        let known_times = self.known_times.into_iter().map(RowNumbersWriter::finish);
        Ok(Ingested {
            row_count: self.row_count as u32,
            links: self.references,
            times: self.time_place.map(|_| times),
            known_times: known_times.collect::<Result<_>>()?,
            columns: self.read,
            keys: lists,
            duplicate_keys: duplicates,
            file,
            staged,
        })
    }
}

/// Adds the values of a batch to the summaries of the columns that the store keeps; returns what is staged
/// of each. Texts are staged by their partitions, which take its place.
fn add_cells(kept: &mut [ColumnSummary], batch: &ReadBatch) -> Vec<ArrayRef> {
    (kept.par_iter_mut())
        .zip(&batch.columns)
        .map(|(column, read)| column.add(&read.values))
        .collect()
}

fn add_links(references: &mut [Links], spill: &SpillWriter, batch: &ReadBatch) -> Result<()> {
    let references = references.par_iter_mut().zip(&batch.references);
    references.map(|(links, keys)| links.add(spill, keys)).collect()
}

/// Returns the schema of the staging file: the columns that the store keeps.
fn staging_schema(kept: &[ColumnSummary]) -> SchemaRef {
    let fields = kept.iter().enumerate().map(|(place, column)| {
        let kind = match column.summary {
            Summary::Identifier | Summary::Boolean { .. } => DataType::Boolean,
            Summary::Numerical(_) => DataType::Float64,
            Summary::Timestamp { .. } => DataType::Int64,
            Summary::Categorical(_) | Summary::Text => DataType::UInt32,
        };
        Field::new(place.to_string(), kind, true)
    });
    Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()))
}
