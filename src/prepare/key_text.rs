//! The text of one key that a caller gives, as the build makes it of a row's columns.

use arrow_array::ArrayRef;

use super::build::keys::write_key;
use super::values::to_texts;
use crate::error::{Error, Result};

/// The text of the key whose parts are arrays of one value each.
///
/// # Errors
/// `InvalidArgument` where a part is NULL, `Data` where a value has no text.
pub(crate) fn key_text_of(parts: &[ArrayRef]) -> Result<String> {
    let columns = parts.iter().map(to_texts).collect::<Result<Vec<_>>>()?;
    let columns: Vec<_> = columns.iter().collect();
    let mut text = String::new();
    match write_key(&columns, 0, &mut text) {
        true => Ok(text),
        false => Err(Error::invalid("expected a key, found one with a NULL part")),
    }
}
