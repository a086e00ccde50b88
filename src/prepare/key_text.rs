//! The text of one key that a caller gives, as the build makes it of a row's columns, and the parts
//! of such a text.

use arrow_array::ArrayRef;

use super::build::keys::write_key;
use super::values::to_texts;
use crate::error::{Error, Result};

/// The text of the key whose parts are arrays of one value each.
///
/// # Errors
/// `InvalidArgument` where a part is NULL, `Data` where a value has no text.
pub fn key_text_of(parts: &[ArrayRef]) -> Result<String> {
    let columns = parts.iter().map(to_texts).collect::<Result<Vec<_>>>()?;
    let columns: Vec<_> = columns.iter().collect();
    let mut text = String::new();
    match write_key(&columns, 0, &mut text) {
        true => Ok(text),
        false => Err(Error::invalid("expected a key, found one with a NULL part")),
    }
}

/// Returns a part of the text of a key of `of` parts, without the backslashes before `|` and `\`.
#[must_use]
pub fn key_part(key: &str, part: usize, of: usize) -> String {
    if of == 1 {
        return key.to_owned();
    }
    let (mut text, mut number, mut characters) = (String::new(), 0, key.chars());
    while let Some(character) = characters.next() {
        match character {
            '|' => number += 1,
            _ if number != part => {
                if character == '\\' {
                    characters.next();
                }
            }
            '\\' => text.extend(characters.next()),
            _ => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::key_part;

    #[test]
    fn parts_of_a_key_lose_their_backslashes() {
        let key = r"a\|b|c\\|d";
        assert_eq!([0, 1, 2].map(|part| key_part(key, part, 3)), ["a|b", r"c\", "d"]);
        assert_eq!(key_part(r"a\|b", 0, 1), r"a\|b");
    }
}
