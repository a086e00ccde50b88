//! A batch as NumPy arrays that look into its buffer.
#![expect(unsafe_code, reason = "NumPy is lent memory that a Python object keeps; see the call")]

use half::f16;
use numpy::ndarray::{ArrayViewD, IxDyn};
use numpy::{Element, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Error, Result};
use crate::sampler::{Batch, Dtype, Tensor};

/// Keeps a batch's buffers for as long as an array looks into them.
#[pyclass(frozen)]
struct BatchMemory(Batch);

/// The tensors of `batch` by name: read-only, and none of them copied.
pub(super) fn arrays(py: Python<'_>, batch: Batch) -> PyResult<Bound<'_, PyDict>> {
    let memory = Bound::new(py, BatchMemory(batch))?;
    let arrays = PyDict::new(py);
    for (tensor, bytes) in memory.get().0.tensors() {
        let array = match tensor.dtype {
            Dtype::Int8 => array::<i8>(&memory, tensor, bytes)?,
            Dtype::UInt8 => array::<u8>(&memory, tensor, bytes)?,
            Dtype::UInt16 => array::<u16>(&memory, tensor, bytes)?,
            Dtype::Int32 => array::<i32>(&memory, tensor, bytes)?,
            Dtype::UInt32 => array::<u32>(&memory, tensor, bytes)?,
            Dtype::Int64 => array::<i64>(&memory, tensor, bytes)?,
            Dtype::Float16 => array::<f16>(&memory, tensor, bytes)?,
            Dtype::Float32 => array::<f32>(&memory, tensor, bytes)?,
        };
        arrays.set_item(tensor.name, array)?;
    }
    Ok(arrays)
}

fn array<'py, T: Element + bytemuck::Pod>(
    memory: &Bound<'py, BatchMemory>,
    tensor: &Tensor,
    bytes: &[u8],
) -> Result<Bound<'py, PyAny>> {
    let wrong = |e: &dyn std::fmt::Display| Error::invalid(format!("{}: {e}", tensor.name));
    let values: &[T] = bytemuck::try_cast_slice(bytes).map_err(|e| wrong(&e))?;
    let view = ArrayViewD::from_shape(IxDyn(&tensor.shape), values).map_err(|e| wrong(&e))?;
    // SAFETY: the memory belongs to `memory`, which the array keeps alive; nobody changes it while
    // that lives, and it is marked as read-only before anybody else sees it.
    let array = unsafe { PyArrayDyn::borrow_from_array(&view, memory.clone().into_any()) };
    array.readwrite().make_nonwriteable();
    Ok(array.into_any())
}
