//! The periods of summaries: days, weeks, months, quarters and years of the calendar, in UTC.

use serde::{Deserialize, Serialize};

use super::time::NEVER_VISIBLE;
use crate::days::{DAY_US, Date, first_day, weekday};

/// The length of the periods of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// A day.
    Day,
    /// A week from Monday to Sunday.
    Week,
    /// A month.
    Month,
    /// Three months, from January, April, July or October on.
    Quarter,
    /// A year.
    Year,
}

impl Period {
    /// Every length, the shortest first.
    pub const ALL: [Self; 5] = [Self::Day, Self::Week, Self::Month, Self::Quarter, Self::Year];

    /// Returns the name of the length in a schema file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    /// Returns the end of the period with `time`, which is the beginning of the next one; at most
    /// [`NEVER_VISIBLE`].
    #[must_use]
    pub fn end(self, time: i64) -> i64 {
        let day = time.div_euclid(DAY_US);
        let next = match self {
            Self::Day => day + 1,
            Self::Week => day + 7 - weekday(day),
            Self::Month => after(day, 1),
            Self::Quarter => after(day, 3),
            Self::Year => after(day, 12),
        };
        next.saturating_mul(DAY_US).min(NEVER_VISIBLE)
    }
}

/// Returns the first day after those `months`, counted from January of year 0, that `day` is among.
fn after(day: i64, months: i64) -> i64 {
    let Date { year, month, .. } = Date::of(day);
    first_day(((year * 12 + month as i64).div_euclid(months) + 1) * months)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_end_where_the_next_ones_begin() {
        // 2024-02-29 12:34:56.789, a Thursday.
        let time = 1_709_210_096_789_000;
        let ends = [1_709_251_200, 1_709_510_400, 1_709_251_200, 1_711_929_600, 1_735_689_600];
        for (period, end) in Period::ALL.into_iter().zip(ends.map(|second| second * 1_000_000)) {
            assert_eq!(period.end(time), end, "{}", period.name());
            assert_eq!(period.end(end - 1), end);
            assert!(period.end(end) > end);
        }
    }

    #[test]
    fn extreme_times_have_periods() {
        for period in Period::ALL {
            assert!(period.end(i64::MIN + 2) > i64::MIN + 2);
            assert_eq!(period.end(i64::MAX - 2), NEVER_VISIBLE);
        }
    }
}
