//! `headwater.stage`.

use std::path::PathBuf;

use headwater::prepare::stage as run_stage;
use pyo3::prelude::*;

use crate::errors::PyResult;
use crate::prepare::Reporter;
use crate::to_python;
use crate::work::{self, Calls};

/// Copies a store to a node's own disk, once for all its processes.
#[pyfunction]
#[pyo3(signature = (store, out, *, progress = None))]
pub(super) fn stage(
    py: Python<'_>,
    store: PathBuf,
    out: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyAny>> {
    let calls = Calls::default();
    let reporter = Reporter::new(progress, &calls);
    let report = work::run(py, &calls, || run_stage(&store, &out, &reporter))?;
    to_python(py, &calls.settle(py, report)?)
}
