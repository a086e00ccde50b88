//! `metadata.json`: the content of a store and the layout of its bytes.

use serde::{Deserialize, Serialize};

use super::counts::count_of;
use super::{Period, Scale, SemanticType, TextEncoding};
use crate::bytes::Digest;
use crate::container::{FileMetadata, Kind, Root};
use crate::error::Result;
use crate::fold::ZScore;

/// The version of the store's format that this build reads and writes.
pub const FORMAT_VERSION: u32 = 4;

/// The content of a store.
///
/// The file is the canonical JSON of this value. [`Metadata::root`] is its digest with zeros in place
/// of the root. It records the length and digest of every other file, so the root is the identity of
/// the data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// The identity of the data.
    pub root: Digest,
    /// The database's name.
    pub database: String,
    /// Until when rows have a part in the statistics of columns; none if all of them have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics_until: Option<StatisticsUntil>,
    /// The embeddings of names, categories and texts.
    pub embedding: EmbeddingMetadata,
    /// The tables.
    pub tables: Vec<TableMetadata>,
    /// The relations between them.
    pub relations: Vec<RelationMetadata>,
    /// The aggregates of children that parents have as cells.
    pub aggregates: Vec<AggregateMetadata>,
    /// The summaries: tables of what came to be known in each period.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summaries: Vec<SummaryMetadata>,
    /// The tasks.
    pub tasks: Vec<TaskMetadata>,
    /// Every other file of the store.
    pub files: Vec<FileMetadata>,
}

/// The end of the period of which the statistics of columns are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatisticsUntil {
    /// The last time, in microseconds since 1970.
    pub time_us: i64,
    /// The task whose recorded train split ends then; none if the schema has the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

/// The embeddings that a store holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingMetadata {
    /// The name of the embedder.
    pub embedder: String,
    /// The number of elements of a vector.
    pub dimension: u32,
    /// The number of column vectors: the tables' columns, then the derived tasks' targets, then the
    /// aggregates.
    pub column_count: u32,
    /// The number of category vectors.
    pub category_count: u32,
    /// The number of distinct texts.
    pub text_count: u32,
    /// Whether the texts have vectors; else only their characters are stored.
    pub text_vectors: bool,
    /// How these vectors are stored; absent for 16-bit floats.
    #[serde(default, skip_serializing_if = "TextEncoding::is_f16")]
    pub text_encoding: TextEncoding,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableMetadata {
    /// Its name.
    pub name: String,
    /// The number of its rows.
    pub row_count: u32,
    /// The number of bytes of a row's record.
    pub stride: u32,
    /// The offset of the null bits in a record.
    pub null_offset: u32,
    /// The time at which a row came to exist; none if rows are always visible.
    pub time: Option<TimeMetadata>,
    /// The names of the key's columns; empty if rows have no key.
    pub key: Vec<String>,
    /// The columns.
    pub columns: Vec<ColumnMetadata>,
}

/// The place of a row's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeMetadata {
    /// A timestamp column of the table, plus a delay.
    Column {
        /// The column's place in the table.
        column: u32,
        /// The delay in microseconds.
        delay_us: i64,
    },
    /// In the record, inherited through a relation when the store was written.
    Inherited {
        /// The relation.
        relation: u32,
        /// The delay in microseconds, which the recorded time includes.
        delay_us: i64,
        /// The offset of the time in the record.
        offset: u32,
    },
    /// In the record, of a column of the source that is no cell.
    Ignored {
        /// The name of the column.
        column: String,
        /// The delay in microseconds, which the recorded time includes.
        delay_us: i64,
        /// The offset of the time in the record.
        offset: u32,
    },
    /// In the record: the end of the period that a row of a summary is of.
    Period {
        /// The offset of the time in the record.
        offset: u32,
    },
}

