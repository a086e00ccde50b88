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

use arrow_array::{Array, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use rayon::prelude::*;

use super::columns::{ColumnSummary, Summary};
use super::keys::{
    KeyDigest, KeyFaults, KeyIndex, NULL_KEY, PARTIAL_KEY, digest, identity, is_null, write_key,
};
use super::links::{Links, Parents};
use super::texts::Texts;
use crate::bytes::{make_room, reserve};
use crate::container::{ContainerWriter, StringsWriter};
use crate::error::{Error, Result};
use crate::panics::panic_message;
use crate::prepare::names::counted;
use crate::prepare::schema::{Column, Limits, Table};
use crate::prepare::source::Batches;
use crate::prepare::values::{Values, arrow_error, to_texts};
use crate::progress::Progress;
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, SemanticType, identity_of};

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
    keys: Vec<KeyColumns>,
    references: Vec<ReferenceColumns<'a>>,
    time_place: Option<usize>,
    times: Vec<i64>,
    known_places: Vec<usize>,
    known_times: Vec<Vec<i64>>,
    identities: Vec<u64>,
    strings: Option<StringsWriter>,
    file: ContainerWriter,
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
    read_ahead(batches, |batch| {
        progress.advance(batch.num_rows() as u64)?;
        let staged_batch = ingest.add_batch(&batch, texts)?;
        writer.write(&staged_batch).map_err(|e| staging_error(&staged, e))
    })?;
    writer
        .into_inner()
        .map_err(|e| staging_error(&staged, e))?
        .into_inner()
        .map_err(|e| Error::io(&staged, "writing", e.into_error()))?;
    ingest.finish(staged)
}

/// Runs `consume` on each batch while another thread reads the next.
fn read_ahead(batches: Batches, mut consume: impl FnMut(RecordBatch) -> Result<()>) -> Result<()> {
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel(4);
        let reader = scope.spawn(move || {
            for batch in batches {
                let stop = batch.is_err();
                if send.send(batch).is_err() || stop {
                    return;
                }
            }
        });
        let consumed = receive.into_iter().try_for_each(|batch| consume(batch?));
        // A panic that nobody takes would be one of this thread, too.
        let read = reader.join();
        consumed?;
        read.map_err(|panic| {
            Error::data(format!(
                "internal error: reading the rows panicked: {}",
                panic_message(&*panic)
            ))
        })
    })
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
            keys,
            references,
            time_place,
            times: Vec::new(),
            known_times: vec![Vec::new(); known_places.len()],
            known_places,
            identities: Vec::new(),
            strings,
            file,
            schema,
            row_count: 0,
        })
    }

    /// Adds a batch; returns the cells to stage.
    fn add_batch(&mut self, batch: &RecordBatch, texts: &mut Texts) -> Result<RecordBatch> {
        let first_row = self.row_count;
        self.row_count += batch.num_rows() as u64;
        if self.row_count > ROW_LIMIT {
            return Err(Error::limit(format!(
                "expected at most {ROW_LIMIT} rows, found more; split the table"
            )));
        }
        let values = self
            .read
            .par_iter_mut()
            .zip(batch.columns())
            .map(|(column, array)| column.read(array, first_row))
            .collect::<Result<Vec<_>>>()?;
        // Keys are compared as text, whatever the type of their columns.
        let mut key_texts: Vec<Option<StringViewArray>> = vec![None; values.len()];
        for &place in self
            .keys
            .iter()
            .flat_map(|k| &k.places)
            .chain(self.references.iter().flat_map(|r| &r.places))
        {
            key_texts[place] = Some(match &values[place] {
                Values::Texts(texts) => texts.clone(),
                _ => to_texts(batch.column(place))?,
            });
        }
        self.add_keys(first_row, &key_texts, &values)?;

        let mut staged = self.read[..self.kept]
            .par_iter_mut()
            .zip(&values)
            .map(|(column, values)| column.add(values))
            .collect::<Vec<_>>();
        self.read.iter().try_for_each(|column| column.check_categories(self.limits))?;
        let is_text = |place: &usize| self.read[*place].column.semantic == SemanticType::Text;
        let (places, columns): (Vec<_>, Vec<_>) = (0..self.kept)
            .filter(is_text)
            .filter_map(|place| match &values[place] {
                Values::Texts(texts) => Some((place, texts)),
                _ => None,
            })
            .unzip();
        for (place, indexes) in places.into_iter().zip(texts.intern(&columns)?) {
            staged[place] = Arc::new(indexes);
        }
        self.references.par_iter_mut().try_for_each(|reference| {
            let columns = key_columns(&reference.places, &key_texts);
            let keys = key_digests(&columns, batch.num_rows());
            reference.links.extend(&keys, &columns, reference.index)
        })?;
        if let Some(Values::Times(times)) = self.time_place.map(|place| &values[place]) {
            make_room(&mut self.times, times.len())?;
            self.times.extend(times.iter().map(|time| time.unwrap_or(ALWAYS_VISIBLE)));
        }
        for (&place, known) in self.known_places.iter().zip(&mut self.known_times) {
            if let Values::Times(times) = &values[place] {
                make_room(known, times.len())?;
                known.extend(times.iter().map(|time| time.unwrap_or(NEVER_VISIBLE)));
            }
        }
        // A table of pairs keeps no column.
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), staged, &options)
            .map_err(arrow_error)
    }

    fn add_keys(
        &mut self,
        first_row: u64,
        key_texts: &[Option<StringViewArray>],
        values: &[Values],
    ) -> Result<()> {
        let rows = values.first().map_or(0, Values::len);
        make_room(&mut self.identities, rows)?;
        let mut text = String::new();
        for (place, key) in self.keys.iter_mut().enumerate() {
            let columns = key_columns(&key.places, key_texts);
            let digests = key_digests(&columns, rows);
            key.index.warm(&digests);
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
                for row in 0..rows {
                    write_key(&columns, row, &mut text);
                    strings.push(&mut self.file, &text)?;
                }
            }
        }
        if self.table.key.is_empty() {
            let mut bytes = Vec::new();
            for row in 0..rows {
                bytes.clear();
                values.iter().for_each(|values| values.append_identity(row, &mut bytes));
                self.identities.push(identity_of(&bytes));
            }
        }
        Ok(())
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
        for key in &self.keys {
            key.check(self.limits, key.columns == self.table.key)?;
            duplicate_keys += key.duplicates.count;
        }
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
        self.read.truncate(self.kept);
        Ok(Ingested {
            row_count: self.row_count as u32,
            links: self.references.into_iter().map(|reference| reference.links).collect(),
            times: self.time_place.map(|_| self.times),
            known_times: self.known_times,
            columns: self.read,
            indexes: (self.keys.into_iter().filter(|key| self.looked_up.contains(&key.columns)))
                .map(|key| (key.columns, key.index))
                .collect(),
            duplicate_keys,
            file: self.file,
            staged,
        })
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

