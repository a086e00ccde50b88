//! Reads tables of Python objects as Arrow streams.
#![expect(unsafe_code, reason = "the Arrow C stream is a C struct; see the reason at the call")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, Field, Schema as ArrowSchema};
use headwater::internal::{BATCH_ROWS, positions};
use headwater::prepare::source::{Batches, Source, SourceColumn, SourceTable, check_names};
use headwater::{Context, Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::errors::PyResult;

/// A source of objects with `__arrow_c_stream__`, by table name.
pub(super) struct ArrowSource {
    tables: BTreeMap<String, Py<PyAny>>,
    /// The streams that `columns` has opened, and `read` has not used yet.
    opened: Mutex<BTreeMap<String, RecordBatchStreamReader>>,
    /// The number of rows of each table in its first complete read.
    row_counts: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl ArrowSource {
    /// Returns a source of the tables in `tables`.
    pub(super) fn new(tables: &Bound<'_, PyDict>) -> PyResult<Self> {
        let frames = tables.py().import("headwater._frames")?;
        let mut objects = BTreeMap::new();
        for (name, object) in tables {
            let name: String = name.extract()?;
            let object = frames.call_method1("as_table", (object,))?;
            if !object.hasattr("__arrow_c_stream__")? {
                return Err(Error::invalid(format!(
                    "source[{name:?}]: expected a table that gives an Arrow stream (pyarrow, \
                     Polars, pandas >= 2.2, DuckDB), found {}",
                    super::type_name(&object)
                ))
                .into());
            }
            objects.insert(name, object.unbind());
        }
        if objects.is_empty() {
            return Err(Error::invalid(
                "source: expected at least one table, found an empty dictionary",
            )
            .into());
        }
        let (opened, row_counts) = Default::default();
        Ok(Self { tables: objects, opened, row_counts })
    }

    fn open(&self, table: &str) -> Result<RecordBatchStreamReader> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reader) = opened.remove(table) {
            return Ok(reader);
        }
        let object = self.find(table)?;
        Python::attach(|py| open_stream(object.bind(py)))
    }

    fn find(&self, table: &str) -> Result<&Py<PyAny>> {
        self.tables.get(table).ok_or_else(|| {
            let names = self.tables.keys().map(String::as_str);
            let hint = headwater::internal::did_you_mean(table, names);
            Error::schema(format!("{} has no table {table:?}; {hint}", self.describe()))
        })
    }
}

impl Source for ArrowSource {
    fn describe(&self) -> String {
        "the dictionary of tables".to_owned()
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.tables.keys().cloned().collect())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        let reader = self.open(table)?;
        let columns = columns_of(&reader)?;
        // Keeps the stream, because a reader can be read only once.
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(table.to_owned(), reader);
        Ok(columns)
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let mut tables = Vec::new();
        for name in self.tables.keys() {
            let columns = self.columns(name).context(|| format!("table {name:?}"))?;
            let (key, references) = (Vec::new(), Vec::new());
            tables.push(SourceTable { name: name.clone(), columns, key, references });
        }
        Ok(tables)
    }

    fn read(&self, table: &str, columns: &[String]) -> Result<Batches> {
        self.find(table)?;
        let reader = self.open(table).context(|| format!("source[{table:?}]"))?;
        let batches = batches(reader, columns)
            .context(|| format!("table {table:?} of {}", self.describe()))?;
        let (table, row_counts) = (table.to_owned(), Arc::clone(&self.row_counts));
        Ok(Box::new(Counted { batches, table, row_count: 0, row_counts }))
    }
}

/// The rows of a table. Their number must be the same in each read: a reader that can be read only
/// once ends early in the second read, without an error.
struct Counted {
    batches: Batches,
    table: String,
    row_count: u64,
    row_counts: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Iterator for Counted {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.batches.next() {
            self.row_count += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
            return Some(batch.context(|| format!("source[{:?}]", self.table)));
        }
        let mut row_counts = self.row_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *row_counts.entry(self.table.clone()).or_insert(self.row_count);
        (before != self.row_count).then(|| {
            Err(Error::invalid(format!(
                "source[{:?}]: expected {before} rows as in the first read, found {}: a reader can \
                 be read only once; pass a table or a frame",
                self.table, self.row_count
            )))
        })
    }
}

