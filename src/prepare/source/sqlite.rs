//! Reads tables and views of a SQLite file, with the declared keys.
//!
//! SQLite types values, not columns, so every column is read as text: integers in decimal, reals as
//! other floats (5.0 is the key 5).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};

use super::{
    BATCH_BYTES, BATCH_ROWS, Batches, DeclaredReference, Source, SourceColumn, SourceTable,
    positions,
};
use crate::error::{Context, Error, Result};
use crate::prepare::names::did_you_mean;
use crate::prepare::values::float_text;

/// The first bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The most finished batches that wait for the consumer.
const WAITING_BATCHES: usize = 2;

/// Whether a file with these first bytes is a SQLite file.
pub(super) fn is_sqlite(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// A SQLite file.
pub(super) struct Sqlite {
    path: PathBuf,
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let source = Self { path: path.to_owned() };
        if names(&source.connect()?).map_err(|e| source.fault(&e))?.is_empty() {
            return Err(Error::data(format!("{} holds no table", source.describe())));
        }
        Ok(source)
    }

    fn connect(&self) -> Result<Connection> {
        // Each connection is used by one thread, so SQLite needs no mutex.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Connection::open_with_flags(&self.path, flags).map_err(|e| self.fault(&e))
    }

    fn kind(&self, connection: &Connection, table: &str) -> Result<Kind> {
        let names = names(connection).map_err(|e| self.fault(&e))?;
        let found = names.iter().find(|(name, _)| name == table);
        found.map(|&(_, kind)| kind).ok_or_else(|| {
            let hint = did_you_mean(table, names.iter().map(|(name, _)| name.as_str()));
            Error::schema(format!("{} has no table {table:?}; {hint}", self.describe()))
        })
    }

    fn fault(&self, error: &rusqlite::Error) -> Error {
        fault(&self.path, error)
    }
}

impl Source for Sqlite {
    fn describe(&self) -> String {
        format!("SQLite file {}", self.path.display())
    }

    fn names(&self) -> Result<Vec<String>> {
        let names = names(&self.connect()?).map_err(|e| self.fault(&e))?;
        Ok(names.into_iter().map(|(name, _)| name).collect())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        let connection = self.connect()?;
        self.kind(&connection, table)?;
        Ok(columns(&connection, table).map_err(|e| self.fault(&e))?.0)
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let connection = self.connect()?;
        let read = || -> rusqlite::Result<Vec<SourceTable>> {
            let mut tables = Vec::new();
            for (name, _) in names(&connection)? {
                let (columns, key) = columns(&connection, &name)?;
                let references = references(&connection, &name)?;
                tables.push(SourceTable { name, columns, key, references });
            }
            Ok(tables)
        };
        let mut tables = read().map_err(|e| self.fault(&e))?;
        resolve_references(&mut tables);
        Ok(tables)
    }

    fn views(&self) -> Result<Vec<String>> {
        let names = names(&self.connect()?).map_err(|e| self.fault(&e))?;
        let views = names.into_iter().filter(|(_, kind)| matches!(kind, Kind::View));
        Ok(views.map(|(name, _)| name).collect())
    }

    fn read(&self, table: &str, names: &[String]) -> Result<Batches> {
        let connection = self.connect()?;
        let kind = self.kind(&connection, table)?;
        let (columns, key) = columns(&connection, table).map_err(|e| self.fault(&e))?;
        let indices = positions(&columns, names)
            .context(|| format!("table {table:?} of {}", self.describe()))?;
        let query = Query::new(table, kind, &key, &columns, &indices);
        let field = |name: &String| Field::new(name, DataType::Utf8, true);
        let schema = Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()));
        let reader = Reader {
            path: self.path.clone(),
            table: table.to_owned(),
            columns: names.to_vec(),
            schema,
        };
        let (sender, batches) = sync_channel(WAITING_BATCHES);
        let thread = std::thread::Builder::new()
            .name("headwater-sqlite".into())
            .spawn(move || {
                if let Err(error) = reader.stream(&connection, &query, &sender) {
                    // Sending fails if the consumer has stopped; then the error does not matter.
                    let _ = sender.send(Err(error));
                }
            })
            .map_err(|e| Error::io(&self.path, "starting a thread to read", e))?;
        Ok(Box::new(Rows { batches, thread: Some(thread), path: self.path.clone() }))
    }
}

