//! The first pass: each table is read once, as a stream, from its source into a staging file.
//!
//! What stays in memory are keys (16 bytes and a slot a row), links (4 bytes a row) and categories.
//! Cells go to the staging file as numbers, since z-scores and the order of categories are known
//! only at the end.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use arrow::ipc::writer::StreamWriter;
use rayon::prelude::*;

use super::columns::{ColumnSummary, Summary};
use super::keys::{
    KeyDigest, KeyIndex, KeyTrouble, NULL_KEY, PARTIAL_KEY, digest, identity, is_null, write_key,
};
use super::links::{Links, Parents};
use super::texts::Texts;
use crate::container::{ContainerWriter, StringsWriter};
use crate::error::{Error, Result};
use crate::prepare::schema::{Column, Limits, Table};
use crate::prepare::source::Source;
use crate::prepare::values::{Values, arrow_error, to_texts};
use crate::progress::Progress;
use crate::store::{ALWAYS_VISIBLE, SemanticType, identity_of};

/// The most rows that a table can have; the two numbers above mean something else.
const ROW_LIMIT: u64 = u32::MAX as u64 - 1;

/// A table after the first pass.
pub(super) struct Ingested {
    /// How many rows it has.
    pub row_count: u32,
    /// The columns that the store keeps, in the schema's order.
    pub columns: Vec<ColumnSummary>,
    /// For each list of columns that is referred to, which row has which values.
    pub indexes: Indexes,
    /// What each reference leads to.
    pub links: Vec<Links>,
    /// The values of the column that the rows' time comes from.
    pub times: Option<Vec<i64>>,
    /// How many rows repeat a key.
    pub duplicate_keys: u64,
    /// The table's file, with its keys in it and its rows still to come.
    pub file: ContainerWriter,
    /// Where the cells are staged.
    pub staged: PathBuf,
}

/// For lists of a table's columns, which row has which values.
pub(super) type Indexes = HashMap<Vec<String>, KeyIndex>;

/// The lists of columns by whose values rows are looked up, the key first.
struct KeyColumns {
    columns: Vec<String>,
    places: Vec<usize>,
    index: KeyIndex,
    nulls: KeyTrouble,
    duplicates: KeyTrouble,
}

/// One reference of the table.
struct ReferenceColumns<'a> {
    places: Vec<usize>,
    /// The keys that it refers to, when their table has been read already.
    index: Option<&'a KeyIndex>,
    links: Links,
}

/// A table on its way through the first pass.
struct Ingest<'a> {
    table: &'a Table,
    limits: &'a Limits,
    looked_up: &'a [Vec<String>],
    /// The columns that are read, those that the store keeps first.
    read: Vec<ColumnSummary>,
    kept: usize,
    keys: Vec<KeyColumns>,
    references: Vec<ReferenceColumns<'a>>,
    time_place: Option<usize>,
    times: Vec<i64>,
    identities: Vec<u64>,
    strings: Option<StringsWriter>,
    file: ContainerWriter,
    schema: SchemaRef,
    row_count: u64,
}

/// Where a table is read from, and where it goes.
pub(super) struct Reading<'a> {
    pub source: &'a dyn Source,
    pub table: &'a Table,
    pub limits: &'a Limits,
    /// The lists of the table's columns that others refer to.
    pub looked_up: &'a [Vec<String>],
    /// For each reference, the keys of the table that it refers to, when that was read before.
    pub parents: Vec<Option<&'a KeyIndex>>,
    pub folder: &'a Path,
    pub progress: &'a dyn Progress,
}

