//! `headwater.reduce.Matrix`.

use std::sync::Arc;

use headwater::matrix::{Matrix as Files, MatrixFormat, Numbers};
use headwater::reducer::{moments_near, moments_of_files};
use headwater::{Error, Result};
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::one_of;
use crate::errors::PyResult;
use crate::folds::ELEMENTS;
use crate::objects::to_bytes;
use crate::path_of;

/// Files of rows as one matrix.
#[pyclass(frozen, module = "headwater.reduce")]
pub(super) struct Matrix(Arc<Files>);

/// Returns the format of files from the options that describe them, as those of the command do.
fn format_of(
    select: Option<Vec<String>>,
    tensor: Option<String>,
    dtype: Option<&str>,
    columns: Option<usize>,
) -> Result<MatrixFormat> {
    let element = dtype.map(|dtype| one_of("dtype", dtype, &ELEMENTS)).transpose()?;
    match (element, columns, tensor, select) {
        (Some(element), Some(columns), None, None) => Ok(MatrixFormat::Raw { element, columns }),
        (Some(element), None, None, None) => Ok(MatrixFormat::Npy(Some(element))),
        (None, None, Some(tensor), None) => Ok(MatrixFormat::Safetensors(Some(tensor))),
        (None, None, None, Some(select)) => Ok(MatrixFormat::Parquet(Some(select))),
        (None, None, None, None) => Ok(MatrixFormat::ByName),
        _ => Err(Error::invalid(
            "expected select for .parquet, tensor for .safetensors, dtype for .npy of bfloat16, or dtype \
             and columns for raw numbers, found others together; leave out those of other formats",
        )),
    }
}

impl Matrix {
    /// Returns the files.
    pub(super) fn files(&self) -> Arc<Files> {
        Arc::clone(&self.0)
    }
}

#[pymethods]
impl Matrix {
    #[new]
    #[pyo3(signature = (*paths, select = None, tensor = None, dtype = None, columns = None))]
    fn new(
        paths: &Bound<'_, PyTuple>,
        select: Option<Vec<String>>,
        tensor: Option<String>,
        dtype: Option<String>,
        columns: Option<usize>,
    ) -> PyResult<Self> {
        let format = format_of(select, tensor, dtype.as_deref(), columns)?;
        let each = paths.iter().map(|path| path_of(&path, "expected paths of files"));
        let each: Vec<_> = each.collect::<Result<_>>()?;
        Ok(Self(Arc::new(paths.py().detach(|| Files::open(&each, &format))?)))
    }

    /// The number of rows.
    #[getter]
    fn rows(&self) -> u64 {
        self.0.rows()
    }

    /// The number of columns.
    #[getter]
    fn columns(&self) -> usize {
        self.0.columns()
    }

    /// The type of the numbers.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        let of = self.0.element();
        ELEMENTS.iter().find(|(_, element)| *element == of).map(|(name, _)| *name)
    }

    /// The names of the columns, if the files have them.
    #[getter]
    fn names(&self) -> Option<Vec<String>> {
        self.0.names().map(<[String]>::to_vec)
    }

    /// The identity of the rows, in hexadecimal digits.
    #[getter]
    fn data(&self) -> String {
        self.0.identity().to_string()
    }

    /// Returns the number of a column.
    fn column_of(&self, name: &str) -> PyResult<usize> {
        Ok(self.0.column_of(name)?)
    }

    /// Returns the bytes of some rows, in which no cell is NULL.
    fn read<'py>(&self, py: Python<'py>, start: u64, stop: u64) -> PyResult<Bound<'py, PyBytes>> {
        let numbers = py.detach(|| self.0.read(start..stop))?;
        self.0.check_unchanged(start..stop)?;
        if let Some((row, column)) = numbers.rows()?.first_null() {
            return Err(self.0.null_at(start + row as u64, column).into());
        }
        to_bytes(py, numbers.bytes())
    }

    /// Returns the median of each column among the first rows.
    fn shifts(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        Ok(py.detach(|| Ok::<_, Error>(moments_of_files(&self.0)?.shifts().to_vec()))?)
    }
}

/// Returns the median of each column among the first rows, whose numbers are bytes.
#[pyfunction]
pub(super) fn first_shifts(
    py: Python<'_>,
    dtype: &str,
    rows: PyReadonlyArray2<'_, u8>,
) -> PyResult<Vec<f64>> {
    let element = one_of("dtype", dtype, &ELEMENTS)?;
    let (count, row_bytes) = rows.as_array().dim();
    let (bytes, shape) = (rows.as_slice()?, (count, row_bytes / element.bytes()));
    let moments = py.detach(|| moments_near(&Numbers::of_bytes([bytes], element, shape)?));
    Ok(moments?.shifts().to_vec())
}