/// How SQLite stores the rows of a table.
#[derive(Clone, Copy)]
enum Kind {
    /// By row number.
    Numbered,
    /// By primary key (`WITHOUT ROWID`).
    Keyed,
    /// Not at all: the table is a query.
    View,
}

/// Lists tables and views by name.
fn names(connection: &Connection) -> rusqlite::Result<Vec<(String, Kind)>> {
    let mut statement = connection.prepare(
        "SELECT name, type = 'view', wr FROM pragma_table_list WHERE schema = 'main' \
         AND type <> 'shadow' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let kind = |row: &Row<'_>| -> rusqlite::Result<Kind> {
        Ok(match (row.get(1)?, row.get(2)?) {
            (true, _) => Kind::View,
            (false, true) => Kind::Keyed,
            (false, false) => Kind::Numbered,
        })
    };
    statement.query_map([], |row| Ok((row.get(0)?, kind(row)?)))?.collect()
}

/// Returns the columns of a table, and those of its primary key in the key's order.
fn columns(
    connection: &Connection,
    table: &str,
) -> rusqlite::Result<(Vec<SourceColumn>, Vec<String>)> {
    // `hidden` is 1 for arguments of virtual tables, 2 and 3 for generated columns.
    let mut statement = connection
        .prepare("SELECT name, type, pk FROM pragma_table_xinfo(?1) WHERE hidden <> 1")?;
    let mut columns = Vec::new();
    let mut key = BTreeMap::new();
    let mut rows = statement.query([table])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let declared: Option<String> = row.get(1)?;
        let position: i64 = row.get(2)?;
        if position > 0 {
            key.insert(position, name.clone());
        }
        let declared = declared.filter(|declared| !declared.is_empty());
        columns.push(SourceColumn { name, data_type: DataType::Utf8, declared });
    }
    Ok((columns, key.into_values().collect()))
}

/// Returns the declared foreign keys of a table.
fn references(connection: &Connection, table: &str) -> rusqlite::Result<Vec<DeclaredReference>> {
    let mut statement = connection.prepare(
        "SELECT id, \"table\", \"from\", \"to\" FROM pragma_foreign_key_list(?1) ORDER BY id, seq",
    )?;
    let mut references: BTreeMap<i64, DeclaredReference> = BTreeMap::new();
    let mut rows = statement.query([table])?;
    while let Some(row) = rows.next()? {
        let to: String = row.get(1)?;
        let reference = references.entry(row.get(0)?).or_insert_with(|| DeclaredReference {
            columns: vec![],
            to,
            to_columns: vec![],
        });
        reference.columns.push(row.get(2)?);
        reference.to_columns.extend(row.get::<_, Option<String>>(3)?);
    }
    // SQLite numbers foreign keys from the last to the first.
    Ok(references.into_values().rev().collect())
}

/// Gives the names in references the spelling of their tables, and drops references to missing
/// tables.
///
/// SQLite ignores case, and does not check that a declared target exists.
fn resolve_references(tables: &mut [SourceTable]) {
    let known: Vec<_> =
        tables.iter().map(|t| (t.name.clone(), t.columns.clone(), t.key.clone())).collect();
    let respell = |names: &mut Vec<String>, columns: &[SourceColumn]| {
        for name in names {
            if let Some(column) = columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)) {
                name.clone_from(&column.name);
            }
        }
    };
    for table in tables {
        for reference in &mut table.references {
            respell(&mut reference.columns, &table.columns);
        }
        table.references.retain_mut(|reference| {
            let parent = known.iter().find(|(name, ..)| name.eq_ignore_ascii_case(&reference.to));
            let Some((name, columns, key)) = parent else { return false };
            reference.to.clone_from(name);
            respell(&mut reference.to_columns, columns);
            if reference.to_columns == *key {
                reference.to_columns.clear();
            }
            true
        });
    }
}

/// A query for the rows of a table, and the positions of the requested columns in its result.
struct Query {
    sql: String,
    positions: Vec<usize>,
}

