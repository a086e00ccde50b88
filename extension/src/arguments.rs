//! Named arguments from Python, and the errors of invalid ones.

use std::ops::RangeInclusive;

use headwater::internal::THREADS_MAX;
use headwater::plan::Split;
use headwater::sampler::Speed;
use headwater::{Error, Result};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::Whole;
use crate::errors::PyResult;

/// The name of an argument from Python, and the object.
#[derive(Clone, Copy)]
pub(super) struct Argument<'a, 'py>(pub(super) &'a str, pub(super) &'a Bound<'py, PyAny>);

impl<'py> Argument<'_, 'py> {
    /// Returns the argument as a `T`.
    ///
    /// # Errors
    /// `InvalidArgument` with the name of the argument when it has another type.
    pub(super) fn get<T: FromPyObjectOwned<'py>>(self) -> PyResult<T> {
        let Self(name, object) = self;
        object.extract().map_err(|error: <T as FromPyObject<'_, 'py>>::Error| {
            let error: PyErr = error.into();
            if error.is_instance_of::<PyTypeError>(object.py()) {
                let (message, found) =
                    (error.value(object.py()).to_string(), super::type_name(object));
                return Error::invalid(format!("{name}: {message}, found {found}")).into();
            }
            error.into()
        })
    }

    /// Returns the argument as a `T`; `expected` says in an error which values the argument may have.
    ///
    /// # Errors
    /// `InvalidArgument` with the name and the value of the argument when it has another type, or is a tuple of
    /// another length.
    pub(super) fn get_as<T: FromPyObjectOwned<'py>>(self, expected: &str) -> PyResult<T> {
        let Self(name, object) = self;
        object.extract().map_err(|error: <T as FromPyObject<'_, 'py>>::Error| {
            let (error, py): (PyErr, _) = (error.into(), object.py());
            // A tuple of another length is a plain ValueError; our own errors say more, and are ValueErrors, too.
            let is_other_length = error.get_type(py).is(py.get_type::<PyValueError>());
            if !is_other_length && !error.is_instance_of::<PyTypeError>(py) {
                return error.into();
            }
            match shown(object) {
                Ok(found) => {
                    Error::invalid(format!("{name}: expected {expected}, found {found}")).into()
                }
                Err(error) => error,
            }
        })
    }

    /// Returns the argument as a truth value.
    pub(super) fn flag(self) -> PyResult<bool> {
        self.get_as("True or False")
    }

    /// Returns the argument as a whole number that fits into `T`.
    pub(super) fn number<T: TryFrom<i128>>(self) -> PyResult<T> {
        let Whole(number) = self.get_as("a whole number")?;
        Ok(in_range(self.0, number)?)
    }

    /// Returns the argument as a whole number that fits into `T`; none for None.
    pub(super) fn optional_number<T: TryFrom<i128>>(self) -> PyResult<Option<T>> {
        let number: Option<Whole> = self.get_as("a whole number or None")?;
        Ok(number.map(|Whole(number)| in_range(self.0, number)).transpose()?)
    }

    /// Rejects any value but None: `by` names what does not use the argument.
    pub(super) fn unused_by(self, by: &str) -> PyResult<()> {
        match self.1.is_none() {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{}: expected none, because {by} does not use it, found {}; leave it out",
                self.0,
                self.1.repr()?
            ))
            .into()),
        }
    }

    /// Returns the value that `choices` has for the argument, which is a str; none for None.
    pub(super) fn optional_one_of<T: Copy>(self, choices: &[(&str, T)]) -> PyResult<Option<T>> {
        let found: Option<String> = self.get()?;
        Ok(found.map(|found| one_of(self.0, &found, choices)).transpose()?)
    }

    /// Returns the value that `choices` has for the argument, which is a str.
    pub(super) fn one_of<T: Copy>(self, choices: &[(&str, T)]) -> PyResult<T> {
        Ok(one_of(self.0, &self.get::<String>()?, choices)?)
    }
}

/// Returns an object as a message shows what was found: a str in double quotes.
fn shown(object: &Bound<'_, PyAny>) -> PyResult<String> {
    match object.extract::<String>() {
        Ok(text) => Ok(format!("{text:?}")),
        Err(_) => Ok(object.repr()?.to_string()),
    }
}

/// A dictionary of arguments from Python.
pub(super) struct Arguments<'a, 'py>(pub(super) &'a Bound<'py, PyDict>);

impl<'py> Arguments<'_, 'py> {
    /// Returns the argument of a name.
    pub(super) fn get<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        Argument(name, &self.object(name)?).get()
    }

    /// Returns an argument as a whole number that fits into `T`.
    pub(super) fn number<T: TryFrom<i128>>(&self, name: &str) -> PyResult<T> {
        Argument(name, &self.object(name)?).number()
    }

    /// Returns an argument as a whole number that fits into `T`; none for None.
    pub(super) fn optional_number<T: TryFrom<i128>>(&self, name: &str) -> PyResult<Option<T>> {
        Argument(name, &self.object(name)?).optional_number()
    }

    fn object(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let object = self.0.get_item(name)?;
        Ok(object.ok_or_else(|| Error::invalid(format!("{name} is missing")))?)
    }
}

/// Checks that a number is in a range; `remedy` ends the message.
pub(super) fn within(
    name: &str,
    Whole(number): Whole,
    range: RangeInclusive<usize>,
    remedy: &str,
) -> Result<usize> {
    usize::try_from(number).ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let (least, most) = (range.start(), range.end());
        Error::invalid(format!("{name}: expected {least} to {most}, found {number}{remedy}"))
    })
}

/// Returns a number of threads; none for all cores.
pub(super) fn thread_count(name: &str, given: Option<Whole>) -> Result<Option<usize>> {
    given.map(|count| within(name, count, 1..=THREADS_MAX, "; None uses all cores")).transpose()
}

/// Converts a number to `T`.
pub(super) fn in_range<T: TryFrom<i128>>(name: &str, number: i128) -> Result<T> {
    T::try_from(number).map_err(|_| {
        let is_signed = T::try_from(-1).is_ok();
        let most = (1_i128 << (8 * size_of::<T>() - usize::from(is_signed))) - 1;
        let least = if is_signed { -most - 1 } else { 0 };
        Error::invalid(format!("{name}: expected a number from {least} to {most}, found {number}"))
    })
}

/// Returns the speed settings of a sampler.
pub(super) fn speed_of(threads: Argument<'_, '_>, prefetch: Argument<'_, '_>) -> PyResult<Speed> {
    let threads = thread_count(threads.0, threads.get_as("a whole number or None")?)?;
    Ok(Speed { threads, prefetch: prefetch.number::<u16>()?.into() })
}

/// Returns the split of this name.
pub(super) fn split_of(name: &str) -> Result<Split> {
    one_of("split", name, &Split::ALL.map(|split| (split.name(), split)))
}

/// Returns the value that `choices` has for `found`.
pub(super) fn one_of<T: Copy>(name: &str, found: &str, choices: &[(&str, T)]) -> Result<T> {
    let choice = choices.iter().find(|(word, _)| *word == found);
    choice.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
        Error::invalid(format!("expected {name} to be {}, found {found:?}", words.join(" or ")))
    })
}
