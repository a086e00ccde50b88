//! The observation times of a task, and its labels as a table: what was known of earlier targets.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::column::{Written, check_end};
use super::text::is_false;
use super::{Column, DerivedTask, Reference, Schema, Table, Task, Time, TimeUnit};
use crate::store::{SemanticType, label_table_name};

/// The column of a task's observation times; in a schema file its name, or its name and a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservationTime {
    /// The column's name.
    pub column: String,
    /// The unit of integers and periods.
    pub unit: Option<TimeUnit>,
    /// Whether the time of a period is its end, not its beginning.
    pub end: bool,
}

impl ObservationTime {
    /// Returns how the column is read.
    #[must_use]
    pub fn as_column(&self) -> Column {
        let (unit, end, written) = (self.unit, self.end, Written::AsTime);
        Column { unit, end, written, ..SemanticType::Timestamp.into() }
    }
}

impl From<String> for ObservationTime {
    fn from(column: String) -> Self {
        Self { column, unit: None, end: false }
    }
}

/// An observation time with a unit.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LongTime {
    column: String,
    unit: Option<TimeUnit>,
    #[serde(default, skip_serializing_if = "is_false")]
    end: bool,
}

impl Serialize for ObservationTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { column, unit, end } = self.clone();
        match unit {
            None => column.serialize(serializer),
            Some(_) => LongTime { column, unit, end }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ObservationTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TimeVisitor)
    }
}

struct TimeVisitor;

impl<'de> de::Visitor<'de> for TimeVisitor {
    type Value = ObservationTime;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column name, or { column = \"season\", unit = \"year\" }")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<ObservationTime, E> {
        Ok(name.to_owned().into())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<ObservationTime, A::Error> {
        let LongTime { column, unit, end } =
            LongTime::deserialize(de::value::MapAccessDeserializer::new(map))?;
        check_end(unit, end, "leave end out").map_err(de::Error::custom)?;
        Ok(ObservationTime { column, unit, end })
    }
}

impl Schema {
    /// Returns the schema with a table of labels for each task with a horizon.
    ///
    /// The table is named after the task: `churn labels`. Its rows are the task's. A row came to
    /// exist when its target was known: at the observation time plus the horizon.
    #[must_use]
    pub fn with_label_tables(&self) -> Self {
        let mut schema = self.clone();
        let tables = self.tasks.iter().filter_map(label_table);
        // `check` refuses a task whose table has the name of another.
        schema.tables.extend(tables.filter(|table| self.table(&table.name).is_none()));
        schema
    }

    /// Returns the task whose labels, or pairs, the rows of `table` are.
    pub(in crate::prepare) fn labelled_task(&self, table: &Table) -> Option<&DerivedTask> {
        let name = table.labels_of.as_ref()?;
        self.tasks.iter().find(|task| task.name == *name)?.derived.as_ref()
    }
}

/// Returns the table of the labels of `task`, if it has a horizon.
fn label_table(task: &Task) -> Option<Table> {
    let derived = task.derived.as_ref()?;
    let DerivedTask { anchor, source, key, time, target, .. } = derived;
    let (delay, time) = (derived.horizon?, time.clone()?);
    let mut columns: IndexMap<String, Column> =
        key.iter().map(|name| (name.clone(), SemanticType::Ignored.into())).collect();
    columns.insert(time.column.clone(), time.as_column());
    columns.insert(target.clone(), derived.target_column());
    Some(Table {
        name: label_table_name(&task.name),
        source: source.clone(),
        key: Vec::new(),
        time: Some(Time { column: Some(time.column), through: None, delay }),
        columns,
        references: vec![Reference {
            columns: key.clone(),
            to: anchor.clone(),
            to_columns: Vec::new(),
        }],
        labels_of: Some(task.name.clone()),
    })
}
