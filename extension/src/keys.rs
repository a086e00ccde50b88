//! Converts keys from Python to text, by the rules of `prepare`.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, StringArray,
    TimestampMicrosecondArray,
};
use headwater::Error;
use headwater::internal::key_text_of;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors::PyResult;
use crate::type_name;

/// Returns the text of a key, by which a store finds its row.
///
/// A composite key is a tuple of its parts.
#[pyfunction]
pub(super) fn key_text(key: &Bound<'_, PyAny>) -> PyResult<String> {
    let parts = match key.cast::<PyTuple>() {
        Ok(parts) => parts.iter().map(|part| part_of(&part)).collect::<PyResult<Vec<_>>>()?,
        Err(_) => vec![part_of(key)?],
    };
    Ok(key_text_of(&parts)?)
}

/// Returns a part of a key as an array of one value, of the type that a source would have.
fn part_of(part: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let name = type_name(part);
    // `item` turns the other scalars of NumPy into objects of Python.
    if let Some(kind) = name.strip_prefix("numpy.") {
        return match kind {
            "float16" | "float32" => Ok(Arc::new(Float32Array::from(vec![part.extract::<f32>()?]))),
            "datetime64" => {
                let micros = part.call_method1("astype", ("datetime64[us]",))?;
                let micros: i64 = micros.call_method1("astype", ("int64",))?.extract()?;
                Ok(Arc::new(TimestampMicrosecondArray::from(vec![micros])))
            }
            _ => part_of(&part.call_method0("item")?),
        };
    }
    Ok(match name.as_str() {
        "bool" => Arc::new(BooleanArray::from(vec![part.extract::<bool>()?])),
        "float" => Arc::new(Float64Array::from(vec![part.extract::<f64>()?])),
        "int" | "str" => Arc::new(StringArray::from(vec![part.str()?.to_str()?])),
        "bytes" => Arc::new(BinaryArray::from(vec![part.cast::<PyBytes>()?.as_bytes()])),
        "decimal.Decimal" => Arc::new(StringArray::from(vec![decimal_text(part)?])),
        "datetime.datetime" | "datetime.date" => {
            Arc::new(TimestampMicrosecondArray::from(vec![micros_of(part)?]))
        }
        _ => return Err(unknown(&name).into()),
    })
}

/// Returns the digits of a decimal, without trailing zeros of the fraction.
fn decimal_text(number: &Bound<'_, PyAny>) -> PyResult<String> {
    let text: String = number.call_method1("__format__", ("f",))?.extract()?;
    Ok(match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    })
}

/// Returns the microseconds since 1970; a time without a zone is UTC.
fn micros_of(time: &Bound<'_, PyAny>) -> PyResult<i64> {
    let micros = time.py().import("headwater.sampler")?.call_method1("micros", (time,))?;
    Ok(micros.extract()?)
}

fn unknown(found: &str) -> Error {
    Error::invalid(format!(
        "expected a key, or a tuple of its parts, of type bool, int, float, str, bytes, Decimal, date \
         or datetime, found {found}"
    ))
}
