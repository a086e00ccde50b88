//! The first pass: reads each table once, as a stream, from its source into a staging file.
//!
//! Memory holds the keys (16 bytes and a slot per row), the links (4 bytes per row) and the
//! categories. The staging file holds cells as numbers, because z-scores and the order of
//! categories are known only at the end.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use rayon::prelude::*;

use super::columns::{ColumnSummary, Summary};
use super::keys::{KeyFaults, KeyIndex, identity, is_null, write_key};
use super::links::{Links, Parents};
use super::read_ahead::read_ahead;
use super::read_batch::{BatchReading, ReadBatch};
use super::texts::Texts;
use crate::bytes::{make_room, reserve};
use crate::container::{ContainerWriter, StringsWriter};
use crate::error::{Error, Result};
use crate::prepare::names::counted;
use crate::prepare::schema::{Column, Limits, Table};
use crate::prepare::source::Batches;
use crate::prepare::values::{Values, arrow_error};
use crate::progress::Progress;
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, SemanticType};

/// The most rows of a table; the two numbers above are reserved.
const ROW_LIMIT: u64 = u32::MAX as u64 - 1;

/// A table after the first pass.
pub(super) struct Ingested {
    /// The number of rows.
    pub row_count: u32,
    /// The columns that the store keeps, in the schema's order.
    pub columns: Vec<ColumnSummary>,
    /// The index of each list of columns that other tables refer to.
    pub indexes: Indexes,
    /// The links of each reference.
    pub links: Vec<Links>,
    /// The values of the time column.
    pub times: Option<Vec<i64>>,
    /// The values of each column of times at which others are known; of a NULL a time that never comes.
    pub known_times: Vec<Vec<i64>>,
    /// The number of rows that repeat a key.
    pub duplicate_keys: u64,
    /// The table's file; it contains the keys, and not yet the rows.
    pub file: ContainerWriter,
    /// The path of the staging file.
    pub staged: PathBuf,
}

/// Indexes of rows by the values of lists of columns.
pub(super) type Indexes = HashMap<Vec<String>, KeyIndex>;

/// The keys of the rows, and what finds a row by them.
struct RowKeys {
    lists: Vec<KeyColumns>,
    /// The texts of the keys, in the table's file; none of rows without a key.
    strings: Option<StringsWriter>,
    file: ContainerWriter,
    identities: Vec<u64>,
}

/// A list of columns by whose values rows are looked up.
struct KeyColumns {
    columns: Vec<String>,
    places: Vec<usize>,
    index: KeyIndex,
    nulls: KeyFaults,
    duplicates: KeyFaults,
}

/// One reference of the table.
struct ReferenceColumns<'a> {
    places: Vec<usize>,
    /// The keys of the parent table, if it has been read already.
    index: Option<&'a KeyIndex>,
    links: Links,
}

/// The state of the first pass over a table.
struct Ingest<'a> {
    table: &'a Table,
    limits: &'a Limits,
    looked_up: &'a [Vec<String>],
    /// The columns to read; those that the store keeps come first.
    read: Vec<ColumnSummary>,
    kept: usize,
    keys: RowKeys,
    references: Vec<ReferenceColumns<'a>>,
    time_place: Option<usize>,
    times: Vec<i64>,
    known_places: Vec<usize>,
    known_times: Vec<Vec<i64>>,
    schema: SchemaRef,
    row_count: u64,
}

/// The input of the first pass over a table.
pub(super) struct TableInput<'a> {
    /// Returns the table's rows, with these columns.
    pub rows: &'a dyn Fn(&[String]) -> Result<Batches>,
    pub table: &'a Table,
    pub limits: &'a Limits,
    /// The lists of columns that other tables refer to.
    pub looked_up: &'a [Vec<String>],
    /// The keys of the parent table of each reference, if that table has been read already.
    pub parents: Vec<Option<&'a KeyIndex>>,
    pub folder: &'a Path,
    pub progress: &'a dyn Progress,
}

