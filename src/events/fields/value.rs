//! The values of an event as they are stored: for each field a part of fixed length.

use super::metadata::{FieldKind, FieldMetadata};
use super::number::{NULL as NULL_NUMBER, is_code};

/// The code of a category that is NULL, and of one without a token. The others are the number of the
/// value, counted from 1.
const NULL_CATEGORY: u16 = 0;
const RARE_CATEGORY: u16 = 0xffff;

/// The length of a text that is NULL.
const NULL_TEXT: u8 = 0xff;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// None.
    Null,
    /// A category that has a token, by its number.
    Category(u16),
    /// The bytes of a category that has no token.
    Rare(&'a [u8]),
    /// The code of a number.
    Number(u16),
    /// The bytes of a text.
    Text(&'a [u8]),
}

/// The places of the fields in a stored event.
pub(crate) struct Layout {
    parts: Vec<Part>,
    /// The bytes of all parts.
    pub bytes: usize,
}

/// The place of a field.
struct Part {
    at: usize,
    kind: PartKind,
}

#[derive(Clone, Copy)]
enum PartKind {
    Category { values: u16, max_bytes: usize },
    Number,
    Text { max_bytes: usize },
}

impl PartKind {
    fn bytes(self) -> usize {
        match self {
            Self::Number | Self::Category { max_bytes: 0, .. } => 2,
            Self::Category { max_bytes, .. } => 3 + max_bytes,
            Self::Text { max_bytes } => 1 + max_bytes,
        }
    }
}

impl Layout {
    /// Returns the layout of events with these fields.
    pub(crate) fn new(fields: &[FieldMetadata]) -> Self {
        let mut bytes = 0;
        let mut part = |field: &FieldMetadata| {
            let kind = match &field.kind {
                FieldKind::Category { values, max_bytes, .. } => PartKind::Category {
                    values: values.len() as u16,
                    max_bytes: usize::from(*max_bytes),
                },
                FieldKind::Number | FieldKind::Time => PartKind::Number,
                FieldKind::Bytes { max_bytes } => {
                    PartKind::Text { max_bytes: usize::from(*max_bytes) }
                }
            };
            let at = bytes;
            bytes += kind.bytes();
            Part { at, kind }
        };
        Self { parts: fields.iter().map(&mut part).collect(), bytes }
    }

    /// Appends the value of the field `field`, which is of its kind and not too long.
    pub(crate) fn append(&self, field: usize, value: Value<'_>, stored: &mut Vec<u8>) {
        let Part { kind, .. } = self.parts[field];
        let end = stored.len() + kind.bytes();
        let text = |bytes: Option<&[u8]>, stored: &mut Vec<u8>| {
            stored.push(bytes.map_or(NULL_TEXT, |bytes| bytes.len() as u8));
            stored.extend_from_slice(bytes.unwrap_or_default());
        };
        match (kind, value) {
            (PartKind::Category { .. }, Value::Category(number)) => {
                stored.extend_from_slice(&(number + 1).to_le_bytes());
            }
            (PartKind::Category { max_bytes, .. }, Value::Rare(bytes)) => {
                stored.extend_from_slice(&RARE_CATEGORY.to_le_bytes());
                if max_bytes > 0 {
                    text(Some(bytes), stored);
                }
            }
            (PartKind::Category { .. }, _) => {
                stored.extend_from_slice(&NULL_CATEGORY.to_le_bytes());
            }
            (PartKind::Number, Value::Number(code)) => {
                stored.extend_from_slice(&code.to_le_bytes());
            }
            (PartKind::Number, _) => stored.extend_from_slice(&NULL_NUMBER.to_le_bytes()),
            (PartKind::Text { .. }, Value::Text(bytes)) => text(Some(bytes), stored),
            (PartKind::Text { .. }, _) => text(None, stored),
        }
        stored.resize(end, 0);
    }

    /// Whether these bytes are those of an event: each value is read, and is stored in no other way.
    pub(super) fn is_stored(&self, stored: &[u8]) -> bool {
        let mut again = Vec::with_capacity(self.bytes);
        for field in 0..self.parts.len() {
            match self.read(field, stored) {
                Some(Value::Number(code)) if !is_code(code) => return false,
                Some(value) => self.append(field, value, &mut again),
                None => return false,
            }
        }
        again == stored
    }

    /// Returns the value of the field `field` of a stored event; none if it is damaged.
    pub(super) fn read<'a>(&self, field: usize, stored: &'a [u8]) -> Option<Value<'a>> {
        let Part { at, kind } = self.parts[field];
        let part = stored.get(at..at + kind.bytes())?;
        let code = || part.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
        let text = |part: &'a [u8]| {
            let (&length, bytes) = part.split_first()?;
            bytes.get(..usize::from(length))
        };
        Some(match kind {
            PartKind::Number => match code()? {
                NULL_NUMBER => Value::Null,
                code => Value::Number(code),
            },
            PartKind::Category { values, max_bytes } => match code()? {
                NULL_CATEGORY => Value::Null,
                RARE_CATEGORY if max_bytes == 0 => Value::Rare(&[]),
                RARE_CATEGORY => Value::Rare(text(&part[2..])?),
                number if number <= values => Value::Category(number - 1),
                _ => return None,
            },
            PartKind::Text { .. } if part[0] == NULL_TEXT => Value::Null,
            PartKind::Text { .. } => Value::Text(text(part)?),
        })
    }
}

