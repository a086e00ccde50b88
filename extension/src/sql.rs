//! Runs the SQL of tasks: DuckDB runs it in `headwater._sql`, over tables from here.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use headwater::internal::{TypedRows, did_you_mean};
use headwater::prepare::SqlEngine;
use headwater::prepare::schema::Schema;
use headwater::prepare::source::{Batches, Source};
use headwater::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow_source::{batches, open_stream};
use crate::arrow_stream::{FirstError, Stream, take_error};
use crate::errors;
use crate::errors::{PyResult, Raised};
use crate::work::Calls;

/// An engine that passes queries to Python; the first query imports the Python module.
pub(super) struct DuckDb<'a> {
    source: Arc<dyn Source>,
    schema: Schema,
    engine: Mutex<Option<Py<PyAny>>>,
    /// The first error of the tables' readers; DuckDB receives only its message.
    first_error: FirstError,
    calls: &'a Calls,
}

impl<'a> DuckDb<'a> {
    /// Returns an engine over the tables of `source`, with the types of `schema`.
    pub(super) fn new(source: Arc<dyn Source>, schema: Schema, calls: &'a Calls) -> Self {
        Self { source, schema, engine: Mutex::default(), first_error: FirstError::default(), calls }
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
                let created = module.call_method1("Engine", (self.tables(), scratch))?;
                self.calls.on_stop(created.getattr("interrupt")?.unbind());
                none.insert(created.unbind())
            }
        };
        Ok(engine.bind(py).call_method1("query", (query,))?)
    }

    fn tables(&self) -> SqlTables {
        SqlTables {
            source: Arc::clone(&self.source),
            schema: self.schema.clone(),
            first_error: Arc::clone(&self.first_error),
        }
    }

    /// Returns the error that ended a query: the first error of a reader, or an exception of this
    /// package, which callers prefix with the task; any other exception is raised unchanged.
    fn fault(&self, py: Python<'_>, error: Raised) -> Error {
        take_error(&self.first_error)
            .or_else(|| errors::ours(py, &error))
            .unwrap_or_else(|| self.calls.raise(py, error))
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
    first_error: FirstError,
}

#[pymethods]
impl SqlTables {
    /// Opens the rows of a table; the name ignores case, as in SQL.
    fn open(&self, name: &str) -> PyResult<SqlRows> {
        self.stream(name, TypedRows::open(&*self.source, &self.schema, &self.find(name)?)?)
    }

    /// Opens the rows of a table of the schema, as `prepare` reads them.
    fn open_prepared(&self, name: &str) -> PyResult<SqlRows> {
        let tables = &self.schema.tables;
        let table = tables.iter().find(|table| table.name.eq_ignore_ascii_case(name));
        let table = table.ok_or_else(|| {
            let names = tables.iter().map(|table| table.name.as_str());
            Error::schema(format!(
                "the SQL of a task reads prepared.{name:?}, which is not a table of the schema; {}",
                did_you_mean(name, names)
            ))
        })?;
        self.stream(name, TypedRows::open_prepared(&*self.source, table)?)
    }
}

impl SqlTables {
    fn stream(&self, name: &str, rows: TypedRows) -> PyResult<SqlRows> {
        check_columns(&rows, name)?;
        let first_error = Arc::clone(&self.first_error);
        let rows = Stream { schema: rows.schema(), batches: rows, first_error };
        Ok(SqlRows { rows: Mutex::new(Some(rows)) })
    }

    /// Returns the source's spelling of a table's name.
    fn find(&self, name: &str) -> Result<String> {
        let names = self.source.names()?;
        let matching: Vec<_> =
            names.iter().filter(|known| known.eq_ignore_ascii_case(name)).collect();
        let source = self.source.describe();
        match matching[..] {
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

/// Checks that no names differ only in case; DuckDB would rename one of them.
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

/// The rows of one table, which can be read once.
#[pyclass(frozen, module = "headwater")]
pub(super) struct SqlRows {
    rows: Mutex<Option<Stream<TypedRows>>>,
}

#[pymethods]
impl SqlRows {
    /// Returns the rows as an Arrow stream, with their own types.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows a producer to ignore the request.
        drop(requested_schema);
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        let rows = rows
            .ok_or_else(|| Error::invalid("expected one read of the rows, found a second one"))?;
        rows.into_capsule(py)
    }
}
