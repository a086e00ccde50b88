//! `headwater._headwater.main`: the command, for the console script.

use std::ffi::OsString;
use std::path::Path;

use pyo3::prelude::*;

use super::sql::DuckDb;
use super::work::{self, Calls};
use crate::cli::{self, Hooks};
use crate::prepare::SqlEngine;

/// Runs the command and returns its exit status.
#[pyfunction]
pub(super) fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let calls = Calls::default();
    work::run(py, &calls, || {
        let sql = |source: &Path| -> Box<dyn SqlEngine> {
            let source = Python::attach(|py| {
                let path = source.into_pyobject(py);
                path.map_or_else(|_| py.None(), |path| path.into_any().unbind())
            });
            Box::new(DuckDb::new(source, &calls))
        };
        let hooks = Hooks { sql: Some(&sql), interrupted: Some(&|| calls.stopped()) };
        cli::main(arguments, &hooks)
    })
}
