//! `headwater._headwater.main` and `reduce_main`: the commands, for the console scripts.

use std::ffi::OsString;
use std::sync::Arc;

use headwater::cli::headwater::{Hooks, main as run_headwater};
use headwater::cli::reduce;
use headwater::prepare::SqlEngine;
use headwater::prepare::schema::Schema;
use headwater::prepare::source::Source;
use pyo3::prelude::*;

use crate::database::connect;
use crate::errors::PyResult;
use crate::sql::DuckDb;
use crate::work::{self, Calls};

/// Runs `headwater` and returns its exit status.
#[pyfunction]
pub(super) fn main(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let calls = Calls::default();
    Ok(work::run(py, &calls, || {
        let sql = |source: &Arc<dyn Source>, schema: &Schema| -> Box<dyn SqlEngine> {
            Box::new(DuckDb::new(Arc::clone(source), schema.clone(), &calls))
        };
        let connect = |database, address: &str| connect(database, address, &calls);
        let interrupted = || calls.stopped();
        let hooks =
            Hooks { sql: Some(&sql), connect: Some(&connect), interrupted: Some(&interrupted) };
        run_headwater(arguments, &hooks)
    })?)
}

/// Runs `headwater-reduce` and returns its exit status.
#[pyfunction]
pub(super) fn reduce_main(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let calls = Calls::default();
    Ok(work::run(py, &calls, || reduce::main(arguments, Some(&|| calls.stopped()), None))?)
}
