//! Parses a column of a schema file: its semantic type, the unit of a time, the scale of a number, and
//! when its values are known.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::text::{Delay, is_false};
use super::time_unit::TimeUnit;
use crate::store::SemanticType;

/// A column's semantic type, and how its values are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The semantic type of the values.
    pub semantic: SemanticType,
    /// The unit of a timestamp that is an integer, or a period of the calendar.
    pub unit: Option<TimeUnit>,
    /// Whether the time of a period is its end, not its beginning.
    pub end: bool,
    /// The scale of numbers.
    pub scale: ScaleName,
    /// When the values are known, if that is later than their rows.
    pub known: Option<Known>,
    /// Where the schema file has the column, for advice.
    pub(in crate::prepare) written: Written,
}

/// Where a schema file has a column that is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::prepare) enum Written {
    /// Among the `columns` of a table.
    #[default]
    InColumns,
    /// As the `time` of events or of a task.
    AsTime,
    /// Among the `fields` of events.
    InFields,
}

impl Written {
    /// Returns how a time with a unit is written there.
    pub(in crate::prepare) fn time_with_unit(self, unit: TimeUnit) -> String {
        let unit = unit.name();
        match self {
            Self::InColumns => format!("{{ type = \"timestamp\", unit = \"{unit}\" }}"),
            Self::AsTime => format!("time = {{ column = \"..\", unit = \"{unit}\" }}"),
            Self::InFields => format!("{{ type = \"time\", unit = \"{unit}\" }}"),
        }
    }
}

impl From<SemanticType> for Column {
    fn from(semantic: SemanticType) -> Self {
        let written = Written::default();
        Self { semantic, unit: None, end: false, scale: ScaleName::Linear, known: None, written }
    }
}

/// The scale on which the numbers of a column are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleName {
    /// The numbers as they are.
    #[default]
    Linear,
    /// Their logarithms, which serve a heavy tail.
    Log,
    /// The share of smaller numbers, which serves any shape.
    Rank,
}

impl ScaleName {
    /// Whether the numbers stay as they are.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        *self == Self::Linear
    }

    /// Returns the name in a schema file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
            Self::Rank => "rank",
        }
    }
}

/// When the values of a column are known; before, contexts have NULL in their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Known {
    /// So long after the time of the row.
    Delay(Delay),
    /// At the time in this column of the row; never if that is NULL.
    At(String),
}

/// A column in the form of a table, with a type and more.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongColumn {
    #[serde(rename = "type")]
    semantic: SemanticType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<TimeUnit>,
    #[serde(default, skip_serializing_if = "is_false")]
    end: bool,
    #[serde(default, skip_serializing_if = "ScaleName::is_linear")]
    scale: ScaleName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    known: Option<Known>,
}

impl Serialize for Column {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { semantic, unit, end, scale, known, written: _ } = self.clone();
        match (unit, scale, &known) {
            (None, ScaleName::Linear, None) => semantic.serialize(serializer),
            _ => LongColumn { semantic, unit, end, scale, known }.serialize(serializer),
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
        let LongColumn { semantic, unit, end, scale, known } =
            LongColumn::deserialize(de::value::MapAccessDeserializer::new(map))?;
        // An ignored column may be the time of its table or of other columns.
        if unit.is_some() && !matches!(semantic, SemanticType::Timestamp | SemanticType::Ignored) {
            let message =
                format!("expected type timestamp for a column with a unit, found {semantic}");
            return Err(de::Error::custom(message));
        }
        check_end(unit, end, "set a delay in the table's time").map_err(de::Error::custom)?;
        if !scale.is_linear() && semantic != SemanticType::Numerical {
            let message =
                format!("expected type numerical for a column with a scale, found {semantic}");
            return Err(de::Error::custom(message));
        }
        Ok(Column { unit, end, scale, known, ..semantic.into() })
    }
}

/// Checks that only the time of a period is its end; `remedy` is what to do for other times.
pub(super) fn check_end(unit: Option<TimeUnit>, end: bool, remedy: &str) -> Result<(), String> {
    if !end || unit.is_some_and(|unit| TimeUnit::PERIODS.contains(&unit)) {
        return Ok(());
    }
    let periods: Vec<_> = TimeUnit::PERIODS.into_iter().map(TimeUnit::name).collect();
    Err(format!(
        "expected a unit with end = true, one of {}; other times have no end: {remedy}",
        periods.join(", ")
    ))
}
