//! Parses a column of a schema file: its semantic type, and the unit of a time.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::store::SemanticType;

/// A column's semantic type, and the unit of a timestamp that is a number in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The semantic type of the values.
    pub semantic: SemanticType,
    /// The unit of an integer timestamp since 1970.
    pub unit: Option<TimeUnit>,
}

impl From<SemanticType> for Column {
    fn from(semantic: SemanticType) -> Self {
        Self { semantic, unit: None }
    }
}

/// The unit of a timestamp that is an integer since 1970-01-01 UTC in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimeUnit {
    /// Seconds.
    #[serde(rename = "s")]
    Second,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millisecond,
    /// Microseconds.
    #[serde(rename = "us")]
    Microsecond,
}

/// A column in the form of a table, with a type and a unit.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongColumn {
    #[serde(rename = "type")]
    semantic: SemanticType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<TimeUnit>,
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.unit {
            None => self.semantic.serialize(serializer),
            unit => LongColumn { semantic: self.semantic, unit }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Column {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ColumnVisitor)
    }
}

struct ColumnVisitor;

impl<'de> de::Visitor<'de> for ColumnVisitor {
    type Value = Column;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a semantic type such as \"numerical\", or { type = \"timestamp\", unit = \"s\" }",
        )
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Column, E> {
        SemanticType::deserialize(de::value::StrDeserializer::new(name)).map(Column::from)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Column, A::Error> {
        let LongColumn { semantic, unit } =
            LongColumn::deserialize(de::value::MapAccessDeserializer::new(map))?;
        if unit.is_some() && semantic != SemanticType::Timestamp {
            let message =
                format!("expected type timestamp for a column with a unit, found {semantic}");
            return Err(de::Error::custom(message));
        }
        Ok(Column { semantic, unit })
    }
}
