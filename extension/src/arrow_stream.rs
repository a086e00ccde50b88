//! Hands rows to Python as an Arrow stream.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use headwater::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::PyResult;

/// The first error of some streams; their consumers receive only its message.
pub(super) type FirstError = Arc<Mutex<Option<Error>>>;

/// Takes the first error, if there was one.
pub(super) fn take_error(first_error: &FirstError) -> Option<Error> {
    first_error.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A stream of batches.
pub(super) struct Stream<I> {
    pub batches: I,
    pub schema: SchemaRef,
    pub first_error: FirstError,
}

impl<I: Iterator<Item = Result<RecordBatch>> + Send + 'static> Stream<I> {
    /// Returns the capsule of the Arrow PyCapsule interface.
    pub(super) fn into_capsule(self, py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
        let stream = FFI_ArrowArrayStream::new(Box::new(self));
        Ok(PyCapsule::new_with_value(py, stream, c"arrow_array_stream")?)
    }
}

impl<I: Iterator<Item = Result<RecordBatch>>> Iterator for Stream<I> {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.batches.next()?.map_err(|error| {
            let message = ArrowError::CDataInterface(error.to_string());
            let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error);
            message
        }))
    }
}

impl<I: Iterator<Item = Result<RecordBatch>>> RecordBatchReader for Stream<I> {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}
