//! What the values of a column mean.

use serde::{Deserialize, Serialize};

/// What the values of a column mean; the numbers are those of a batch's `semantic_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum SemanticType {
    /// Names a row; has no value of its own beyond being there.
    Identifier = 0,
    /// A number, kept as its z-score.
    Numerical = 1,
    /// A point in time, kept in microseconds since 1970-01-01 UTC.
    Timestamp = 2,
    /// True or false.
    Boolean = 3,
    /// One of few values.
    Categorical = 4,
    /// One of many values, seen through its embedding.
    Text = 5,
    /// Not kept.
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

    /// The word for it in a schema file.
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
