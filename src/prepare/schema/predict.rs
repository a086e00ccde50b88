//! Declared tasks: what becomes of each row of a table within a horizon, asked at regular times.

use serde::{Deserialize, Serialize};

use super::text::Delay;
use super::{Column, Reference, ScaleName, Table};
use crate::error::{Error, Result};

/// A question about the children of each row of a table: how many come within the horizon, say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predict {
    /// The table whose rows the task asks about.
    pub anchor: String,
    /// What is made of the children in the horizon.
    pub what: What,
    /// The table of the children, which has a time.
    pub of: String,
    /// The column of the children; `count`, `exists` and `link` need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// The reference of the children to the anchor, if they have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The table of the rows that `link` asks for; other questions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The reference of the children to these rows, if they have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_reference: Option<String>,
    /// The number of candidates that `link` draws beside the linked ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub negatives: Option<i64>,
    /// A condition of SQL on the columns of a child; other children do not count.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The time after the observation in which the children count.
    pub horizon: Delay,
    /// The time from one observation to the next; default: the horizon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Delay>,
    /// Rows are asked about only if a child came within this time before the observation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_within: Option<Delay>,
    /// The end of the horizons of the train seeds, and the first observation of the val seeds.
    pub train_until: String,
    /// The end of the horizons of the val seeds, and the first observation of the test seeds.
    pub val_until: String,
    /// The scale of a numerical target.
    #[serde(default, skip_serializing_if = "ScaleName::is_linear")]
    pub scale: ScaleName,
}

/// What a target is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The number of children.
    Count,
    /// The sum of a column.
    Sum,
    /// The mean of a column; without a value there is no seed.
    Mean,
    /// The least value of a column; without a value there is no seed.
    Min,
    /// The greatest value of a column; without a value there is no seed.
    Max,
    /// Whether there is a child.
    Exists,
    /// The value of the earliest child that has one; without one there is no seed.
    First,
    /// The value of the latest child that has one; without one there is no seed.
    Last,
    /// Which rows of another table the children refer to: a seed for each of them, and for some
    /// that they do not refer to; without a child there is no seed.
    Link,
}

impl What {
    pub(in crate::prepare) fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::Exists => "exists",
            Self::First => "first",
            Self::Last => "last",
            Self::Link => "link",
        }
    }

    pub(super) fn needs_column(self) -> bool {
        !matches!(self, Self::Count | Self::Exists | Self::Link)
    }
}

impl Predict {
    /// Returns the time from one observation to the next.
    pub(super) fn step(&self) -> Delay {
        self.every.unwrap_or(self.horizon)
    }
}

/// The rows that a question about links asks for.
#[derive(Clone, Copy)]
pub(super) struct Link<'a> {
    /// Their table.
    pub(super) to: &'a Table,
    /// The reference of the children to them.
    pub(super) reference: &'a Reference,
    /// The number of candidates that are drawn beside the linked ones.
    pub(super) negatives: u32,
}

/// The parts of a schema that a declared task names.
pub(super) struct Question<'a> {
    pub(super) predict: &'a Predict,
    pub(super) anchor: &'a Table,
    pub(super) children: &'a Table,
    pub(super) reference: &'a Reference,
    /// What a question about links names beside.
    pub(super) link: Option<Link<'a>>,
    /// The type and scale of the target.
    pub(super) target: Column,
    /// The microseconds since 1970 of `train_until` and `val_until`.
    pub(super) train_until: i64,
    pub(super) val_until: i64,
    /// The microseconds from the time of a child until the child, and what is asked of it, are known.
    pub(super) answer_delay: i64,
}

/// Returns the columns of a reference in the order of the key of `parent`, to which it refers.
pub(super) fn in_key_order<'a>(
    reference: &'a Reference,
    parent: &'a Table,
) -> Result<Vec<&'a String>> {
    let referred =
        if reference.to_columns.is_empty() { &parent.key } else { &reference.to_columns };
    let columns: Option<Vec<_>> = (parent.key.iter())
        .map(|key| reference.columns.get(referred.iter().position(|column| column == key)?))
        .collect();
    columns.ok_or_else(|| {
        Error::schema(format!(
            "reference {:?} does not name the whole key of {:?}; name all its columns",
            reference.name(),
            parent.name
        ))
    })
}
