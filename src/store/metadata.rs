//! `metadata.json`: what the store holds and how its bytes are laid out.

use serde::{Deserialize, Serialize};

use super::SemanticType;
use crate::bytes::Digest;
use crate::container::FileMetadata;
use crate::error::{Error, Result};

/// The version of the store's format that this build reads and writes.
pub const FORMAT_VERSION: u32 = 1;

/// What a store holds.
///
/// The file is the canonical JSON of this value, and [`Metadata::root`] is the digest of it with a
/// root of zeros. It names every other file by length and digest, so the root is the identity of
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
    /// How names, categories and texts were embedded.
    pub embedding: EmbeddingMetadata,
    /// The tables.
    pub tables: Vec<TableMetadata>,
    /// The foreign keys between them.
    pub relations: Vec<RelationMetadata>,
    /// What can be predicted.
    pub tasks: Vec<TaskMetadata>,
    /// Every other file of the store.
    pub files: Vec<FileMetadata>,
}

/// The embeddings that a store holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingMetadata {
    /// Which embedder made them.
    pub embedder: String,
    /// How long a vector is.
    pub dimension: u32,
    /// How many columns have one: the tables' columns, then the derived tasks' targets.
    pub column_count: u32,
    /// How many categories have one.
    pub category_count: u32,
    /// How many distinct texts there are.
    pub text_count: u32,
    /// Whether the texts have vectors, or only their characters are kept.
    pub text_vectors: bool,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableMetadata {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub row_count: u32,
    /// How many bytes a row's record takes.
    pub stride: u32,
    /// Where a row's null bits are in its record.
    pub null_offset: u32,
    /// When a row came to exist; none where rows are always visible.
    pub time: Option<TimeMetadata>,
    /// The names of the key's columns; none where rows have no key.
    pub key: Vec<String>,
    /// The columns.
    pub columns: Vec<ColumnMetadata>,
}

/// Where a row's time is.
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
        /// The delay in microseconds, which the recorded time already has in it.
        delay_us: i64,
        /// Where the time is in the record.
        offset: u32,
    },
}

impl TimeMetadata {
    /// The delay in microseconds.
    #[must_use]
    pub fn delay_us(&self) -> i64 {
        let (Self::Column { delay_us, .. } | Self::Inherited { delay_us, .. }) = self;
        *delay_us
    }
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnMetadata {
    /// Its name.
    pub name: String,
    /// Its index among all columns of the store, by which `column_ids` and the embeddings go.
    pub index: u32,
    /// Where the value is in the record: a byte offset, or for a boolean the number of its bit. An
    /// identifier has no value and says 0.
    pub offset: u32,
    /// How many values are NULL.
    pub null_count: u64,
    /// What the values are like; says the semantic type too.
    pub stats: ColumnStats,
}

impl ColumnMetadata {
    /// The column's semantic type.
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
    /// Numbers; the z-score is `(value - mean) / std`, and 0 where `std` is 0.
    Numerical {
        /// The mean of the values that are not NULL.
        mean: f64,
        /// Their standard deviation (of the population).
        std: f64,
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
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
    /// Truths.
    Boolean {
        /// How many are true.
        true_count: u64,
    },
    /// Categories; a cell holds an index into this block of the categorical embeddings.
    Categorical {
        /// Where the block starts.
        cat_emb_start: u32,
        /// How many categories it has.
        cat_emb_count: u32,
    },
    /// Texts; a cell holds an index into the store's texts.
    Text,
}

impl ColumnStats {
    /// The semantic type that these are statistics of.
    #[must_use]
    pub fn semantic(&self) -> SemanticType {
        match self {
            Self::Identifier => SemanticType::Identifier,
            Self::Numerical { .. } => SemanticType::Numerical,
            Self::Timestamp { .. } => SemanticType::Timestamp,
            Self::Boolean { .. } => SemanticType::Boolean,
            Self::Categorical { .. } => SemanticType::Categorical,
            Self::Text => SemanticType::Text,
        }
    }

