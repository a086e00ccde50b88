//! Files that are written completely or not at all, and locks of folders.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use headwater::durable::{self, Disk};
use headwater::internal::{read_file as read, save_page};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::PyResult;
use crate::objects::to_bytes;

/// Writes a file completely or not at all, even if the process is killed or the power fails.
#[pyfunction]
pub(super) fn write_file(py: Python<'_>, path: PathBuf, data: &[u8]) -> PyResult<()> {
    Ok(py.detach(|| durable::write_file(&Disk, &path, data))?)
}

/// Reads a file; refuses a pipe, a device and a folder at once.
#[pyfunction]
pub(super) fn read_file(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    to_bytes(py, &py.detach(|| read(&path))?)
}

/// Writes a page that `draw` returned; replaces an earlier page, but no other file.
#[pyfunction]
pub(super) fn write_page(py: Python<'_>, path: PathBuf, page: &str) -> PyResult<()> {
    Ok(py.detach(|| save_page(&path, page))?)
}

/// Locks a folder against other processes, until it is released or this process ends.
#[pyclass(frozen, module = "headwater")]
pub(super) struct Claim(Mutex<Option<durable::Claim>>);

#[pymethods]
impl Claim {
    #[new]
    fn new(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(py.detach(|| durable::Claim::of(&folder))?))))
    }

    /// Unlocks the folder.
    fn release(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
