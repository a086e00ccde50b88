//! Python objects as large as the data.
//!
//! PyO3 and rust-numpy panic where Python has no memory for an object; these raise `MemoryError`.
#![expect(unsafe_code, reason = "NumPy borrows memory that a Python object owns; see the call")]

use headwater::{Error, Result};
use numpy::ndarray::{ArrayViewD, IxDyn};
use numpy::npyffi::NPY_ARRAY_WRITEABLE;
use numpy::{Element, PyArray1, PyArrayDyn, PyUntypedArrayMethods};
use pyo3::PyClass;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyBytes, PyString};

use crate::errors::PyResult;

/// Copies bytes to Python.
pub(super) fn to_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new_with(py, bytes.len(), |room| {
        room.copy_from_slice(bytes);
        Ok(())
    })?)
}

/// Copies a text to Python.
pub(super) fn to_text<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
    let bytes = to_bytes(py, text.as_bytes())?;
    Ok(PyString::from_encoded_object(&bytes, Some(c"utf-8"), None)?)
}

/// A page and a text.
pub(super) type Drawn<'py> = (Bound<'py, PyString>, Bound<'py, PyString>);

/// Copies a page and a text to Python.
pub(super) fn drawn<'py>(py: Python<'py>, page: &str, text: &str) -> PyResult<Drawn<'py>> {
    Ok((to_text(py, page)?, to_text(py, text)?))
}

/// Copies numbers to an array.
pub(super) fn to_array<'py, T: Element + Copy>(
    py: Python<'py>,
    numbers: &[T],
) -> PyResult<Bound<'py, PyArray1<T>>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(numbers.len()).map_err(|e| {
        PyMemoryError::new_err(format!("an array of {} numbers: {e}", numbers.len()))
    })?;
    copy.extend_from_slice(numbers);
    Ok(PyArray1::from_vec(py, copy))
}

/// Returns an array of numbers that `owner` owns, read-only and without a copy.
pub(super) fn lent<'py, O, T>(
    owner: &Bound<'py, O>,
    shape: &[usize],
    numbers: impl for<'a> FnOnce(&'a O) -> Result<&'a [T]>,
) -> Result<Bound<'py, PyArrayDyn<T>>>
where
    O: PyClass<Frozen = True> + Sync,
    T: Element,
{
    let view = ArrayViewD::from_shape(IxDyn(shape), numbers(owner.get())?)
        .map_err(|e| Error::invalid(format!("an array of shape {shape:?}: {e}")))?;
    // SAFETY: the numbers live as long as `owner`, which nothing can change or move, and the array keeps
    // `owner` alive. It is marked as read-only before any other code has it; not by a borrow, which another
    // thread may have of the same numbers.
    unsafe {
        let array = PyArrayDyn::borrow_from_array(&view, owner.clone().into_any());
        (*array.as_array_ptr()).fields.flags &= !NPY_ARRAY_WRITEABLE;
        Ok(array)
    }
}
