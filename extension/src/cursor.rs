//! `headwater.Cursor`.

use std::path::PathBuf;

use headwater::plan::{Cursor as PlanCursor, Setting};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::PyResult;
use crate::objects::to_bytes;

/// A position in the sequence of a plan, and the plan that it belongs to.
#[pyclass(frozen, eq, module = "headwater")]
#[derive(PartialEq)]
pub(super) struct Cursor(PlanCursor);

impl Cursor {
    /// Returns the cursor of the plan.
    pub(super) fn as_plan(&self) -> &PlanCursor {
        &self.0
    }
}

impl From<PlanCursor> for Cursor {
    fn from(cursor: PlanCursor) -> Self {
        Self(cursor)
    }
}

#[pymethods]
impl Cursor {
    /// Reads a cursor from a file.
    #[staticmethod]
    fn read(path: PathBuf) -> PyResult<Self> {
        Ok(Self(PlanCursor::read(&path)?))
    }

    /// Reads a cursor from its bytes.
    #[staticmethod]
    fn decode(data: &[u8]) -> PyResult<Self> {
        Ok(Self(PlanCursor::decode(data)?))
    }

    /// Returns the bytes of the cursor; equal cursors have equal bytes.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        to_bytes(py, &self.0.encode()?)
    }

    /// The kind of sequence, such as "sampler".
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind().name()
    }

    /// The fingerprint of the plan, in hexadecimal digits.
    #[getter]
    fn fingerprint(&self) -> String {
        self.0.plan().fingerprint().to_string()
    }

    /// The position: counters by name.
    #[getter]
    fn position<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let position = PyDict::new(py);
        for (name, count) in self.0.position().iter() {
            position.set_item(name, count)?;
        }
        Ok(position)
    }

    /// The settings of the plan by name.
    #[getter]
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let settings = PyDict::new(py);
        for (name, setting) in self.0.plan().iter() {
            add_setting(&settings, name, setting)?;
        }
        Ok(settings)
    }

    fn __repr__(&self) -> String {
        let counters: Vec<_> =
            self.0.position().iter().map(|(name, count)| format!("{name}={count}")).collect();
        format!("<{} cursor at {}>", self.kind(), counters.join(", "))
    }
}

fn add_setting(settings: &Bound<'_, PyDict>, name: &str, setting: &Setting) -> pyo3::PyResult<()> {
    match setting {
        Setting::Number(number) => settings.set_item(name, number),
        Setting::Flag(flag) => settings.set_item(name, flag),
        Setting::Text(text) => settings.set_item(name, text),
        Setting::Hash(_) => settings.set_item(name, setting.to_string()),
    }
}
