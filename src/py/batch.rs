//! Makes NumPy arrays that share the buffers of a batch.
#![expect(unsafe_code, reason = "NumPy borrows memory that a Python object owns; see the call")]

use half::f16;
use numpy::ndarray::{ArrayViewD, IxDyn};
use numpy::{Element, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor, Tensors};

/// Owns the buffers of a batch while arrays share them.
#[pyclass(frozen)]
struct BatchMemory(Box<dyn Tensors>);

/// Returns the tensors of `batch` by name, read-only and without a copy.
pub(super) fn arrays(py: Python<'_>, batch: impl Tensors + 'static) -> PyResult<Bound<'_, PyDict>> {
    let memory = Bound::new(py, BatchMemory(Box::new(batch)))?;
    let arrays = PyDict::new(py);
    for (tensor, bytes) in memory.get().0.all() {
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
    // SAFETY: `memory` owns the bytes, and the array keeps `memory` alive. Nothing writes to the bytes,
    // and the array is marked as read-only before any other code has it.
    let array = unsafe { PyArrayDyn::borrow_from_array(&view, memory.clone().into_any()) };
    array.readwrite().make_nonwriteable();
    Ok(array.into_any())
}
