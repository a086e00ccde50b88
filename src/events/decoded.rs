//! An event of any codec, read back from its tokens.

use std::fmt;

use serde::Serialize;

use super::tokens::TokenTime;

/// An event, as its tokens give it: its fields in the order of the tokens. Fields that are NULL have no
/// tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecodedEvent {
    /// The fields.
    pub fields: Vec<DecodedField>,
}

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DecodedField {
    /// The field's name; `time` is the time of the event.
    pub name: String,
    /// The value.
    pub value: FieldValue,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// An address, a category, or bytes as text.
    Text(String),
    /// A number; of a round trip, milliseconds.
    Number(f64),
    /// A time, as seconds after the time of the event.
    SecondsLater(f64),
    /// The result of a measurement that failed.
    Failed,
    /// The time of the event.
    Time(TokenTime),
}

impl DecodedEvent {
    /// Returns the time of the event; none where the context does not tell it.
    #[must_use]
    pub fn time(&self) -> Option<TokenTime> {
        self.fields.iter().find_map(|field| match field.value {
            FieldValue::Time(time) => Some(time),
            _ => None,
        })
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::SecondsLater(seconds) => write!(f, "{seconds:+} s"),
            Self::Failed => f.write_str("failed"),
            Self::Time(TokenTime::Absolute(seconds)) => write!(f, "{seconds} s"),
            Self::Time(TokenTime::Since(seconds)) => write!(f, "+{seconds} s"),
        }
    }
}
