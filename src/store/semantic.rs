//! The semantic types of columns.

use serde::{Deserialize, Serialize};

/// The meaning of a column's values; the numbers are those of a batch's `semantic_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum SemanticType {
    /// A key or a reference; its only value is that it is present.
    Identifier = 0,
    /// A number, kept as its z-score.
    Numerical = 1,
    /// A point in time, kept in microseconds since 1970-01-01 UTC.
    Timestamp = 2,
    /// True or false.
    Boolean = 3,
    /// One of few names.
    Categorical = 4,
    /// A text, represented by its embedding.
    Text = 5,
    /// Not stored.
    Ignored = 6,
}

impl SemanticType {
    /// Every type, in the order of its number.
    pub const ALL: [Self; 7] = [
        Self::Identifier,
        Self::Numerical,
        Self::Timestamp,
        Self::Boolean,
        Self::Categorical,
        Self::Text,
        Self::Ignored,
    ];

    /// Returns the name of the type in a schema file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Identifier => "identifier",
            Self::Numerical => "numerical",
            Self::Timestamp => "timestamp",
            Self::Boolean => "boolean",
            Self::Categorical => "categorical",
            Self::Text => "text",
            Self::Ignored => "ignored",
        }
    }
}

impl std::fmt::Display for SemanticType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