fn key_columns<'a>(
    places: &[usize],
    key_texts: &'a [Option<StringViewArray>],
) -> Vec<&'a StringViewArray> {
    places.iter().filter_map(|&place| key_texts[place].as_ref()).collect()
}

/// Returns the digest of the key in each row, [`NULL_KEY`] or [`PARTIAL_KEY`] if a part is NULL.
fn key_digests(columns: &[&StringViewArray], rows: usize) -> Vec<KeyDigest> {
    let (mut text, mut last) = (String::new(), String::new());
    let mut last_digest = digest(last.as_bytes());
    let digest_of = |row| {
        if !write_key(columns, row, &mut text) {
            let is_whole = columns.iter().all(|column| column.is_null(row));
            return if is_whole { NULL_KEY } else { PARTIAL_KEY };
        }
        // Rows with the same parent are often adjacent.
        if text != last {
            last_digest = digest(text.as_bytes());
            std::mem::swap(&mut text, &mut last);
        }
        last_digest
    };
    (0..rows).map(digest_of).collect()
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::RecordBatch;
    use arrow_schema::Schema;

    use super::read_ahead;

    #[test]
    fn a_panic_of_the_reading_thread_is_its_error() {
        let batches = (0..3).map(|number| match number {
            2 => panic!("the library gave up"),
            _ => Ok(RecordBatch::new_empty(Arc::new(Schema::empty()))),
        });
        let mut taken = 0;
        let read = read_ahead(Box::new(batches), |_| {
            taken += 1;
            Ok(())
        });
        let error = read.expect_err("a table without its last rows").to_string();
        assert_eq!(error, "internal error: reading the rows panicked: the library gave up");
        assert_eq!(taken, 2);
    }
}