/// Opens the Arrow stream of a Python object.
pub(super) fn open_stream(object: &Bound<'_, PyAny>) -> Result<RecordBatchStreamReader> {
    let py = object.py();
    let name = c"arrow_array_stream";
    let capsule = object.call_method0("__arrow_c_stream__").map_err(|error| {
        let mixed = || {
            let frames = py.import("headwater._frames").ok()?;
            let words = frames.call_method1("mixed_types", (object,)).ok()?;
            words.extract::<Option<String>>().ok()?
        };
        Error::data(mixed().unwrap_or_else(|| error.value(py).to_string()))
    })?;
    let capsule = super::to_data_error(py, capsule.cast::<PyCapsule>().map_err(PyErr::from))?;
    let pointer = super::to_data_error(py, capsule.pointer_checked(Some(name)))?;
    // SAFETY: A capsule of this name holds, by the Arrow PyCapsule interface, a valid, aligned and
    // initialised stream that nobody else uses; the capsule outlives this call. Its contents are
    // moved out, and what stays behind is marked as released, so that the capsule's destructor
    // leaves it alone.
    let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.cast().as_ptr()) };
    if let Some((column, found)) = unreadable_column(&mut stream) {
        return Err(Error::data(format!(
            "column {column:?}: expected a type that the Arrow library reads, found {found:?}; cast the \
             column, or leave it out of the table"
        )));
    }
    RecordBatchStreamReader::try_new(stream).map_err(|error| {
        Error::data(format!(
            "cannot read the Arrow stream of a {}: {error}",
            super::type_name(object)
        ))
    })
}

/// Returns the first column of a type that cannot be read, and the type as Arrow writes it.
fn unreadable_column(stream: &mut FFI_ArrowArrayStream) -> Option<(String, String)> {
    let get_schema = stream.get_schema()?;
    let mut schema = FFI_ArrowSchema::empty();
    // SAFETY: The function is the stream's own, which is valid and not released, and may be called more
    // than once; it fills the schema, whose destructor releases it, or returns an error.
    if unsafe { get_schema(stream, &raw mut schema) } != 0 {
        return None;
    }
    let column = schema.children().find(|column| Field::try_from(*column).is_err())?;
    Some((column.name().unwrap_or_default().to_owned(), column.format().to_owned()))
}

/// Returns the error about rows that cannot be read; where columns are of the type Null, or of lists of it,
/// not all libraries write them as Arrow says.
fn unreadable_rows(schema: &ArrowSchema, error: &ArrowError) -> Error {
    let mut fields = schema.fields().iter();
    match fields.find(|field| field.data_type().to_string().contains("Null")) {
        Some(field) if error.to_string().contains("\"Null\"") => Error::data(format!(
            "column {:?}: expected another type than Null, found {}, whose arrays cannot be read; cast the \
             column, or leave it out of the table",
            field.name(),
            field.data_type()
        )),
        _ => of_producer(&error.to_string()),
    }
}

/// Returns the error about what the producer of a stream says, without the words of the libraries that
/// carried it, which include a stack of Python.
fn of_producer(text: &str) -> Error {
    let (how, words) = text.split_once("Producer error: ").unwrap_or(("", text));
    let words = words.split(". Detail: Python exception").next().unwrap_or_default();
    // DuckDB's own words, and ENOMEM.
    if words.contains("INTERRUPT Error") || words.contains("KeyboardInterrupt") {
        Error::interrupted("interrupted")
    } else if words.contains("Out of Memory Error") || how.contains("Error code: 12.") {
        Error::limit(words)
    } else {
        Error::data(words)
    }
}

/// Streams `columns` in that order, in batches of limited size.
pub(super) fn batches(reader: RecordBatchStreamReader, columns: &[String]) -> Result<Batches> {
    let indices = positions(&columns_of(&reader)?, columns)?;
    let schema = reader.schema();
    Ok(Box::new(reader.flat_map(move |batch| {
        let batch = batch.and_then(|batch| batch.project(&indices));
        Slices { batch: Some(batch.map_err(|e| unreadable_rows(&schema, &e))), done: 0 }
    })))
}

pub(super) fn columns_of(reader: &RecordBatchStreamReader) -> Result<Vec<SourceColumn>> {
    let schema = reader.schema();
    let columns: Vec<_> = (schema.fields().iter())
        .map(|field| SourceColumn {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            declared: None,
        })
        .collect();
    check_names(&columns)?;
    Ok(columns)
}

/// Slices of a batch, without a copy.
struct Slices {
    batch: Option<Result<RecordBatch>>,
    done: usize,
}

impl Iterator for Slices {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.batch.take()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(error)),
        };
        let length = BATCH_ROWS.min(batch.num_rows() - self.done);
        if length == 0 {
            return None;
        }
        let slice = batch.slice(self.done, length);
        self.done += length;
        self.batch = Some(Ok(batch));
        Some(Ok(slice))
    }
}
