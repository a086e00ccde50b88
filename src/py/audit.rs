//! `headwater.audit`.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;

use super::arguments::within;
use super::work::{self, Calls};
use super::{Whole, to_python};
use crate::audit::{Settings, audit as run_audit};
use crate::error::Result;
use crate::progress::Progress;
use crate::store::Store;

/// Stops the work at Ctrl-C, and shows nothing.
struct Quiet<'a>(&'a Calls);

impl Progress for Quiet<'_> {
    fn begin(&self, _stage: &str, _total: Option<u64>) {}

    fn advance(&self, _count: u64) -> Result<()> {
        self.0.check()
    }
}

/// Looks for what leaks the future or the label.
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
        run_audit(&Arc::new(Store::open(&store)?), &settings, &Quiet(&calls))
    })?;
    to_python(py, &calls.settle(py, report)?)
}
