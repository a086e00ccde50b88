//! The SQL of tasks, which DuckDB runs in `headwater._sql`.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

use super::arrow_source::{batches, open_stream};
use super::errors;
use super::work::Calls;
use crate::error::Result;
use crate::prepare::SqlEngine;
use crate::prepare::source::Batches;

/// Hands queries to Python; nothing is imported before the first.
pub(super) struct DuckDb<'a> {
    source: Py<PyAny>,
    engine: Mutex<Option<Py<PyAny>>>,
    calls: &'a Calls,
}

impl<'a> DuckDb<'a> {
    /// An engine over `source`: a path, or a dictionary of tables.
    pub(super) fn new(source: Py<PyAny>, calls: &'a Calls) -> Self {
        Self { source, engine: Mutex::new(None), calls }
    }

    fn run<'py>(&self, py: Python<'py>, query: &str) -> PyResult<Bound<'py, PyAny>> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        let engine = match &mut *engine {
            Some(engine) => engine,
            none => {
                let module = py.import("headwater._sql")?;
                let made = module.call_method1("Engine", (&self.source,))?;
                self.calls.on_stop(made.getattr("interrupt")?.unbind());
                none.insert(made.unbind())
            }
        };
        engine.bind(py).call_method1("query", (query,))
    }
}

impl SqlEngine for DuckDb<'_> {
    fn query(&self, query: &str, columns: &[String]) -> Result<Batches> {
        self.calls.check()?;
        let reader = Python::attach(|py| {
            // An error of ours gets the task's name on its way up; any other is raised as it is.
            let rows = self.run(py, query).map_err(|error| {
                errors::ours(py, &error).unwrap_or_else(|| self.calls.raise(py, error))
            })?;
            open_stream(&rows)
        })?;
        batches(reader, columns)
    }
}
