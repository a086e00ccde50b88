//! The rows of one table or view, as batches of text.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema};
use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement};

use super::catalog::Kind;
use super::fault::fault;
use super::varying::Varying;
use crate::error::{Error, Result};
use crate::prepare::source::{BATCH_BYTES, BATCH_ROWS, CELL_BYTES_MAX, SourceColumn, too_long};
use crate::prepare::values::float_text;

/// A query for the rows of a table, and the positions of the requested columns in its result.
pub(super) struct Query {
    pub(super) sql: String,
    positions: Vec<usize>,
}

/// The rows of a table whose numbers in the file are in a range.
#[derive(Clone)]
pub(super) struct RowRange {
    /// The name by which the table has the numbers.
    pub(super) name: &'static str,
    pub(super) numbers: RangeInclusive<i64>,
}

impl Query {
    /// Returns a query whose rows have the same order for any requested columns.
    pub(super) fn new(
        table: &str,
        kind: Kind,
        key: &[String],
        all: &[SourceColumn],
        indices: &[usize],
        range: Option<&RowRange>,
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
        let within = range.map_or_else(String::new, |RowRange { name, numbers }| {
            format!(" WHERE {name} BETWEEN {} AND {}", numbers.start(), numbers.end())
        });
        let sql = format!("SELECT {columns} FROM {}{order}{within}", quoted([table]));
        let positions = match kind {
            Kind::View => indices.to_vec(),
            _ => (0..indices.len()).collect(),
        };
        Self { sql, positions }
    }
}

/// Returns names quoted for SQL, with commas between them.
pub(super) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| format!("\"{}\"", name.replace('"', "\"\"")));
    names.collect::<Vec<_>>().join(", ")
}

/// A read of a table, apart from its statement.
pub(super) struct Stream {
    path: PathBuf,
    /// The table in messages: `table "orders"`.
    place: String,
    columns: Vec<String>,
    schema: Arc<Schema>,
    pub(super) query: Query,
    /// The number of rows up to the latest that was read.
    row: u64,
    has_ended: bool,
}

impl Stream {
    pub(super) fn new(
        path: &Path,
        table: &str,
        kind: Kind,
        columns: &[String],
        query: Query,
        first_row: u64,
    ) -> Self {
        let field = |name: &String| Field::new(name, DataType::Utf8, true);
        let what = if matches!(kind, Kind::View) { "view" } else { "table" };
        Self {
            path: path.to_owned(),
            place: format!("{what} {table:?}"),
            columns: columns.to_vec(),
            schema: Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>())),
            query,
            row: first_row,
            has_ended: false,
        }
    }

    /// Returns the next batch; `None` at the end.
    pub(super) fn next_batch(
        &mut self,
        statement: &mut Statement<'_>,
        varying: &Varying,
    ) -> Result<Option<RecordBatch>> {
        let mut builders: Vec<_> = self.columns.iter().map(|_| StringBuilder::new()).collect();
        let mut count = 0;
        // Goes on after the latest row.
        let mut rows = statement.raw_query();
        while !self.has_ended && count < BATCH_ROWS && size(&builders) < BATCH_BYTES {
            match rows.next() {
                Err(error) => return Err(self.fault(&error, varying)),
                Ok(None) => self.has_ended = true,
                Ok(Some(row)) => {
                    count += 1;
                    self.row += 1;
                    self.append(row, &mut builders)?;
                }
            }
        }
        // Dropping it would begin the statement anew.
        std::mem::forget(rows);
        if count == 0 {
            return Ok(None);
        }
        let arrays = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map(Some)
            .map_err(|e| Error::data(e.to_string()).context(self.path.display()))
    }

    fn append(&self, row: &Row<'_>, builders: &mut [StringBuilder]) -> Result<()> {
        let columns = builders.iter_mut().zip(&self.query.positions).zip(&self.columns);
        for ((builder, &index), name) in columns {
            let place = || {
                format!(
                    "{}: {}: column {name:?}: row {}",
                    self.path.display(),
                    self.place,
                    self.row
                )
            };
            let fail = |found: String| {
                Error::data(format!("{}: expected text or a number, found {found}", place()))
            };
            match row.get_ref(index).map_err(|e| fault(&self.path, &e))? {
                ValueRef::Null => builder.append_null(),
                ValueRef::Integer(value) => builder.append_value(value.to_string()),
                ValueRef::Real(value) => builder.append_value(float_text(value)),
                ValueRef::Text(bytes) if bytes.len() > CELL_BYTES_MAX => {
                    return Err(too_long(bytes.len()).context(place()));
                }
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

    /// Returns the error of the statement.
    pub(super) fn fault(&self, error: &rusqlite::Error, varying: &Varying) -> Error {
        match varying.take() {
            None => fault(&self.path, error),
            Some(call) => Error::data(format!(
                "SQLite file {}: {}: expected rows that depend on the data alone, found a call of \
                 {call}, whose result changes from read to read; leave the call out, or write the \
                 rows to a table",
                self.path.display(),
                self.place
            )),
        }
    }
}

/// The number of bytes of the texts.
fn size(builders: &[StringBuilder]) -> usize {
    builders.iter().map(|builder| builder.values_slice().len()).sum()
}
