//! Reads the tables of a database through Python: of a DuckDB file, or of Postgres.

use std::collections::{BTreeMap, BTreeSet};

use headwater::internal::did_you_mean;
use headwater::prepare::source::{
    Batches, Database, DeclaredReference, Source, SourceColumn, SourceTable,
};
use headwater::{Context, Error, Result};
use pyo3::prelude::*;

use crate::arrow_source::{batches, columns_of, open_stream};
use crate::errors;
use crate::work::Calls;

/// Opens the database at an address with the Python module for it.
pub(super) fn connect(database: Database, address: &str, calls: &Calls) -> Result<Box<dyn Source>> {
    let module = match database {
        Database::DuckDb => "headwater._duckdb_file",
        Database::Postgres => "headwater._postgres",
    };
    Python::attach(|py| {
        let open = || -> pyo3::PyResult<_> {
            let object = py.import(module)?.call_method1("open_source", (address,))?;
            calls.on_stop(object.getattr("interrupt")?.unbind());
            let description = object.getattr("description")?.extract()?;
            let tables = object.call_method0("tables")?.extract::<Vec<Declared>>()?;
            let tables = tables.into_iter().map(|table| (table.name.clone(), table)).collect();
            Ok(DatabaseSource { description, tables, object: object.unbind() })
        };
        let source = open()
            .map_err(|error| errors::ours(py, &error).unwrap_or_else(|| calls.raise(py, error)))?;
        if source.tables.is_empty() {
            return Err(Error::data(format!("{} holds no table", source.description)));
        }
        Ok(Box::new(source) as Box<dyn Source>)
    })
}

/// A source of a Python object with the methods of `headwater._database.Database`.
struct DatabaseSource {
    description: String,
    tables: BTreeMap<String, Declared>,
    object: Py<PyAny>,
}

/// A table as the database declares it: `headwater._database.Declared`.
#[derive(FromPyObject)]
struct Declared {
    name: String,
    is_view: bool,
    key: Vec<String>,
    /// The columns, the table referred to, and its columns.
    references: Vec<(Vec<String>, String, Vec<String>)>,
}

impl DatabaseSource {
    fn find(&self, table: &str) -> Result<&Declared> {
        self.tables.get(table).ok_or_else(|| {
            let hint = did_you_mean(table, self.tables.keys().map(String::as_str));
            Error::schema(format!("{} has no table {table:?}; {hint}", self.description))
        })
    }

    /// Calls a method of the object.
    fn call<T>(
        &self,
        call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> pyo3::PyResult<Bound<'py, PyAny>>,
        then: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> Result<T>,
    ) -> Result<T> {
        Python::attach(|py| {
            let found = call(self.object.bind(py)).map_err(|error| {
                let other = || Error::data(error.value(py).to_string());
                errors::ours(py, &error).unwrap_or_else(other)
            })?;
            then(&found)
        })
    }
}

impl Drop for DatabaseSource {
    fn drop(&mut self) {
        // The connection ends with the object in any case.
        let _ = Python::attach(|py| self.object.call_method0(py, "close"));
    }
}

impl Source for DatabaseSource {
    fn describe(&self) -> String {
        self.description.clone()
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.tables.keys().cloned().collect())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        self.find(table)?;
        self.call(
            |object| object.call_method1("empty", (table,)),
            |rows| columns_of(&open_stream(rows)?),
        )
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let mut tables = Vec::new();
        for (name, declared) in &self.tables {
            let columns = match declared.is_view {
                // A view of a table that is gone has none, and must not spoil the other tables.
                true => Vec::new(),
                false => self.columns(name).context(|| format!("table {name:?}"))?,
            };
            let references = declared.references.iter().filter_map(|(from, to, to_columns)| {
                let key = &self.tables.get(to)?.key;
                let to_columns = if to_columns == key { vec![] } else { to_columns.clone() };
                Some(DeclaredReference { columns: from.clone(), to: to.clone(), to_columns })
            });
            tables.push(SourceTable {
                name: name.clone(),
                columns,
                key: declared.key.clone(),
                references: references.collect(),
            });
        }
        Ok(tables)
    }

    fn views(&self) -> Result<Vec<String>> {
        let views = self.tables.values().filter(|table| table.is_view);
        Ok(views.map(|table| table.name.clone()).collect())
    }

    fn read(&self, table: &str, columns: &[String]) -> Result<Batches> {
        self.find(table)?;
        let place = || format!("table {table:?} of {}", self.description);
        let distinct: BTreeSet<&String> = columns.iter().collect();
        let known = self.columns(table)?;
        headwater::internal::positions(&known, columns).context(place)?;
        self.call(
            |object| object.call_method1("rows", (table, distinct.into_iter().collect::<Vec<_>>())),
            // The stream holds its connection. No Python object goes with the batches: they may be
            // dropped in a call of another library, which has left the interpreter.
            |rows| batches(open_stream(rows)?, columns),
        )
        .context(place)
    }
}