impl TimeMetadata {
    /// Returns the delay in microseconds.
    #[must_use]
    pub fn delay_us(&self) -> i64 {
        match self {
            Self::Column { delay_us, .. }
            | Self::Inherited { delay_us, .. }
            | Self::Ignored { delay_us, .. } => *delay_us,
            Self::Period { .. } => 0,
        }
    }
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnMetadata {
    /// Its name.
    pub name: String,
    /// Its index among all columns of the store, as in `column_ids` and the column embeddings.
    pub index: u32,
    /// The place of the value in the record: a byte offset, or for a boolean the number of its bit; 0
    /// for an identifier, which has no value.
    pub offset: u32,
    /// The number of NULL values.
    pub null_count: u64,
    /// The statistics of the values, by semantic type.
    pub stats: ColumnStats,
    /// When the values are known, if that is later than their rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<KnownMetadata>,
}

/// When the values of a column are known; before, contexts have NULL in their place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KnownMetadata {
    /// A fixed time after their rows.
    Delay {
        /// The delay in microseconds.
        delay_us: i64,
    },
    /// At a time in the record.
    At {
        /// The name of the column of the source with these times.
        column: String,
        /// The offset of the time in the record.
        offset: u32,
    },
}

impl ColumnMetadata {
    /// Returns the column's semantic type.
    #[must_use]
    pub fn semantic(&self) -> SemanticType {
        self.stats.semantic()
    }
}

/// Statistics by semantic type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
pub enum ColumnStats {
    /// Keys and references.
    Identifier,
    /// Numbers; the z-score is `(x - mean) / std`, or 0 if `std` is 0, where `x` is the place of the
    /// value on the scale.
    Numerical {
        /// The scale.
        #[serde(default, skip_serializing_if = "Scale::is_linear")]
        scale: Scale,
        /// The mean of the places of the values that are not NULL.
        mean: f64,
        /// Their standard deviation (of the population).
        std: f64,
        /// The least value.
        min: f64,
        /// The greatest value.
        max: f64,
    },
    /// Numbers of rows in a summary; a cell holds log2(1 + n) / 8.
    Count {
        /// The least.
        min: u32,
        /// The greatest.
        max: u32,
    },
    /// Times.
    Timestamp {
        /// The mean in microseconds since 1970.
        mean_us: f64,
        /// The standard deviation in microseconds.
        std_us: f64,
        /// The earliest.
        min_us: i64,
        /// The latest.
        max_us: i64,
    },
    /// Booleans.
    Boolean {
        /// The number of true values.
        true_count: u64,
    },
    /// Categories; a cell holds an index into this block of the categorical embeddings.
    Categorical {
        /// The start of the block.
        cat_emb_start: u32,
        /// The number of its categories.
        cat_emb_count: u32,
        /// The number of those known by [`Metadata::statistics_until`], which come first; all if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known_count: Option<u32>,
    },
    /// Texts; a cell holds an index into the store's texts.
    Text,
}

impl ColumnStats {
    /// Returns the semantic type of these statistics.
    #[must_use]
    pub fn semantic(&self) -> SemanticType {
        match self {
            Self::Identifier => SemanticType::Identifier,
            Self::Numerical { .. } | Self::Count { .. } => SemanticType::Numerical,
            Self::Timestamp { .. } => SemanticType::Timestamp,
            Self::Boolean { .. } => SemanticType::Boolean,
            Self::Categorical { .. } => SemanticType::Categorical,
            Self::Text => SemanticType::Text,
        }
    }

    /// Returns the number that a numerical cell was made from, rounded for display to the digits that
    /// 32 bits determine; `None` for other types.
    #[must_use]
    pub fn number(&self, cell: f32) -> Option<f64> {
        match self {
            Self::Numerical { scale, mean, std, .. } => {
                Some(scale.certain_value(ZScore { mean: *mean, std: *std }, cell))
            }
            Self::Count { .. } => Some(count_of(cell) as f64),
            _ => None,
        }
    }

