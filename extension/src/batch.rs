//! Makes NumPy arrays that share the buffers of a batch.

use half::f16;
use headwater::internal::{Dtype, Tensor, Tensors};
use headwater::{Error, Result};
use numpy::Element;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::PyResult;
use crate::objects::lent;

/// Owns the buffers of a batch while arrays share them.
#[pyclass(frozen)]
struct BatchMemory(Box<dyn Tensors>);

/// Returns the tensors of `batch` by name, read-only and without a copy.
pub(super) fn arrays(py: Python<'_>, batch: impl Tensors + 'static) -> PyResult<Bound<'_, PyDict>> {
    let memory = Bound::new(py, BatchMemory(Box::new(batch)))?;
    let arrays = PyDict::new(py);
    for (place, (tensor, _)) in memory.get().0.all().enumerate() {
        let array = match tensor.dtype {
            Dtype::Int8 => array::<i8>(&memory, place, tensor)?,
            Dtype::UInt8 => array::<u8>(&memory, place, tensor)?,
            Dtype::UInt16 => array::<u16>(&memory, place, tensor)?,
            Dtype::Int32 => array::<i32>(&memory, place, tensor)?,
            Dtype::UInt32 => array::<u32>(&memory, place, tensor)?,
            Dtype::Int64 => array::<i64>(&memory, place, tensor)?,
            Dtype::Float16 => array::<f16>(&memory, place, tensor)?,
            Dtype::Float32 => array::<f32>(&memory, place, tensor)?,
        };
        arrays.set_item(tensor.name, array)?;
    }
    Ok(arrays)
}

fn array<'py, T: Element + bytemuck::Pod>(
    memory: &Bound<'py, BatchMemory>,
    place: usize,
    tensor: &Tensor,
) -> Result<Bound<'py, PyAny>> {
    let array = lent(memory, &tensor.shape, |memory| {
        let bytes = memory.0.all().nth(place).map_or(&[][..], |(_, bytes)| bytes);
        bytemuck::try_cast_slice::<u8, T>(bytes)
            .map_err(|e| Error::invalid(format!("{}: {e}", tensor.name)))
    });
    Ok(array?.into_any())
}
