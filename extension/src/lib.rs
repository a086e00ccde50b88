//! The Python extension module: one file for each of its classes and functions.

mod arguments;
mod arrow_source;
mod arrow_stream;
mod audit;
mod batch;
mod cli;
mod cursor;
mod database;
mod draft;
mod embedder;
mod endpoint;
mod errors;
mod events;
mod files;
mod folds;
mod frame;
mod keys;
mod labels;
mod launcher;
mod matrix;
mod objects;
mod pass;
mod prepare;
mod reduce;
mod sampler;
mod sql;
mod stage;
mod store;
mod times;
mod work;

use std::path::PathBuf;

use headwater::{Error, Result};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;
use serde::Serialize;

use crate::errors::{PyResult, Raised};

/// The compiled module of the `headwater` package.
#[pymodule]
mod _headwater {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::audit::audit;
    #[pymodule_export]
    use super::cli::main;
    #[pymodule_export]
    use super::cli::reduce_main;
    #[pymodule_export]
    use super::cursor::Cursor;
    #[pymodule_export]
    use super::draft::draft_schema;
    #[pymodule_export]
    use super::endpoint::Endpoint;
    #[pymodule_export]
    use super::events::{EventPass, EventsCore};
    #[pymodule_export]
    use super::files::{Claim, read_file, write_file, write_page};
    #[pymodule_export]
    use super::frame::{RowStream, describe_table, describe_task, seed_rows, table_rows};
    #[pymodule_export]
    use super::keys::key_text;
    #[pymodule_export]
    use super::launcher::launched;
    #[pymodule_export]
    use super::matrix::{Matrix, first_shifts};
    #[pymodule_export]
    use super::prepare::{prepare, prepare_part};
    #[pymodule_export]
    use super::reduce::{ReductionCore, WorkerCore, fold_files, sum_leaf};
    #[pymodule_export]
    use super::sampler::{Evaluation, SamplerCore, sampler_defaults};
    #[pymodule_export]
    use super::sql::{SqlRows, SqlTables};
    #[pymodule_export]
    use super::stage::stage;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::times::split_times;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Loads NumPy now: Ctrl-C during a later load would leave it half loaded.
        numpy::PyArray1::<u8>::zeros(module.py(), 0, false);
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        super::errors::add_to(module)
    }
}

/// Returns `value` as Python objects, by way of JSON.
fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text =
        serde_json::to_string(value).map_err(|e| Error::invalid(format!("writing JSON: {e}")))?;
    Ok(py.import("json")?.call_method1("loads", (objects::to_text(py, &text)?,))?)
}

/// Returns the JSON of a Python object.
fn to_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value.py().import("json")?.call_method1("dumps", (value,))?.extract()?)
}

/// A whole number from Python, wide enough that numbers out of range have our message.
struct Whole(i128);

impl<'py> FromPyObject<'_, 'py> for Whole {
    type Error = Raised;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        refuse_bool(&object)?;
        match object.extract() {
            Ok(number) => Ok(Self(number)),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                let number = object.str()?;
                Err(Error::invalid(format!("expected a number within 128 bits, found {number}"))
                    .into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A number from Python, whole or not.
struct Real(f64);

impl<'py> FromPyObject<'_, 'py> for Real {
    type Error = Raised;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        refuse_bool(&object)?;
        Ok(Self(object.extract()?))
    }
}

/// Rejects a bool, which Python would take as the number 0 or 1.
fn refuse_bool(object: &Bound<'_, PyAny>) -> PyResult<()> {
    match type_name(object).as_str() {
        // NumPy's has the second name from version 2 on, the third before.
        "bool" | "numpy.bool" | "numpy.bool_" => Err(PyTypeError::new_err(format!(
            "{} is a bool, and cannot be interpreted as a number",
            object.str()?
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Returns an argument as a path; `expected` names all types that the argument may have.
fn path_of(argument: &Bound<'_, PyAny>, expected: &str) -> Result<PathBuf> {
    argument
        .extract()
        .map_err(|_| Error::invalid(format!("{expected}, found {}", type_name(argument))))
}

/// Returns the name of the type of a Python object, for messages.
fn type_name(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().fully_qualified_name();
    name.map_or_else(|_| "an object".to_owned(), |name: Bound<'_, PyString>| name.to_string())
}

/// Converts an exception of `call` to an [`Error`] with the same message.
fn to_data_error<T>(py: Python<'_>, call: pyo3::PyResult<T>) -> Result<T> {
    call.map_err(|error| Error::data(error.value(py).to_string()))
}
