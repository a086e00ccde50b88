//! Aggregates of children: counts and means over windows, as cells of the parent row.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::text::{Delay, one_or_many};

/// Counts and means of a row's children through one reference, as further cells of the row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// The table of the children.
    pub table: String,
    /// The reference of the children to the row: its columns, joined by `+`.
    pub reference: String,
    /// The numerical and boolean columns whose means are cells; the number of children always is.
    #[serde(default, with = "one_or_many", skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The times before the observation in which a child must have come to exist.
    #[serde(default = "ever", skip_serializing_if = "is_ever")]
    pub windows: Vec<Window>,
}

/// The children that an aggregate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Window {
    /// Those that came to exist in this time before the observation.
    Last(Delay),
    /// All that exist at the observation.
    Ever,
}

/// The text of [`Window::Ever`].
const EVER: &str = "ever";

fn ever() -> Vec<Window> {
    vec![Window::Ever]
}

fn is_ever(windows: &[Window]) -> bool {
    windows == [Window::Ever]
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last(length) => length.fmt(f),
            Self::Ever => f.write_str(EVER),
        }
    }
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.trim() == EVER {
            return Ok(Self::Ever);
        }
        let expected = format!("a window such as \"30 days\", \"12 hours\" or \"{EVER}\"");
        Delay::parse(&text, &expected).map(Self::Last).map_err(serde::de::Error::custom)
    }
}
