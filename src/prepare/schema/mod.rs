//! Reads the schema file: a description of the tables and tasks in TOML.
//!
//! Reading checks everything that does not need the data: names, references, inherited times.
//! Preparing checks the rest.

mod aggregate;
mod check;
mod column;
mod declared;
mod dictionary;
mod event_fields;
mod events;
mod known;
mod labels;
mod link;
mod link_sql;
mod predict;
mod predict_sql;
pub(in crate::prepare) mod prepared;
mod summary;
mod text;
mod time_unit;

#[cfg(test)]
mod tests;

use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::files::read_file;
use crate::store::SemanticType;

pub use aggregate::{Aggregate, Window};
pub(in crate::prepare) use column::Written;
pub use column::{Column, Known, ScaleName};
pub(in crate::prepare) use event_fields::DEFAULT_MAX_BYTES;
pub use event_fields::EventField;
pub use events::{EventSplit, Events};
pub use labels::ObservationTime;
pub use predict::{Predict, What};
pub use summary::Summary;
pub use text::Delay;
use text::{explain, is_false, one_or_many};
pub use time_unit::TimeUnit;

/// A database as the schema file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The database's name, kept in the store.
    pub database: String,
    /// The time until which rows have a part in the statistics of columns; by default the end of the
    /// earliest recorded train split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics_until: Option<String>,
    /// The limits for flaws in the data.
    #[serde(default)]
    pub limits: Limits,
    /// The log of events, in place of tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
    /// The tables, in the order of the store.
    #[serde(rename = "table", default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<Table>,
    /// The counts and means of children that rows have as further cells.
    #[serde(rename = "aggregate", default, skip_serializing_if = "Vec::is_empty")]
    pub aggregates: Vec<Aggregate>,
    /// The tables of what came to be known in each period.
    #[serde(rename = "summary", default, skip_serializing_if = "Vec::is_empty")]
    pub summaries: Vec<Summary>,
    /// The tasks.
    #[serde(rename = "task", default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
}

/// The limits for flaws in the data: within them, a flaw is a remark; beyond them, an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The largest share of a reference's non-NULL values that match no row.
    pub unresolved_share: f64,
    /// The most rows of a table that repeat the key of an earlier row.
    pub duplicate_keys: u64,
    /// The most categories of a categorical column.
    pub categories: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { unresolved_share: 0.01, duplicate_keys: 0, categories: 4096 }
    }
}

/// One table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The table's name in the store.
    pub name: String,
    /// The table's name in the source, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The columns that identify a row; empty if rows have no key.
    #[serde(default, with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// When a row came to exist; `None` if all rows are always visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// The semantic type of each column. Other columns of the source are not read.
    #[serde(default)]
    pub columns: IndexMap<String, Column>,
    /// The foreign keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
    /// The task whose labels are the rows, in a table that [`Schema::with_label_tables`] added, or
    /// whose pairs they are, in one that [`Schema::with_declared_tasks`] added.
    #[serde(skip)]
    pub labels_of: Option<String>,
}

impl Table {
    /// Returns the table's name in the source.
    #[must_use]
    pub fn source_name(&self) -> &str {
        self.source.as_deref().unwrap_or(&self.name)
    }

    /// Returns the position of the reference `name`.
    #[must_use]
    pub fn reference(&self, name: &str) -> Option<usize> {
        self.references.iter().position(|r| r.name() == name)
    }
}

/// The origin of the time of rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// A timestamp column of the table itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The reference to the parent whose time a row inherits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The delay from that time until the row was known.
    #[serde(default, skip_serializing_if = "Delay::is_zero")]
    pub delay: Delay,
}

/// A foreign key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// The columns of this table.
    #[serde(with = "one_or_many")]
    pub columns: Vec<String>,
    /// The table referred to.
    pub to: String,
    /// The columns referred to, if they are not that table's key. Their values must be unique.
    #[serde(default, with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub to_columns: Vec<String>,
}

impl Reference {
    /// Returns the reference's name: its columns, joined by `+`.
    #[must_use]
    pub fn name(&self) -> String {
        self.columns.join("+")
    }
}

/// A task: a target for rows of one table, the anchor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The task's name.
    pub name: String,
    /// The target is a cell of the anchor row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellTask>,
    /// The targets are in a table of anchor keys, observation times and targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<DerivedTask>,
    /// The targets are made from the children of the anchor's rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predict: Option<Predict>,
    /// Whether a seed without an observation time sees every row; otherwise it is an error.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sees_everything: bool,
    /// Whether rows of the very observation time are hidden, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict: bool,
}

/// A task that predicts a column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellTask {
    /// The table.
    pub table: String,
    /// The column.
    pub column: String,
    /// Columns that are NULL in the seed row, because they would tell the target.
    #[serde(default, with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub hide: Vec<String>,
}

/// A task whose targets are in a table of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedTask {
    /// The table whose rows the task asks about.
    pub anchor: String,
    /// The source table of the task's rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Or the query that returns them (DuckDB's SQL over the source tables; Python package only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// The task's columns with the anchor's key.
    #[serde(with = "one_or_many")]
    pub key: Vec<String>,
    /// The observation times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ObservationTime>,
    /// The column of targets.
    pub target: String,
    /// The target's semantic type.
    #[serde(rename = "type")]
    pub target_type: SemanticType,
    /// The scale of a numerical target.
    #[serde(default, skip_serializing_if = "ScaleName::is_linear")]
    pub scale: ScaleName,
    /// The column with each seed's split: train, val or test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// The time from an observation until its target is known. If it is set, the labels known at a
    /// seed's observation time are rows of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub horizon: Option<Delay>,
}

impl DerivedTask {
    /// Returns the target as a column.
    #[must_use]
    pub fn target_column(&self) -> Column {
        Column { scale: self.scale, ..self.target_type.into() }
    }
}

impl Schema {
    /// Parses a schema from TOML, and checks everything that does not need the data.
    ///
    /// # Errors
    /// `Schema`: the text is not TOML, has an unknown or missing field (the message suggests the
    /// nearest one), or contradicts itself.
    pub fn parse(text: &str) -> Result<Self> {
        let schema: Self = toml::from_str(text).map_err(|e| Error::schema(explain(text, &e)))?;
        schema.check()?;
        Ok(schema)
    }

    /// Reads the schema file at `path`.
    ///
    /// # Errors
    /// As [`Schema::parse`], with the path; `Io` when the file cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = read_file(path).map_err(|error| {
            error
                .followed_if_not_found("; name a schema file, or draft one with `headwater schema`")
        })?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let before = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            let line = before.split(|&byte| byte == b'\n').count();
            Error::schema(format!(
                "schema {}: line {line}: expected UTF-8, found other bytes; convert the file to UTF-8",
                path.display()
            ))
        })?;
        Self::parse(&text).context(|| format!("schema {}", path.display()))
    }

    /// Returns the position of the table `name`.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|t| t.name == name)
    }
}
