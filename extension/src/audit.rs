//! `headwater.audit`.

use std::path::PathBuf;
use std::sync::Arc;

use headwater::audit::{Settings, audit as run_audit, check_has_tables};
use headwater::store::Store;
use pyo3::prelude::*;

use crate::arguments::within;
use crate::errors::PyResult;
use crate::prepare::Reporter;
use crate::work::{self, Calls};
use crate::{Whole, to_python};

/// Looks for leaks of the future and of the label.
#[pyfunction]
#[pyo3(signature = (store, tasks = None, *, allowed = Vec::new(), seeds = Whole(5000)))]
#[pyo3(text_signature = "(store, tasks=None, *, allowed=(), seeds=5000)")]
pub(super) fn audit(
    py: Python<'_>,
    store: PathBuf,
    tasks: Option<Vec<String>>,
    allowed: Vec<String>,
    seeds: Whole,
) -> PyResult<Bound<'_, PyAny>> {
    let seeds = within("seeds", seeds, 100..=u32::MAX as usize, "")? as u32;
    let settings = Settings { tasks, seeds, allowed };
    let calls = Calls::default();
    let report = work::run(py, &calls, || {
        let progress = Reporter::new(None, &calls);
        check_has_tables(&store)?;
        run_audit(&Arc::new(Store::open(&store)?), &settings, &progress)
    })?;
    to_python(py, &calls.settle(py, report)?)
}
