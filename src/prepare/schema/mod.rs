//! The schema file: what a person says about the tables, in TOML.
//!
//! Reading it checks everything that can be known without the data: names, references, time
//! inheritance. What needs the data is checked where the data are read.

mod check;
mod column;
mod text;

#[cfg(test)]
mod tests;

use std::path::Path;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::store::SemanticType;

pub use column::{Column, TimeUnit};
pub use text::Delay;
use text::{explain, is_false, one_or_many};

/// A database as the schema file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The database's name, kept in the store.
    pub database: String,
    /// When to refuse instead of reporting.
    #[serde(default)]
    pub limits: Limits,
    /// The tables, in the order that the store keeps them.
    #[serde(rename = "table", default)]
    pub tables: Vec<Table>,
    /// The tasks.
    #[serde(rename = "task", default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<Task>,
}

/// How much disorder in the data is reported rather than refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The share of a reference's non-NULL values that may point at no row.
    pub unresolved_share: f64,
    /// How many rows of a table may repeat a key that an earlier row has.
    pub duplicate_keys: u64,
    /// How many categories a categorical column may have.
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
    /// What the source calls it, when that is another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The columns that identify a row; none where rows have no key.
    #[serde(default, with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
    /// When a row came to exist; none where all rows are always visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Each column's semantic type. A source column that is not named here is not read.
    #[serde(default)]
    pub columns: IndexMap<String, Column>,
    /// The foreign keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
}

impl Table {
    /// What the source calls this table.
    #[must_use]
    pub fn source_name(&self) -> &str {
        self.source.as_deref().unwrap_or(&self.name)
    }

    /// The reference called `name`.
    #[must_use]
    pub fn reference(&self, name: &str) -> Option<usize> {
        self.references.iter().position(|r| r.name() == name)
    }
}

/// Where a row's time comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// A timestamp column of the table itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The reference whose parent lends its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// How long after that time the row became known.
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
    /// The columns referred to, when they are not that table's key. They must be unique there.
    #[serde(default, with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub to_columns: Vec<String>,
}

impl Reference {
    /// The reference's name: its columns, joined by `+`.
    #[must_use]
    pub fn name(&self) -> String {
        self.columns.join("+")
    }
}

/// Something to predict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The task's name.
    pub name: String,
    /// A cell of the seed row is the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<CellTask>,
    /// A table of anchors, observation times and targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived: Option<DerivedTask>,
    /// Whether a seed without an observation time sees every row. Without this it is an error.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sees_everything: bool,
}

/// Predict a column of a table from the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellTask {
    /// The table.
    pub table: String,
    /// Its column.
    pub column: String,
}

/// Predict a value that stands in a table of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DerivedTask {
    /// The table whose rows are the seeds.
    pub anchor: String,
    /// The source table that holds the task's rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Or the query that yields them (DuckDB's SQL over the source tables; Python package only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sql: Option<String>,
    /// The task's columns that hold the anchor's key.
    #[serde(with = "one_or_many")]
    pub key: Vec<String>,
    /// The column of observation times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The column of targets.
    pub target: String,
    /// The target's semantic type.
    #[serde(rename = "type")]
    pub target_type: SemanticType,
    /// The column that records each seed's split as train, val or test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
}

impl Schema {
    /// Reads a schema from TOML and checks all that can be known without the data.
    ///
    /// # Errors
    /// `Schema`: the text is not TOML, has an unknown or missing field (the message says which was
    /// meant), or contradicts itself.
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
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, "reading", e))?;
        Self::parse(&text).context(|| format!("schema {}", path.display()))
    }

    /// The table called `name`.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|t| t.name == name)
    }
}