/// Reads a table from its source, and stages it.
pub(super) fn ingest(input: TableInput<'_>, texts: &mut Texts) -> Result<Ingested> {
    let TableInput { rows, table, folder, progress, .. } = input;
    let mut ingest = Ingest::new(input)?;
    let names: Vec<String> = ingest.read.iter().map(|c| c.name.clone()).collect();
    let batches = rows(&names)?;
    let staged = folder.join("staging").join(format!("{}.arrow", table.name));
    let create = File::create_new(&staged).map_err(|e| Error::io(&staged, "creating", e))?;
    let writer = BufWriter::with_capacity(1 << 20, create);
    let mut writer = StreamWriter::try_new(writer, &ingest.schema).map_err(arrow_error)?;
    let reading = ingest.reading();
    read_ahead(
        batches,
        |first_row, batch| {
            check_row_count(first_row + batch.num_rows() as u64)?;
            reading.read(&batch)
        },
        |batch| {
            progress.advance(batch.row_count as u64)?;
            let staged_batch = ingest.add_batch(batch, texts)?;
            writer.write(&staged_batch).map_err(|e| staging_error(&staged, e))
        },
    )?;
    writer
        .into_inner()
        .map_err(|e| staging_error(&staged, e))?
        .into_inner()
        .map_err(|e| Error::io(&staged, "writing", e.into_error()))?;
    ingest.finish(staged)
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
    fn new(input: TableInput<'a>) -> Result<Self> {
        let TableInput { table, limits, looked_up, parents, folder, .. } = input;
        let summary = |(name, column): (&String, &Column)| ColumnSummary::new(name, column.clone());
        let is_kept = |column: &Column| column.semantic != SemanticType::Ignored;
        let mut read: Vec<_> =
            table.columns.iter().filter(|(_, c)| is_kept(c)).map(summary).collect();
        let kept = read.len();
        let mut place_of = |name: &String| -> Result<usize> {
            if let Some(place) = read.iter().position(|c| c.name == *name) {
                return Ok(place);
            }
            let Some(entry) = table.columns.get_key_value(name) else {
                return Err(Error::schema(format!("there is no column {name:?}")));
            };
            read.push(summary(entry));
            Ok(read.len() - 1)
        };
        let mut lists: Vec<Vec<String>> = Vec::new();
        if !table.key.is_empty() {
            lists.push(table.key.clone());
        }
        lists.extend(looked_up.iter().filter(|list| **list != table.key).cloned());
        let keys = lists
            .into_iter()
            .map(|columns| {
                Ok(KeyColumns {
                    places: columns.iter().map(&mut place_of).collect::<Result<_>>()?,
                    columns,
                    index: KeyIndex::new(),
                    nulls: KeyFaults::default(),
                    duplicates: KeyFaults::default(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let references = table
            .references
            .iter()
            .zip(parents)
            .map(|(reference, index)| {
                let places = reference.columns.iter().map(&mut place_of).collect::<Result<_>>()?;
                let links = match index {
                    Some(_) => Links::Rows(Parents::default()),
                    None => Links::Keys(Vec::new()),
                };
                Ok(ReferenceColumns { places, index, links })
            })
            .collect::<Result<Vec<_>>>()?;
        let time = table.time.as_ref().and_then(|time| time.column.as_ref());
        let time_place = time.map(&mut place_of).transpose()?;
        let known = table.known_times();
        let known_places: Vec<usize> =
            known.iter().map(|&name| place_of(name)).collect::<Result<_>>()?;
        // A column that is ignored as a cell is read as a time all the same.
        for (&place, name) in time_place.iter().zip(time).chain(known_places.iter().zip(known)) {
            let column = read[place].column.clone();
            let column = Column { semantic: SemanticType::Timestamp, ..column };
            read[place] = ColumnSummary::new(name, column);
        }
        let mut file = ContainerWriter::create(folder, &crate::store::table_file(&table.name))?;
        let strings = match table.key.is_empty() {
            true => None,
            false => Some(StringsWriter::begin(&mut file, "keys")?),
        };
        let schema = staging_schema(&read[..kept]);
        Ok(Self {
            table,
            limits,
            looked_up,
            read,
            kept,
            keys: RowKeys { lists: keys, strings, file, identities: Vec::new() },
            references,
            time_place,
            times: Vec::new(),
            known_times: vec![Vec::new(); known_places.len()],
            known_places,
            schema,
            row_count: 0,
        })
    }

    /// Returns what to read of each batch.
    fn reading(&self) -> BatchReading {
        let is_text = |place: &usize| self.read[*place].column.semantic == SemanticType::Text;
        BatchReading {
            columns: self.read.iter().map(|c| (c.name.clone(), c.column.clone())).collect(),
            keys: self.keys.lists.iter().map(|list| list.places.clone()).collect(),
            references: self.references.iter().map(|r| r.places.clone()).collect(),
            texts: (0..self.kept).filter(is_text).collect(),
            has_key: !self.table.key.is_empty(),
        }
    }

    /// Adds a batch; returns the cells to stage.
    fn add_batch(&mut self, mut batch: ReadBatch, texts: &mut Texts) -> Result<RecordBatch> {
        let first_row = self.row_count;
        self.row_count += batch.row_count as u64;
        for (column, read) in self.read.iter_mut().zip(&mut batch.columns) {
            column.note(read.bad.take(), first_row);
        }
        let (batch, kept) = (&batch, &mut self.read[..self.kept]);
        let (keys, references) = (&mut self.keys, &mut self.references);
        // None of these needs another.
        let ((keys, interned), (mut staged, linked)) = rayon::join(
            || rayon::join(|| keys.add(first_row, batch), || texts.intern(&batch.texts)),
            || rayon::join(|| add_cells(kept, batch), || add_links(references, batch)),
        );
        keys?;
        self.read.iter().try_for_each(|column| column.check_categories(self.limits))?;
        for (column, indexes) in batch.texts.iter().zip(interned?) {
            staged[column.place] = Arc::new(indexes);
        }
        linked?;
        if let Some(Values::Times(times)) = self.time_place.map(|place| batch.values(place)) {
            make_room(&mut self.times, times.len())?;
            self.times.extend(times.iter().map(|time| time.unwrap_or(ALWAYS_VISIBLE)));
        }
        for (&place, known) in self.known_places.iter().zip(&mut self.known_times) {
            if let Values::Times(times) = batch.values(place) {
                make_room(known, times.len())?;
                known.extend(times.iter().map(|time| time.unwrap_or(NEVER_VISIBLE)));
            }
        }
        // A table of pairs keeps no column.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.row_count));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), staged, &options)
            .map_err(arrow_error)
    }

    fn finish(mut self, staged: PathBuf) -> Result<Ingested> {
        if self.row_count == 0 {
            return Err(Error::data(match self.table.labels_of {
                Some(_) => "the task has no seed; correct its rows or times, or remove it",
                None => {
                    "the table has no rows; remove it, and the references to it, from the schema"
                }
            }));
        }
        self.read.iter().try_for_each(ColumnSummary::check)?;
        let mut duplicate_keys = 0;
        for key in &self.keys.lists {
            key.check(self.limits, key.columns == self.table.key)?;
            duplicate_keys += key.duplicates.count;
        }
        let (keys, file) = self.keys.finish()?;
        self.read.truncate(self.kept);
        Ok(Ingested {
            row_count: self.row_count as u32,
            links: self.references.into_iter().map(|reference| reference.links).collect(),
            times: self.time_place.map(|_| self.times),
            known_times: self.known_times,
            columns: self.read,
            indexes: (keys.into_iter().filter(|key| self.looked_up.contains(&key.columns)))
                .map(|key| (key.columns, key.index))
                .collect(),
            duplicate_keys,
            file,
            staged,
        })
    }
}

/// Adds the values of a batch to the summaries of the columns that the store keeps; returns what is staged
/// of each. Texts are staged by their indexes, which take its place.
fn add_cells(kept: &mut [ColumnSummary], batch: &ReadBatch) -> Vec<ArrayRef> {
    (kept.par_iter_mut())
        .zip(&batch.columns)
        .map(|(column, read)| column.add(&read.values))
        .collect()
}

fn add_links(references: &mut [ReferenceColumns<'_>], batch: &ReadBatch) -> Result<()> {
    (references.par_iter_mut().zip(&batch.references)).try_for_each(|(reference, keys)| {
        let columns = batch.key_columns(&reference.places);
        reference.links.extend(keys, &columns, reference.index)
    })
}

impl RowKeys {
    fn add(&mut self, first_row: u64, batch: &ReadBatch) -> Result<()> {
        make_room(&mut self.identities, batch.row_count)?;
        self.identities.extend(&batch.identities);
        let mut text = String::new();
        for (place, (key, digests)) in self.lists.iter_mut().zip(&batch.keys).enumerate() {
            let columns = batch.key_columns(&key.places);
            key.index.warm(digests);
            for (row, &digest) in digests.iter().enumerate() {
                let at = first_row as usize + row;
                if is_null(digest) {
                    key.nulls.add(|first| *first = format!("row {}", at + 1));
                    key.index.push_null()?;
                } else if let Some(earlier) = key.index.push(digest)? {
                    write_key(&columns, row, &mut text);
                    key.duplicates.add_duplicate(&text, at, earlier);
                }
            }
            if let (0, Some(strings)) = (place, &mut self.strings) {
                self.identities.extend(digests.iter().map(|&digest| identity(digest)));
                for row in 0..batch.row_count {
                    write_key(&columns, row, &mut text);
                    strings.push(&mut self.file, &text)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the identities; returns the lists of columns by which rows are looked up, and the file.
    fn finish(mut self) -> Result<(Vec<KeyColumns>, ContainerWriter)> {
        if let Some(strings) = self.strings.take() {
            strings.finish(&mut self.file, "keys")?;
            let mut order: Vec<(u64, u32)> = reserve(self.identities.len())?;
            order.extend(self.identities.iter().copied().zip(0..));
            order.par_sort_unstable();
            let mut rows: Vec<u32> = reserve(order.len())?;
            rows.extend(order.into_iter().map(|(_, row)| row));
            self.file.section("by_identity", &rows)?;
        }
        self.file.section("identities", &self.identities)?;
        Ok((self.lists, self.file))
    }
}

impl KeyColumns {
    /// Checks that every row has a key, and that repeated keys are within the limit. Other columns
    /// that tables refer to may be NULL: such a row has no children.
    fn check(&self, limits: &Limits, is_key: bool) -> Result<()> {
        let KeyFaults { count, first } = &self.nulls;
        if is_key && *count > 0 {
            return Err(Error::data(format!(
                "the key ({}) is NULL in {}, the first is {first}; every row needs a \
                 key: correct the data, or remove the key from the schema",
                self.columns.join(", "),
                counted(*count, "row")
            )));
        }
        let KeyFaults { count, first } = &self.duplicates;
        if *count > limits.duplicate_keys {
            return Err(Error::data(format!(
                "expected at most {} that repeat a key ({}), found {count}, the first is {first}; \
                 correct the key or the data, or raise limits.duplicate_keys (references then link \
                 to the first row)",
                counted(limits.duplicate_keys, "row"),
                self.columns.join(", ")
            )));
        }
        Ok(())
    }
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
