//! A field of the codec `fields-v1`: the type of a column, alone or with its options.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::column::Written;
use super::{Column, TimeUnit};
use crate::error::{Error, Result};
use crate::events::fields::TEXT_BYTES_MAX;
use crate::prepare::names::suggest;
use crate::store::SemanticType;

/// A field of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventField {
    /// One of some values.
    Category {
        /// The most values that have a token of their own.
        max_tokens: u32,
        /// The bytes that are kept of a value that has none; if it is not given, as many as the longest such
        /// value of train has, at most 16.
        max_bytes: Option<u32>,
    },
    /// A number.
    Number,
    /// A text, as its UTF-8 bytes.
    Bytes {
        /// The most bytes; a longer text is cut.
        max_bytes: u32,
    },
    /// A time, beside that of the event.
    Time {
        /// The unit of integers and periods.
        unit: Option<TimeUnit>,
    },
}

const MAX_TOKENS: u32 = 1000;

/// The bytes of a text, if the schema does not say how many.
pub(in crate::prepare) const DEFAULT_MAX_BYTES: u32 = 16;

/// What a field may be, for messages.
const EXPECTED: &str = "\"category\", \"number\", \"bytes\", \"time\", or a table such as { type = \
                        \"bytes\", max_bytes = 32 }";

/// The types, and what tables and other programs call them.
const NAMES: [(&str, &[&str]); 4] = [
    ("category", &["categorical", "categories", "enum"]),
    ("number", &["numerical", "numeric", "int", "integer", "float", "double"]),
    ("bytes", &["text", "string", "str", "identifier"]),
    ("time", &["timestamp", "datetime", "date"]),
];

/// Returns the type that is meant by a name which is none.
fn meant(name: &str) -> Option<&'static str> {
    let lower = name.to_lowercase();
    let called = NAMES.iter().find(|(_, others)| others.contains(&&*lower)).map(|(name, _)| *name);
    called.or_else(|| suggest(name, NAMES.map(|(name, _)| name)))
}

/// A field with its options, as a table of the schema file.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    r#type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<TimeUnit>,
}

impl EventField {
    /// Returns how a time is read.
    pub(in crate::prepare) fn time_column(unit: Option<TimeUnit>) -> Column {
        Column { unit, written: Written::InFields, ..SemanticType::Timestamp.into() }
    }

    /// Checks the options of the field `name`.
    pub(super) fn check(&self, name: &str) -> Result<()> {
        match *self {
            Self::Bytes { max_bytes: 0 } => Err(Error::schema(format!(
                "{name}: max_bytes: expected 1 to {TEXT_BYTES_MAX}, found 0; leave the column out, if \
                 no byte of it matters"
            ))),
            Self::Category { max_bytes: Some(max_bytes), .. } | Self::Bytes { max_bytes }
                if max_bytes > u32::from(TEXT_BYTES_MAX) =>
            {
                Err(Error::schema(format!(
                    "{name}: max_bytes: expected at most {TEXT_BYTES_MAX}, found {max_bytes}; longer \
                     texts are cut"
                )))
            }
            Self::Category { max_tokens, .. } if max_tokens > u32::from(u16::MAX) => {
                Err(Error::schema(format!(
                    "{name}: max_tokens: expected at most {}, found {max_tokens}; all tokens are \
                     numbers of 16 bits",
                    u16::MAX
                )))
            }
            _ => Ok(()),
        }
    }

    fn of(options: &Options) -> std::result::Result<Self, String> {
        let Options { r#type, max_tokens, max_bytes, unit } = options;
        let (field, takes): (_, &[&str]) = match r#type.as_str() {
            "category" => (
                Self::Category {
                    max_tokens: max_tokens.unwrap_or(MAX_TOKENS),
                    max_bytes: *max_bytes,
                },
                &["max_tokens", "max_bytes"],
            ),
            "number" => (Self::Number, &[]),
            "bytes" => {
                (Self::Bytes { max_bytes: max_bytes.unwrap_or(DEFAULT_MAX_BYTES) }, &["max_bytes"])
            }
            "time" => (Self::Time { unit: *unit }, &["unit"]),
            other => {
                let remedy = match meant(other) {
                    Some(name) => format!("did you mean {name:?}?"),
                    None => "correct it".to_owned(),
                };
                return Err(format!("expected {EXPECTED}, found {other:?}; {remedy}"));
            }
        };
        let given = [
            ("max_tokens", max_tokens.is_some()),
            ("max_bytes", max_bytes.is_some()),
            ("unit", unit.is_some()),
        ];
        match given.iter().find(|(option, is_given)| *is_given && !takes.contains(option)) {
            Some((option, _)) => Err(format!(
                "the type {type:?} has no option {option:?}; leave it out",
                r#type = r#type
            )),
            None => Ok(field),
        }
    }
}

impl Serialize for EventField {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let options = |r#type: &str| Options { r#type: r#type.to_owned(), ..Options::default() };
        match *self {
            Self::Category { max_tokens, max_bytes } => {
                Options { max_tokens: Some(max_tokens), max_bytes, ..options("category") }
                    .serialize(serializer)
            }
            Self::Bytes { max_bytes } => {
                Options { max_bytes: Some(max_bytes), ..options("bytes") }.serialize(serializer)
            }
            Self::Time { unit: Some(unit) } => {
                Options { unit: Some(unit), ..options("time") }.serialize(serializer)
            }
            Self::Number => serializer.serialize_str("number"),
            Self::Time { unit: None } => serializer.serialize_str("time"),
        }
    }
}

impl<'de> Deserialize<'de> for EventField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(FieldVisitor)
    }
}

struct FieldVisitor;

impl<'de> de::Visitor<'de> for FieldVisitor {
    type Value = EventField;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: de::Error>(self, name: &str) -> std::result::Result<EventField, E> {
        let options = Options { r#type: name.to_owned(), ..Options::default() };
        EventField::of(&options).map_err(E::custom)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> std::result::Result<EventField, A::Error> {
        let options = Options::deserialize(de::value::MapAccessDeserializer::new(map))?;
        EventField::of(&options).map_err(de::Error::custom)
    }
}