    /// Returns the number of bytes of a value in a record; a boolean is a bit after the null bits.
    #[must_use]
    pub fn value_bytes(&self) -> u32 {
        match self {
            Self::Identifier | Self::Boolean { .. } => 0,
            Self::Numerical { .. } | Self::Count { .. } | Self::Text => 4,
            Self::Timestamp { .. } => 8,
            Self::Categorical { cat_emb_count, .. } => match cat_emb_count {
                0..=0x100 => 1,
                0x101..=0x1_0000 => 2,
                _ => 4,
            },
        }
    }
}

/// One relation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationMetadata {
    /// Its name: the child's columns, joined by `+`.
    pub name: String,
    /// The child table, whose rows refer to parents.
    pub child: u32,
    /// The parent table.
    pub parent: u32,
    /// The parent's columns that are referred to; empty if they are its key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_columns: Vec<String>,
    /// The offset of the parent's row number in the child's record.
    pub parent_offset: u32,
    /// The number of links: children with a parent.
    pub edge_count: u32,
    /// The number of children whose reference is NULL.
    pub null_count: u64,
    /// The number of children whose reference finds no parent.
    pub unresolved_count: u64,
}

/// One aggregate: a number that a row of a relation's parent table has, from its children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AggregateMetadata {
    /// Its name: `orders by customer_id, last 30 days: mean of price`.
    pub name: String,
    /// Its index among all columns of the store, as in `column_ids` and the column embeddings.
    pub index: u32,
    /// The relation.
    pub relation: u32,
    /// The length of the time before the observation in which children count; none for all that
    /// exist then.
    pub window_us: Option<i64>,
    /// The number.
    pub value: AggregateValue,
}

/// What an aggregate says of the children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum AggregateValue {
    /// Their number.
    Count,
    /// The mean of a numerical or boolean column.
    Mean {
        /// The column's place in the child table.
        column: u32,
    },
    /// The time since the last of them came to exist.
    SinceLast,
}

/// One summary: a table with a row for each period in which rows of another table came to be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryMetadata {
    /// The table of its rows.
    pub table: u32,
    /// The table that is summarised.
    pub of: u32,
    /// The summarised columns, by their places in that table.
    pub columns: Vec<u32>,
    /// The length of a period.
    pub period: Period,
    /// The relation by which a context reaches its rows. Where each parent has rows of its own, it is
    /// the relation from these to the parent; else it is a number after those of all relations.
    pub relation: u32,
}

/// One task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskMetadata {
    /// Its name.
    pub name: String,
    /// The table of its seed rows.
    pub anchor: u32,
    /// The number of its seeds.
    pub seed_count: u32,
    /// Whether seeds without an observation time see everything.
    pub sees_everything: bool,
    /// Whether rows of the very observation time are hidden, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// The place of its targets.
    pub target: TargetMetadata,
}

/// The place of a task's targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetMetadata {
    /// A cell of the seed row: seed i is row i, observed at the row's own time.
    Cell {
        /// The column's place in the anchor table.
        column: u32,
        /// The places of further columns that the seed row hides, because they would tell the target.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hide: Vec<u32>,
    },
    /// Seeds and targets in the file of the task.
    Derived {
        /// The target as a column of its own; its offset is 0.
        column: ColumnMetadata,
        /// Whether each seed's split is recorded.
        recorded_split: bool,
        /// The time from an observation until its target is known, if labels are rows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        horizon_us: Option<i64>,
        /// The relations of a task whose seeds are pairs: which rows will a row be linked to?
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link: Option<LinkMetadata>,
    },
}

/// The relations of a task whose seeds are pairs of a row and a candidate, to which it may be linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkMetadata {
    /// The relation from the pairs to the rows that the task asks about. Nothing lists pairs as
    /// children.
    pub anchor: u32,
    /// The relation from the pairs to the candidates.
    pub candidate: u32,
    /// The relation from the rows that link the two to the rows that the task asks about.
    pub from_anchor: u32,
    /// The relation from these to the candidates.
    pub from_candidate: u32,
    /// The number of candidates that were drawn beside the linked ones, where there were as many.
    pub negatives: u32,
}