/// Reads a table from its source.
pub(super) fn ingest(reading: Reading<'_>, texts: &mut Texts) -> Result<Ingested> {
    let Reading { source, table, folder, progress, .. } = reading;
    let mut ingest = Ingest::new(reading)?;
    let names: Vec<String> = ingest.read.iter().map(|c| c.name.clone()).collect();
    let batches = source.read(table.source_name(), &names)?;
    let staged = folder.join("staging").join(format!("{}.arrow", table.name));
    let create = File::create_new(&staged).map_err(|e| Error::io(&staged, "creating", e))?;
    let writer = BufWriter::with_capacity(1 << 20, create);
    let mut writer = StreamWriter::try_new(writer, &ingest.schema).map_err(arrow_error)?;
    read_ahead(batches, |batch| {
        progress.advance(batch.num_rows() as u64)?;
        let staged_batch = ingest.take_in(&batch, texts)?;
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
fn read_ahead(
    batches: crate::prepare::source::Batches,
    mut consume: impl FnMut(RecordBatch) -> Result<()>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::sync_channel(4);
        scope.spawn(move || {
            for batch in batches {
                let stop = batch.is_err();
                if send.send(batch).is_err() || stop {
                    return;
                }
            }
        });
        receive.into_iter().try_for_each(|batch| consume(batch?))
    })
}

fn staging_error(path: &Path, error: arrow::error::ArrowError) -> Error {
    match error {
        arrow::error::ArrowError::IoError(_, e) => Error::io(path, "writing", e),
        other => arrow_error(other).context(path.display()),
    }
}

impl<'a> Ingest<'a> {
    fn new(reading: Reading<'a>) -> Result<Self> {
        let Reading { table, limits, looked_up, parents, folder, .. } = reading;
        let summary = |(name, column): (&String, &Column)| ColumnSummary::new(name, *column);
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
                    nulls: KeyTrouble::default(),
                    duplicates: KeyTrouble::default(),
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
            identities: Vec::new(),
            strings,
            file,
            schema,
            row_count: 0,
        })
    }

    /// Takes in a batch; yields what is to be staged of it.
    fn take_in(&mut self, batch: &RecordBatch, texts: &mut Texts) -> Result<RecordBatch> {
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
        // Keys are compared as text, whatever else their columns are.
        let mut key_texts: Vec<Option<StringViewArray>> = vec![None; values.len()];
        for &place in self
            .keys
            .iter()
            .flat_map(|k| &k.places)
            .chain(self.references.iter().flat_map(|r| &r.places))
        {
            key_texts[place] = Some(match &values[place] {
                Values::Texts(words) => words.clone(),
                _ => to_texts(batch.column(place))?,
            });
        }
        self.take_in_keys(first_row, &key_texts, &values)?;

        let mut staged = self.read[..self.kept]
            .par_iter_mut()
            .zip(&values)
            .map(|(column, values)| column.take_in(values))
            .collect::<Vec<_>>();
        self.read.iter().try_for_each(|column| column.check_categories(self.limits))?;
        let is_text = |place: &usize| self.read[*place].column.semantic == SemanticType::Text;
        let (places, columns): (Vec<_>, Vec<_>) = (0..self.kept)
            .filter(is_text)
            .filter_map(|place| match &values[place] {
                Values::Texts(words) => Some((place, words)),
                _ => None,
            })
            .unzip();
        for (place, indexes) in places.into_iter().zip(texts.intern(&columns)?) {
            staged[place] = Arc::new(indexes);
        }
        self.references.par_iter_mut().for_each(|reference| {
            let columns = key_columns(&reference.places, &key_texts);
            let keys = key_digests(&columns, batch.num_rows());
            reference.links.extend(&keys, &columns, reference.index);
        });
        if let Some(Values::Times(times)) = self.time_place.map(|place| &values[place]) {
            self.times.extend(times.iter().map(|time| time.unwrap_or(ALWAYS_VISIBLE)));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), staged).map_err(arrow_error)
    }

    fn take_in_keys(
        &mut self,
        first_row: u64,
        key_texts: &[Option<StringViewArray>],
        values: &[Values],
    ) -> Result<()> {
        let rows = values.first().map_or(0, Values::len);
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
            return Err(Error::data(
                "the table has no rows; remove it, and the references to it, from the schema",
            ));
        }
        self.read.iter().try_for_each(ColumnSummary::check)?;
        let mut duplicate_keys = 0;
        for key in &self.keys {
            key.check(self.limits, key.columns == self.table.key)?;
            duplicate_keys += key.duplicates.count;
        }
        if let Some(strings) = self.strings.take() {
            strings.finish(&mut self.file, "keys")?;
            let mut order: Vec<(u64, u32)> = self.identities.iter().copied().zip(0..).collect();
            order.par_sort_unstable();
            let rows: Vec<u32> = order.into_iter().map(|(_, row)| row).collect();
            self.file.section("by_identity", &rows)?;
        }
        self.file.section("identities", &self.identities)?;
        self.read.truncate(self.kept);
        Ok(Ingested {
            row_count: self.row_count as u32,
            links: self.references.into_iter().map(|reference| reference.links).collect(),
            times: self.time_place.map(|_| self.times),
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
    /// Refuses rows without a key and, past the limit, keys of several rows. Other columns that are
    /// referred to may be NULL: nothing can refer to such a row.
    fn check(&self, limits: &Limits, is_key: bool) -> Result<()> {
        let KeyTrouble { count, first } = &self.nulls;
        if is_key && *count > 0 {
            return Err(Error::data(format!(
                "{count} rows have a NULL in the key ({}), the first is {first}; every row needs a \
                 key: correct the data, or remove the key from the schema",
                self.columns.join(", ")
            )));
        }
        let KeyTrouble { count, first } = &self.duplicates;
        if *count > limits.duplicate_keys {
            return Err(Error::data(format!(
                "{count} rows repeat the key ({}) of an earlier row, the first is {first}; \
                 limits.duplicate_keys allows {}: correct the key or the data, or raise the limit \
                 (references then link to the first row)",
                self.columns.join(", "),
                limits.duplicate_keys
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

/// The digest of the key in each row, [`NULL_KEY`] or [`PARTIAL_KEY`] where a part of it is NULL.
fn key_digests(columns: &[&StringViewArray], rows: usize) -> Vec<KeyDigest> {
    let (mut text, mut last) = (String::new(), String::new());
    let mut last_digest = digest(last.as_bytes());
    let digest_of = |row| {
        if !write_key(columns, row, &mut text) {
            let is_whole = columns.iter().all(|column| column.is_null(row));
            return if is_whole { NULL_KEY } else { PARTIAL_KEY };
        }
        // The rows that refer to one parent often lie together.
        if text != last {
            last_digest = digest(text.as_bytes());
            std::mem::swap(&mut text, &mut last);
        }
        last_digest
    };
    (0..rows).map(digest_of).collect()
}

/// The columns of the staging file: those that the store keeps.
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
