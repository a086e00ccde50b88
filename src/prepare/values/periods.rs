//! Reads periods of the calendar: days, months, quarters, seasons and years as people write them.

use crate::days::{DAY_US, first_day};
use crate::prepare::schema::TimeUnit;

/// The first month of a season, counted from 0: July.
const SEASON_START: i64 = 6;

/// Returns when the period in `text` begins, or the next one begins if `end`, in microseconds.
///
/// `None` if the text is no such period, or the unit is not one of the calendar.
pub(in crate::prepare) fn time_of_period(text: &str, unit: TimeUnit, end: bool) -> Option<i64> {
    let text = whole(text);
    let months = |first: i64, count: i64| first_day(first + if end { count } else { 0 });
    let day = match unit {
        TimeUnit::Year => months(year(text)? * 12, 12),
        TimeUnit::Season => months(season(text)? * 12 + SEASON_START, 12),
        TimeUnit::Quarter => {
            let (year, quarter) = quarter(text)?;
            months(year * 12 + (quarter - 1) * 3, 3)
        }
        TimeUnit::Month => {
            let (year, month) = month(text)?;
            months(year * 12 + month - 1, 1)
        }
        TimeUnit::Yyyymmdd => {
            let digits = text.split_at_checked(6).filter(|(month, _)| is_digits(month))?;
            let ((year, month), day) = (self::month(digits.0)?, within(digits.1, 2, 1..=31)?);
            let first = first_day(year * 12 + month - 1);
            let in_month = day <= first_day(year * 12 + month) - first;
            in_month.then_some(first + day - 1 + i64::from(end))?
        }
        TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond => return None,
    };
    Some(day * DAY_US)
}

/// Returns an integer without the point that pandas writes where values are missing: 2003.0.
pub(super) fn whole(text: &str) -> &str {
    text.strip_suffix(".0").unwrap_or(text)
}

fn year(text: &str) -> Option<i64> {
    within(text, 4, 1..=9999)
}

/// Returns the first year of 2003/04, 2003-2004, 200304 or 20032004.
fn season(text: &str) -> Option<i64> {
    let (first, second) = separated(text, 4, &['/', '-', '–'])?;
    let first = year(first)?;
    let is_next = match second.len() {
        2 => within(second, 2, 0..=99)? == (first + 1) % 100,
        _ => year(second)? == first + 1,
    };
    is_next.then_some(first)
}

/// Returns the year and the quarter of 2003Q2, 2003-Q2, 2003 Q2 or 20032.
fn quarter(text: &str) -> Option<(i64, i64)> {
    let (year, quarter) = separated(text, 4, &['-', ' '])?;
    let quarter = quarter.strip_prefix(['Q', 'q']).unwrap_or(quarter);
    Some((self::year(year)?, within(quarter, 1, 1..=4)?))
}

/// Returns the year and the month of 200304, 2003-04 or 2003/04.
fn month(text: &str) -> Option<(i64, i64)> {
    let (year, month) = separated(text, 4, &['-', '/'])?;
    Some((self::year(year)?, within(month, 2, 1..=12)?))
}

/// Splits a text after so many bytes, and leaves out one of the separators if it follows.
fn separated<'a>(text: &'a str, at: usize, separators: &[char]) -> Option<(&'a str, &'a str)> {
    let (before, after) = text.split_at_checked(at)?;
    Some((before, after.strip_prefix(separators).unwrap_or(after)))
}

/// Returns the number in a text of so many digits, if it lies in the range.
fn within(text: &str, digits: usize, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
    let number = (text.len() == digits && is_digits(text)).then(|| text.parse().ok()).flatten()?;
    range.contains(&number).then_some(number)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::days::Date;

    /// Returns begin and end as texts, or `none`.
    fn found(text: &str, unit: TimeUnit) -> String {
        let day = |end| {
            let time = time_of_period(text, unit, end)?;
            assert_eq!(time % DAY_US, 0);
            let Date { year, month, day, .. } = Date::of(time / DAY_US);
            Some(format!("{year}-{:02}-{:02}", month + 1, day + 1))
        };
        day(false).zip(day(true)).map_or("none".into(), |(begin, end)| format!("{begin} {end}"))
    }

    #[test]
    fn periods_begin_and_end_as_people_mean_them() {
        use TimeUnit::{Month, Quarter, Season, Year, Yyyymmdd};
        for (text, unit, expected) in [
            ("2003", Year, "2003-01-01 2004-01-01"),
            ("2003.0", Year, "2003-01-01 2004-01-01"),
            ("1871", Year, "1871-01-01 1872-01-01"),
            ("200312", Month, "2003-12-01 2004-01-01"),
            ("2004-02", Month, "2004-02-01 2004-03-01"),
            ("2004/02", Month, "2004-02-01 2004-03-01"),
            ("2003Q4", Quarter, "2003-10-01 2004-01-01"),
            ("2003-q1", Quarter, "2003-01-01 2003-04-01"),
            ("2003 Q2", Quarter, "2003-04-01 2003-07-01"),
            ("20033", Quarter, "2003-07-01 2003-10-01"),
            ("2003/04", Season, "2003-07-01 2004-07-01"),
            ("1999-2000", Season, "1999-07-01 2000-07-01"),
            ("1999–00", Season, "1999-07-01 2000-07-01"),
            ("200304", Season, "2003-07-01 2004-07-01"),
            ("20032004", Season, "2003-07-01 2004-07-01"),
            ("20040229", Yyyymmdd, "2004-02-29 2004-03-01"),
            ("20031231", Yyyymmdd, "2003-12-31 2004-01-01"),
        ] {
            assert_eq!(found(text, unit), expected, "{text} {}", unit.name());
        }
    }

    #[test]
    fn other_texts_are_no_periods() {
        use TimeUnit::{Month, Quarter, Season, Year, Yyyymmdd};
        for (unit, texts) in [
            (Year, &["", "203", "20031", "0000", "+200", "2003-04", "20é3", "1e3"][..]),
            (Month, &["200313", "200300", "2003-4", "2003", "2003--04", "20é304"][..]),
            (Quarter, &["2003Q5", "2003Q0", "2003Q", "Q2003", "200312"][..]),
            (Season, &["2003/05", "2003-2005", "2003/4", "2003", "2003/04/05"][..]),
            (Yyyymmdd, &["20030229", "20031301", "2003-04-15", "200304", "2003041é"][..]),
        ] {
            for text in texts {
                assert_eq!(found(text, unit), "none", "{text} {}", unit.name());
            }
        }
        for unit in TimeUnit::ALL {
            let is_period = TimeUnit::PERIODS.contains(&unit);
            assert_eq!(unit.microseconds().is_none(), is_period);
            assert_eq!(time_of_period("5", unit, false), None);
        }
    }
}
