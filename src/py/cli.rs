//! `headwater._headwater.main` and `reduce_main`: the commands, for the console scripts.

use std::ffi::OsString;
use std::sync::Arc;

use pyo3::prelude::*;

use super::database::connect;
use super::sql::DuckDb;
use super::work::{self, Calls};
use crate::cli::headwater::{self, Hooks};
use crate::cli::reduce;
use crate::prepare::SqlEngine;
use crate::prepare::schema::Schema;
use crate::prepare::source::Source;

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
        headwater::main(arguments, &hooks)
    })?)
}

/// Runs `headwater-reduce` and returns its exit status.
#[pyfunction]
pub(super) fn reduce_main(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    let calls = Calls::default();
    Ok(work::run(py, &calls, || reduce::main(arguments, Some(&|| calls.stopped())))?)
}