/// Returns the name of the table whose rows are the labels of a task with a horizon.
pub(crate) fn label_table_name(task: &str) -> String {
    format!("{task} labels")
}

impl TaskMetadata {
    /// Returns the relations of a task whose seeds are pairs; none for other tasks.
    #[must_use]
    pub fn link(&self) -> Option<&LinkMetadata> {
        match &self.target {
            TargetMetadata::Derived { link, .. } => link.as_ref(),
            TargetMetadata::Cell { .. } => None,
        }
    }
}

impl Root for Metadata {
    const KIND: Kind = Kind::Tables;
    const FORMAT_VERSION: u32 = FORMAT_VERSION;

    #[cfg(feature = "prepare")]
    fn root(&self) -> Digest {
        self.root
    }

    fn root_mut(&mut self) -> &mut Digest {
        &mut self.root
    }

    fn files(&self) -> &[FileMetadata] {
        &self.files
    }
}

impl Metadata {
    /// Computes the root and returns the text of `metadata.json`.
    ///
    /// # Errors
    /// None in practice: every value here can be written as JSON.
    pub fn encode(&mut self) -> Result<String> {
        Root::encode(self)
    }

    /// Returns the column of the targets of `task`, a task of this store.
    ///
    /// # Panics
    /// When the task is not of this store.
    #[must_use]
    pub fn target_column<'a>(&'a self, task: &'a TaskMetadata) -> &'a ColumnMetadata {
        match &task.target {
            TargetMetadata::Derived { column, .. } => column,
            TargetMetadata::Cell { column, .. } => {
                &self.tables[task.anchor as usize].columns[*column as usize]
            }
        }
    }

    /// Returns the summaries that every seed sees, because they are of no parent, in the order of their
    /// relations, which follow those of the tables.
    pub fn global_summaries(&self) -> impl Iterator<Item = &SummaryMetadata> {
        let is_global = |summary: &&SummaryMetadata| !self.has_parents(summary);
        self.summaries.iter().filter(is_global)
    }

    /// Whether each parent has rows of its own in a summary of this store.
    #[must_use]
    pub fn has_parents(&self, summary: &SummaryMetadata) -> bool {
        (summary.relation as usize) < self.relations.len()
    }

    /// Whether a column is part of its table's key, of a reference, or of the columns that one refers to: linked rows
    /// tell its values.
    ///
    /// In a table with a `+` in names of columns, others may seem to be part of a reference, too.
    #[must_use]
    pub fn links_rows(&self, table: u32, column: &str) -> bool {
        let part = format!("+{column}+");
        self.tables[table as usize].key.iter().any(|key| key == column)
            || self.relations.iter().any(|relation| {
                relation.child == table && format!("+{}+", relation.name).contains(&part)
                    || relation.parent == table && relation.to_columns.iter().any(|to| to == column)
            })
    }

    /// Returns the tables whose rows are labels, by number, each after its task.
    pub fn label_tables(&self) -> impl Iterator<Item = (&TaskMetadata, u32)> {
        let has_horizon = |task: &&TaskMetadata| {
            matches!(task.target, TargetMetadata::Derived { horizon_us: Some(_), .. })
        };
        self.tasks.iter().filter(has_horizon).filter_map(|task| {
            let name = label_table_name(&task.name);
            let (number, _) = (0..).zip(&self.tables).find(|(_, table)| table.name == name)?;
            Some((task, number))
        })
    }

    /// Returns the targets of the derived tasks.
    pub(super) fn derived_columns(&self) -> impl Iterator<Item = &ColumnMetadata> {
        self.tasks.iter().filter_map(|task| match &task.target {
            TargetMetadata::Derived { column, .. } => Some(column),
            TargetMetadata::Cell { .. } => None,
        })
    }
}
