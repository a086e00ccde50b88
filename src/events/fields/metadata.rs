//! What `metadata.json` says of the fields of the codec `fields-v1`: the vocabulary.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The first byte's token; those below it are the codec's own.
pub(super) const BYTE: u16 = 16;

/// The token of the first field. Those of the others, and then those of categories, follow.
const FIRST_ROLE: u16 = BYTE + 256;

/// The most fields.
pub(crate) const FIELDS_MAX: usize = 64;

/// The most bytes of a text: the byte before it has its length, and 255 is NULL.
pub(crate) const TEXT_BYTES_MAX: u8 = 254;

/// The name of the event's own time among its fields.
pub(super) const TIME: &str = "time";

/// A field of the events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldMetadata {
    /// The column of the source that it comes from.
    pub name: String,
    /// The token that begins the field.
    pub role: u16,
    /// What its value is.
    pub kind: FieldKind,
}

/// What the value of a field is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase", tag = "type")]
pub enum FieldKind {
    /// One of some values.
    Category {
        /// The token of the first value; those of the others follow.
        first: u16,
        /// The values that have a token: the most frequent ones of train, the most frequent first.
        values: Vec<String>,
        /// The most bytes of a value without a token.
        max_bytes: u8,
    },
    /// A number, in 16 bits.
    Number,
    /// A text, as its UTF-8 bytes.
    Bytes {
        /// The most bytes.
        max_bytes: u8,
    },
    /// A time, as a number of seconds after that of the event.
    Time,
}

impl FieldKind {
    /// Returns the number of values that have a token of their own.
    fn value_count(&self) -> usize {
        match self {
            Self::Category { values, .. } => values.len(),
            Self::Number | Self::Bytes { .. } | Self::Time => 0,
        }
    }
}

/// Gives the fields and their categories their tokens.
///
/// # Errors
/// `LimitExceeded` when 65,536 tokens are not enough.
#[cfg(feature = "prepare")]
pub(crate) fn field_tokens(fields: Vec<(String, FieldKind)>) -> Result<Vec<FieldMetadata>> {
    let mut next = FIRST_ROLE as usize + fields.len();
    let mut numbered = Vec::new();
    for (role, (name, mut kind)) in (FIRST_ROLE..).zip(fields) {
        let start = next;
        next += kind.value_count();
        if let FieldKind::Category { first, .. } = &mut kind {
            *first = u16::try_from(start).map_err(|_| too_many(next))?;
        }
        numbered.push(FieldMetadata { name, role, kind });
    }
    vocabulary(&numbered)?;
    Ok(numbered)
}

/// Returns the number of tokens of a vocabulary.
///
/// # Errors
/// `LimitExceeded` when there are more than 16 bits tell apart; `Corrupt` when a field, or its tokens,
/// are not as this page says.
pub(super) fn vocabulary(fields: &[FieldMetadata]) -> Result<u16> {
    let wrong = |field: &FieldMetadata, what: &str| {
        Err(Error::corrupt(format!("the field {:?} has {what}", field.name)))
    };
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return Err(Error::corrupt(format!(
            "expected 1 to {FIELDS_MAX} fields, found {}",
            fields.len()
        )));
    }
    let mut next = FIRST_ROLE as usize + fields.len();
    let mut names = HashSet::new();
    for (role, field) in (FIRST_ROLE..).zip(fields) {
        if field.role != role || field.name == TIME || !names.insert(&field.name) {
            return wrong(field, "another token, or the name of the time or of a field before it");
        }
        let max_bytes = match &field.kind {
            FieldKind::Category { first, values, max_bytes } => {
                if usize::from(*first) != next {
                    return wrong(field, "other tokens for its values than follow");
                }
                if values.iter().collect::<HashSet<_>>().len() < values.len() {
                    return wrong(field, "one value twice");
                }
                if values.iter().any(|value| value.len() > usize::from(TEXT_BYTES_MAX)) {
                    return wrong(field, "a longer value than has a token");
                }
                *max_bytes
            }
            FieldKind::Bytes { max_bytes } => *max_bytes,
            FieldKind::Number | FieldKind::Time => 0,
        };
        if max_bytes > TEXT_BYTES_MAX {
            return wrong(field, "longer texts than a byte can tell");
        }
        next += field.kind.value_count();
    }
    u16::try_from(next).map_err(|_| too_many(next))
}

fn too_many(count: usize) -> Error {
    Error::limit(format!(
        "expected at most {} tokens for bytes, fields and categories, found {count}; lower max_tokens \
         of the categories",
        u16::MAX
    ))
}
