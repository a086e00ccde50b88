//! `headwater.draft_schema`.

use std::path::PathBuf;

use headwater::prepare::draft::draft;
use headwater::prepare::source::{database_name, select};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::PyResult;
use crate::objects::to_text;
use crate::prepare::open_source;
use crate::work::{self, Calls};

/// Drafts a schema file from the names, types and values of a source.
#[pyfunction]
#[pyo3(signature = (source, name = None, *, tables = None, cell_tasks = false))]
pub(super) fn draft_schema<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    name: Option<String>,
    tables: Option<Vec<String>>,
    cell_tasks: bool,
) -> PyResult<Bound<'py, PyString>> {
    let calls = Calls::default();
    let path = source.extract::<PathBuf>().ok();
    let name = name.or_else(|| path.as_deref().map(database_name));
    let name = name.as_deref().unwrap_or("database");
    let mut source = open_source(source, &calls)?;
    if let Some(tables) = tables {
        source = select(source, &tables)?;
    }
    let drafted = work::run(py, &calls, || draft(&*source, name, &|_table| calls.check()))?;
    let drafted = calls.settle(py, drafted)?;
    let drafted = if cell_tasks { drafted } else { drafted.without_cell_tasks() };
    to_text(py, &drafted.render())
}
