//! The units of times that a source has as integers or as periods of the calendar.

use serde::{Deserialize, Serialize};

/// The unit of a time: the steps since 1970-01-01 UTC, or a period of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Seconds since 1970.
    #[serde(rename = "s")]
    Second,
    /// Milliseconds since 1970.
    #[serde(rename = "ms")]
    Millisecond,
    /// Microseconds since 1970.
    #[serde(rename = "us")]
    Microsecond,
    /// A day, as 20030415.
    Yyyymmdd,
    /// A month, as 200304 or 2003-04.
    Month,
    /// A quarter, as 20032 or 2003Q2.
    Quarter,
    /// A season from July to June, as 2003/04, 2003-2004 or 200304.
    Season,
    /// A year, as 2003.
    Year,
}

impl TimeUnit {
    /// Every unit, in the order of messages.
    pub const ALL: [Self; 8] = [
        Self::Second,
        Self::Millisecond,
        Self::Microsecond,
        Self::Yyyymmdd,
        Self::Month,
        Self::Quarter,
        Self::Season,
        Self::Year,
    ];

    /// The units that are periods of the calendar, in the order in which a draft tries them.
    pub const PERIODS: [Self; 5] =
        [Self::Yyyymmdd, Self::Season, Self::Month, Self::Quarter, Self::Year];

    /// Returns the name in a schema file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Millisecond => "ms",
            Self::Microsecond => "us",
            Self::Yyyymmdd => "yyyymmdd",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Season => "season",
            Self::Year => "year",
        }
    }

    /// Returns a description of the values, for messages.
    #[must_use]
    pub fn values(self) -> &'static str {
        match self {
            Self::Second => "whole seconds since 1970",
            Self::Millisecond => "whole milliseconds since 1970",
            Self::Microsecond => "whole microseconds since 1970",
            Self::Yyyymmdd => "a day such as 20030415",
            Self::Month => "a month such as 200304 or 2003-04",
            Self::Quarter => "a quarter such as 2003Q2 or 20032",
            Self::Season => "a season such as 2003/04, 2003-2004 or 200304",
            Self::Year => "a year such as 2003",
        }
    }

    /// Returns the microseconds of a step since 1970; `None` for a period of the calendar.
    #[must_use]
    pub fn microseconds(self) -> Option<i64> {
        match self {
            Self::Second => Some(1_000_000),
            Self::Millisecond => Some(1_000),
            Self::Microsecond => Some(1),
            _ => None,
        }
    }
}
