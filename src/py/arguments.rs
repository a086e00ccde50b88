//! Arguments that come from Python by name, and what is told of those that cannot be.

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::Whole;
use crate::error::{Error, Result};

/// The arguments of a class as they come from Python, by name.
pub(super) struct Arguments<'a, 'py>(pub(super) &'a Bound<'py, PyDict>);

impl<'py> Arguments<'_, 'py> {
    /// The argument of a name.
    pub(super) fn get<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        let value = self.0.get_item(name)?;
        let value = value.ok_or_else(|| Error::invalid(format!("{name} is missing")))?;
        value.extract().map_err(|error: <T as FromPyObject<'_, 'py>>::Error| {
            let error: PyErr = error.into();
            if error.is_instance_of::<PyTypeError>(self.0.py()) {
                let (words, found) =
                    (error.value(self.0.py()).to_string(), super::type_name(&value));
                return Error::invalid(format!("{name}: {words}, found {found}")).into();
            }
            error
        })
    }

    /// A whole number that fits into `T`.
    pub(super) fn number<T: TryFrom<i128>>(&self, name: &str) -> PyResult<T> {
        let Whole(number) = self.get(name)?;
        Ok(in_range(name, number)?)
    }
}

/// A number that fits into `T`.
pub(super) fn in_range<T: TryFrom<i128>>(name: &str, number: i128) -> Result<T> {
    T::try_from(number)
        .map_err(|_| Error::invalid(format!("{name} is {number}, which is out of range")))
}

/// What a word means, which is one of some.
pub(super) fn one_of<T: Copy>(name: &str, found: &str, choices: &[(&str, T)]) -> Result<T> {
    let choice = choices.iter().find(|(word, _)| *word == found);
    choice.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        Error::invalid(format!("expected {name} to be {}, found {found:?}", words.join(" or ")))
    })
}