#[cfg(all(test, feature = "prepare"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout() -> Layout {
        let field = |role, kind| FieldMetadata { name: format!("{role}"), role, kind };
        let values = |count: u16| (0..count).map(|value| value.to_string()).collect();
        Layout::new(&[
            field(0, FieldKind::Category { first: 0, values: values(3), max_bytes: 5 }),
            field(1, FieldKind::Category { first: 0, values: values(2), max_bytes: 0 }),
            field(2, FieldKind::Number),
            field(3, FieldKind::Bytes { max_bytes: 254 }),
            field(4, FieldKind::Time),
        ])
    }

    proptest! {
        #[test]
        fn what_is_appended_is_read(
            number in 0..3_u16, code in 0..NULL_NUMBER,
            rare in proptest::collection::vec(any::<u8>(), 0..6),
            text in proptest::collection::vec(any::<u8>(), 0..255),
        ) {
            let layout = layout();
            let events = [
                [Value::Category(number), Value::Category(1), Value::Number(code), Value::Text(&text), Value::Number(0)],
                [Value::Rare(&rare), Value::Rare(&[]), Value::Null, Value::Null, Value::Null],
                [Value::Null; 5],
            ];
            for values in events {
                let mut stored = Vec::new();
                for (field, value) in values.into_iter().enumerate() {
                    layout.append(field, value, &mut stored);
                }
                prop_assert_eq!(stored.len(), layout.bytes);
                for (field, value) in values.into_iter().enumerate() {
                    prop_assert_eq!(layout.read(field, &stored), Some(value));
                }
                let are_codes = values.iter().all(|value| match value {
                    Value::Number(code) => is_code(*code),
                    _ => true,
                });
                prop_assert_eq!(layout.is_stored(&stored), are_codes);
                stored.push(0);
                prop_assert!(!layout.is_stored(&stored));
            }
        }

        #[test]
        fn bytes_behind_a_text_are_not_stored(
            text in proptest::collection::vec(any::<u8>(), 0..254), at in 0..254_usize, byte in 1..=u8::MAX,
        ) {
            let layout = Layout::new(&[FieldMetadata {
                name: "text".to_owned(), role: 0, kind: FieldKind::Bytes { max_bytes: 254 },
            }]);
            let mut stored = Vec::new();
            layout.append(0, Value::Text(&text), &mut stored);
            prop_assert!(layout.is_stored(&stored));
            stored[1 + at] = byte;
            prop_assert_eq!(layout.is_stored(&stored), at < text.len());
        }

        #[test]
        fn damaged_bytes_are_a_value_of_the_field_or_none(
            stored in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let layout = layout();
            for field in 0..5 {
                match layout.read(field, &stored) {
                    Some(Value::Category(number)) => prop_assert!(number < 3),
                    Some(Value::Rare(bytes)) => prop_assert!(bytes.len() <= 5),
                    Some(Value::Text(bytes)) => prop_assert!(bytes.len() <= 254),
                    Some(Value::Number(_) | Value::Null) | None => {}
                }
            }
        }
    }
}