impl Query {
    /// Returns a query whose rows have the same order for any requested columns.
    fn new(
        table: &str,
        kind: Kind,
        key: &[String],
        all: &[SourceColumn],
        indices: &[usize],
    ) -> Self {
        let requested = indices.iter().map(|&index| all[index].name.as_str());
        let columns = match (kind, indices) {
            // The planner may order a view by the selected columns, so select the same ones always.
            (Kind::View, _) => quoted(all.iter().map(|c| c.name.as_str())),
            (_, []) => "NULL".into(),
            _ => quoted(requested),
        };
        let order = match kind {
            // SQLite may prefer an index with all requested columns, which has another order.
            Kind::Numbered => " NOT INDEXED".into(),
            Kind::Keyed => format!(" ORDER BY {}", quoted(key.iter().map(String::as_str))),
            Kind::View => String::new(),
        };
        let sql = format!("SELECT {columns} FROM {}{order}", quoted([table]));
        let positions = match kind {
            Kind::View => indices.to_vec(),
            _ => (0..indices.len()).collect(),
        };
        Self { sql, positions }
    }
}

/// Returns names quoted for SQL, with commas between them.
fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| format!("\"{}\"", name.replace('"', "\"\"")));
    names.collect::<Vec<_>>().join(", ")
}

/// The state of a reading thread besides its connection.
struct Reader {
    path: PathBuf,
    table: String,
    columns: Vec<String>,
    schema: Arc<Schema>,
}

impl Reader {
    /// Sends the rows in batches; stops early, without an error, when the consumer has stopped.
    fn stream(
        &self,
        connection: &Connection,
        query: &Query,
        sender: &SyncSender<Result<RecordBatch>>,
    ) -> Result<()> {
        let fail = |e: &rusqlite::Error| fault(&self.path, e);
        let mut statement = connection.prepare(&query.sql).map_err(|e| fail(&e))?;
        let mut rows = statement.query([]).map_err(|e| fail(&e))?;
        let mut builders: Vec<_> = self.columns.iter().map(|_| StringBuilder::new()).collect();
        let (mut waiting, mut total) = (0, 0);
        while let Some(row) = rows.next().map_err(|e| fail(&e))? {
            total += 1;
            waiting += 1;
            self.append(row, &query.positions, &mut builders, total)?;
            let full = builders.iter().any(|b| b.values_slice().len() >= BATCH_BYTES);
            if full || waiting == BATCH_ROWS {
                if sender.send(self.batch(&mut builders, waiting)).is_err() {
                    return Ok(());
                }
                waiting = 0;
            }
        }
        if waiting > 0 {
            // Sending fails if the consumer has stopped; then the rest does not matter.
            let _ = sender.send(self.batch(&mut builders, waiting));
        }
        Ok(())
    }

    fn append(
        &self,
        row: &Row<'_>,
        positions: &[usize],
        builders: &mut [StringBuilder],
        number: u64,
    ) -> Result<()> {
        for ((builder, &index), name) in builders.iter_mut().zip(positions).zip(&self.columns) {
            let fail = |found: String| {
                let place = format!("table {:?}: column {name:?}: row {number}", self.table);
                Error::data(format!("{place}: expected text or a number, found {found}"))
                    .context(self.path.display())
            };
            match row.get_ref(index).map_err(|e| fault(&self.path, &e))? {
                ValueRef::Null => builder.append_null(),
                ValueRef::Integer(value) => builder.append_value(value.to_string()),
                ValueRef::Real(value) => builder.append_value(float_text(value)),
                ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                    Ok(text) => builder.append_value(text),
                    Err(_) => {
                        let found = String::from_utf8_lossy(bytes);
                        return Err(fail(format!("{found:?}, which is not UTF-8")));
                    }
                },
                ValueRef::Blob(bytes) => {
                    let length = bytes.len();
                    return Err(fail(format!(
                        "a blob of {length} bytes; leave the column out of the schema"
                    )));
                }
            }
        }
        Ok(())
    }

    fn batch(&self, builders: &mut [StringBuilder], rows: usize) -> Result<RecordBatch> {
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|e| Error::data(e.to_string()).context(self.path.display()))
    }
}

/// The rows that a thread reads.
struct Rows {
    batches: Receiver<Result<RecordBatch>>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Ok(batch) = self.batches.recv() {
            return Some(batch);
        }
        // The thread has ended; after a panic the rows are incomplete.
        let ended = self.thread.take()?.join();
        ended.is_err().then(|| {
            let message = "internal error: the thread that reads the file panicked";
            Err(Error::data(message).context(self.path.display()))
        })
    }
}

fn fault(path: &Path, error: &rusqlite::Error) -> Error {
    Error::data(format!("SQLite file {}: {error}", path.display()))
}
