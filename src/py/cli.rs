//! `headwater._headwater.main`: the command, for the console script.

use std::ffi::OsString;
use std::sync::Arc;

use pyo3::prelude::*;

use super::sql::DuckDb;
use super::work::{self, Calls};
use crate::cli::{self, Hooks};
use crate::prepare::SqlEngine;
use crate::prepare::schema::Schema;
use crate::prepare::source::Source;

/// Runs the command and returns its exit status.
#[pyfunction]
pub(super) fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    let calls = Calls::default();
    work::run(py, &calls, || {
        let sql = |source: &Arc<dyn Source>, schema: &Schema| -> Box<dyn SqlEngine> {
            Box::new(DuckDb::new(Arc::clone(source), schema.clone(), &calls))
        };
        let hooks = Hooks { sql: Some(&sql), interrupted: Some(&|| calls.stopped()) };
        cli::main(arguments, &hooks)
    })
}