    /// How many bytes a value takes in a record; a boolean is a bit among the null bits.
    #[must_use]
    pub fn value_bytes(&self) -> u32 {
        match self {
            Self::Identifier | Self::Boolean { .. } => 0,
            Self::Numerical { .. } | Self::Text => 4,
            Self::Timestamp { .. } => 8,
            Self::Categorical { cat_emb_count, .. } => match cat_emb_count {
                0..=0x100 => 1,
                0x101..=0x1_0000 => 2,
                _ => 4,
            },
        }
    }
}

/// One foreign key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelationMetadata {
    /// Its name: the child's columns, joined by `+`.
    pub name: String,
    /// The table whose rows refer.
    pub child: u32,
    /// The table that they refer to.
    pub parent: u32,
    /// Where the parent's row number is in the child's record.
    pub parent_offset: u32,
    /// How many children have a parent.
    pub edge_count: u32,
    /// How many have a NULL in place of a reference.
    pub null_count: u64,
    /// How many refer to a row that is not there.
    pub unresolved_count: u64,
}

/// Something to predict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskMetadata {
    /// Its name.
    pub name: String,
    /// The table of its seed rows.
    pub anchor: u32,
    /// How many seeds it has.
    pub seed_count: u32,
    /// Whether seeds without an observation time see everything.
    pub sees_everything: bool,
    /// Where its targets are.
    pub target: TargetMetadata,
}

/// Where a task's targets are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TargetMetadata {
    /// A cell of the seed row: seed i is row i, observed at the row's own time.
    Cell {
        /// The column's place in the anchor table.
        column: u32,
    },
    /// A file of its own in `tasks/`.
    Derived {
        /// The target as a column of its own; its offset is 0.
        column: ColumnMetadata,
        /// Whether each seed's split is recorded.
        recorded_split: bool,
    },
}

impl Metadata {
    /// The text of `metadata.json`, with the root computed.
    ///
    /// # Errors
    /// None in practice: every value here can be written as JSON.
    pub fn encode(&mut self) -> Result<String> {
        self.root = Digest([0; 32]);
        self.root = Digest::of(self.canonical()?.as_bytes());
        self.canonical()
    }

    /// Reads `metadata.json` and checks that not one bit of it changed.
    ///
    /// # Errors
    /// `NotOurs`, `Version` or `Corrupt`.
    pub fn decode(text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            format_version: u32,
        }
        let broken = |e: &dyn std::fmt::Display| {
            Error::corrupt(format!("this is not a headwater store's metadata: {e}"))
        };
        let version: Version = serde_json::from_slice(text).map_err(|e| broken(&e))?;
        if version.format_version != FORMAT_VERSION {
            return Err(Error::version(format!(
                "store format version {}; this build reads version {FORMAT_VERSION}: prepare the \
                 store with this version of headwater, or read it with the one that wrote it",
                version.format_version
            )));
        }
        let metadata: Self = serde_json::from_slice(text).map_err(|e| broken(&e))?;
        if metadata.clone().encode()?.as_bytes() != text {
            return Err(Error::corrupt(
                "the metadata do not match their digest: the file was edited or damaged; copy the \
                 store again from where it is whole, or prepare it anew",
            ));
        }
        Ok(metadata)
    }

    fn canonical(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| Error::invalid(format!("writing the metadata as JSON: {e}")))?;
        text.push('\n');
        Ok(text)
    }

    /// The column that holds the targets of `task`, one of these metadata's tasks.
    ///
    /// # Panics
    /// When the task is not of this store.
    #[must_use]
    pub fn target_column<'a>(&'a self, task: &'a TaskMetadata) -> &'a ColumnMetadata {
        match &task.target {
            TargetMetadata::Derived { column, .. } => column,
            TargetMetadata::Cell { column } => {
                &self.tables[task.anchor as usize].columns[*column as usize]
            }
        }
    }

    /// The targets that are columns of their own.
    pub(super) fn derived_columns(&self) -> impl Iterator<Item = &ColumnMetadata> {
        self.tasks.iter().filter_map(|task| match &task.target {
            TargetMetadata::Derived { column, .. } => Some(column),
            TargetMetadata::Cell { .. } => None,
        })
    }
}
