//! `headwater.draft_schema`.

use pyo3::prelude::*;

use super::prepare::open_source;
use super::work::{self, Calls};
use crate::prepare::draft::draft;

/// Drafts a schema file from the names, types and values of a source.
#[pyfunction]
#[pyo3(signature = (source, name = "database"))]
pub(super) fn draft_schema(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    name: &str,
) -> PyResult<String> {
    let calls = Calls::default();
    let source = open_source(source)?;
    let drafted = work::run(py, &calls, || draft(&*source, name, &|_table| calls.check()))?;
    Ok(calls.settle(py, drafted)?.render())
}
