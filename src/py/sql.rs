//! The SQL of tasks, which DuckDB runs in `headwater._sql` over tables that come from here.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::{Schema as ArrowSchema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::arrow_source::{batches, open_stream};
use super::errors;
use super::work::Calls;
use crate::error::{Error, Result};
use crate::prepare::SqlEngine;
use crate::prepare::names::did_you_mean;
use crate::prepare::schema::Schema;
use crate::prepare::source::typed::TypedRows;
use crate::prepare::source::{Batches, Source};

/// Hands queries to Python; nothing is imported before the first.
pub(super) struct DuckDb<'a> {
    source: Arc<dyn Source>,
    schema: Schema,
    engine: Mutex<Option<Py<PyAny>>>,
    /// The first error of the tables' readers, which reaches DuckDB in words only.
    trouble: Trouble,
    calls: &'a Calls,
}

type Trouble = Arc<Mutex<Option<Error>>>;

impl<'a> DuckDb<'a> {
    /// An engine over the tables of `source`, with the types of `schema`.
    pub(super) fn new(source: Arc<dyn Source>, schema: Schema, calls: &'a Calls) -> Self {
        Self { source, schema, engine: Mutex::default(), trouble: Trouble::default(), calls }
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        scratch: &Path,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = match &mut *engine {
            Some(engine) => engine,
            none => {
                let module = py.import("headwater._sql")?;
                let made = module.call_method1("Engine", (self.tables(), scratch))?;
                self.calls.on_stop(made.getattr("interrupt")?.unbind());
                none.insert(made.unbind())
            }
        };
        engine.bind(py).call_method1("query", (query,))
    }

    fn tables(&self) -> SqlTables {
        SqlTables {
            source: Arc::clone(&self.source),
            schema: self.schema.clone(),
            trouble: Arc::clone(&self.trouble),
        }
    }

    /// What ended a query: the error of a reader as it is, or an exception of ours, which gets the
    /// task's name on its way up; any other is raised as it is.
    fn fault(&self, py: Python<'_>, error: PyErr) -> Error {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        trouble.or_else(|| errors::ours(py, &error)).unwrap_or_else(|| self.calls.raise(py, error))
    }
}

impl SqlEngine for DuckDb<'_> {
    fn query(&self, query: &str, columns: &[String], scratch: &Path) -> Result<Batches> {
        self.calls.check()?;
        let reader = Python::attach(|py| {
            let rows = self.run(py, query, scratch).map_err(|error| self.fault(py, error))?;
            open_stream(&rows)
        })?;
        batches(reader, columns)
    }
}

/// The tables of a source, as the SQL of tasks sees them.
#[pyclass(frozen, module = "headwater")]
pub(super) struct SqlTables {
    source: Arc<dyn Source>,
    schema: Schema,
    trouble: Trouble,
}

#[pymethods]
impl SqlTables {
    /// The rows of a table; upper and lower case are the same, as in SQL.
    fn open(&self, name: &str) -> PyResult<SqlRows> {
        let rows = TypedRows::open(&*self.source, &self.schema, &self.find(name)?)?;
        check_columns(&rows, name)?;
        let rows = Stream { schema: rows.schema(), rows, trouble: Arc::clone(&self.trouble) };
        Ok(SqlRows { rows: Mutex::new(Some(rows)) })
    }
}

impl SqlTables {
    /// The source's spelling of a table's name.
    fn find(&self, name: &str) -> Result<String> {
        let names = self.source.names()?;
        let named: Vec<_> = names.iter().filter(|known| known.eq_ignore_ascii_case(name)).collect();
        let source = self.source.describe();
        match named[..] {
            [table] => Ok(table.clone()),
            [] => Err(Error::schema(format!(
                "the SQL of a task reads {name:?}, which is not a table of {source}; {}",
                did_you_mean(name, names.iter().map(String::as_str))
            ))),
            [one, other, ..] => Err(Error::schema(format!(
                "the SQL of a task reads {name:?}, but {source} has tables {one:?} and {other:?}, \
                 which SQL cannot tell apart; rename one of them"
            ))),
        }
    }
}

/// Refuses names that differ in case alone, of which DuckDB would rename one.
fn check_columns(rows: &TypedRows, table: &str) -> Result<()> {
    let schema = rows.schema();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    for (index, name) in names.iter().enumerate() {
        let earlier = names[..index].iter().find(|earlier| earlier.eq_ignore_ascii_case(name));
        if let Some(earlier) = earlier {
            return Err(Error::schema(format!(
                "the SQL of a task reads table {table:?}, whose columns {earlier:?} and {name:?} \
                 SQL cannot tell apart; rename one of them"
            )));
        }
    }
    Ok(())
}

/// The rows of one table, which can be taken once.
#[pyclass(frozen, module = "headwater")]
pub(super) struct SqlRows {
    rows: Mutex<Option<Stream>>,
}

#[pymethods]
impl SqlRows {
    /// The rows as an Arrow stream, in the types that they have.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer leave the request unmet.
        drop(requested_schema);
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        let rows = rows.ok_or_else(|| {
            Error::invalid(
                "expected one reader of the rows, found a \
                                                      second",
            )
        })?;
        let stream = FFI_ArrowArrayStream::new(Box::new(rows));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// Rows on their way to DuckDB, which gets no more of an error than its words.
struct Stream {
    rows: TypedRows,
    schema: SchemaRef,
    trouble: Trouble,
}

impl Iterator for Stream {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.rows.next()?.map_err(|error| {
            let words = ArrowError::CDataInterface(error.to_string());
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            trouble.get_or_insert(error);
            words
        }))
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> Arc<ArrowSchema> {
        SchemaRef::clone(&self.schema)
    }
}
