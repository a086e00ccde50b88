//! Converts arrays with Arrow, and counts the values that cannot be converted.

use std::borrow::Cow;

use arrow_array::{Array, ArrayRef};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;

use crate::error::{Error, Result};

/// The values that cannot be converted to the type of the schema.
#[derive(Clone, Debug)]
pub(in crate::prepare) struct BadValues {
    /// The number of values.
    pub count: u64,
    /// The row of the first value in the batch.
    pub row: u64,
    /// The text of the first value.
    pub value: String,
    /// A description of the expected values.
    pub expected: Cow<'static, str>,
}

/// The converted values, or those that cannot be converted.
pub(in crate::prepare) type Normalised<T> = Result<std::result::Result<T, BadValues>>;

pub(super) fn note(
    bad: &mut Option<BadValues>,
    row: usize,
    expected: &'static str,
    value: impl FnOnce() -> String,
) {
    match bad {
        Some(bad) => bad.count += 1,
        None => {
            *bad = Some(BadValues {
                count: 1,
                row: row as u64,
                value: value(),
                expected: expected.into(),
            });
        }
    }
}

/// Converts dictionaries, runs and other encodings of strings to string views.
pub(super) fn unpack(array: &ArrayRef) -> Result<ArrayRef> {
    match array.data_type() {
        DataType::Dictionary(_, values) => unpack(&convert(array, values)?),
        DataType::RunEndEncoded(_, values) => unpack(&convert(array, values.data_type())?),
        DataType::Utf8 | DataType::LargeUtf8 => convert(array, &DataType::Utf8View),
        _ => Ok(ArrayRef::clone(array)),
    }
}

pub(in crate::prepare) fn convert(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    cast(array, to).map_err(arrow_error)
}

/// Converts an array, and counts the values that would become NULL: a lost time would make its row
/// always visible.
pub(super) fn convert_all(
    array: &ArrayRef,
    to: &DataType,
    expected: &'static str,
) -> Normalised<ArrayRef> {
    let converted = convert(array, to)?;
    if converted.logical_null_count() == array.logical_null_count() {
        return Ok(Ok(converted));
    }
    let (before, options) = (array.logical_nulls(), FormatOptions::default());
    let formatter = ArrayFormatter::try_new(array, &options).map_err(arrow_error)?;
    let mut bad = None;
    for row in 0..array.len() {
        let was_null = before.as_ref().is_some_and(|nulls| nulls.is_null(row));
        if converted.is_null(row) && !was_null {
            let value = || formatter.value(row).try_to_string();
            note(&mut bad, row, expected, || value().unwrap_or_else(|e| e.to_string()));
        }
    }
    Ok(bad.map_or(Ok(converted), Err))
}

/// Returns the error about an array whose values cannot be `what`; its words fit tables and events.
pub(super) fn wrong_type(array: &ArrayRef, what: &str) -> Error {
    let kind = array.data_type();
    let advice = match kind.is_nested() {
        true => "leave the column out of the schema, or give its values a table",
        false => "correct the column's type in the schema, or name another column",
    };
    Error::schema(format!("expected values that can be {what}, found {kind}; {advice}"))
}

/// Returns an error of the Arrow library as an error about the data.
pub(in crate::prepare) fn arrow_error(error: arrow_schema::ArrowError) -> Error {
    Error::data(error.to_string())
}
