//! Days of the Gregorian calendar, which is extended to all times.

/// The microseconds of a day.
pub const DAY_US: i64 = 86_400_000_000;

/// The days from 0000-03-01 to 1970-01-01. A year that starts in March has its leap day at the end.
const FROM_MARCH: i64 = 719_468;

/// The place of a day in the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    pub year: i64,
    /// From 0, as the two after it.
    pub month: usize,
    pub day: usize,
    pub day_of_year: usize,
}

impl Date {
    /// Returns the date of a day, counted from 1970-01-01.
    pub(crate) fn of(days: i64) -> Self {
        let since_0000_03_01 = days + FROM_MARCH;
        let (era, day_of_era) =
            (since_0000_03_01.div_euclid(146_097), since_0000_03_01.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let day = from_march - (153 * month_from_march + 2) / 5;
        let month = (month_from_march + 2) % 12;
        // An era begins with a year that is a multiple of 400; January belongs to the next year.
        let year_in_era = year_of_era + i64::from(month < 2);
        let is_leap = year_in_era % 4 == 0 && (year_in_era % 100 != 0 || year_in_era % 400 == 0);
        let day_of_year = match month {
            0 | 1 => from_march - 306,
            _ => from_march + 59 + i64::from(is_leap),
        };
        Self {
            year: era * 400 + year_in_era,
            month: month as usize,
            day: day as usize,
            day_of_year: day_of_year as usize,
        }
    }
}

/// Returns a time in microseconds since 1970 as text, in UTC: `2023-09-10 00:00:00`, then a fraction unless
/// it is 0.
pub(crate) fn time_text(time_us: i64) -> String {
    let date = Date::of(time_us.div_euclid(DAY_US));
    let year = match date.year {
        year @ 0..=9999 => format!("{year:04}"),
        year => format!("{year:+05}"),
    };
    let of_day = time_us.rem_euclid(DAY_US);
    let (seconds, micros) = (of_day / 1_000_000, of_day % 1_000_000);
    let fraction = match micros {
        0 => String::new(),
        _ if micros % 1000 == 0 => format!(".{:03}", micros / 1000),
        _ => format!(".{micros:06}"),
    };
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let (month, day) = (date.month + 1, date.day + 1);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}")
}

/// Returns the first day of a month, counted from 1970-01-01; `month` counts from January of year 0.
pub(crate) fn first_day(month: i64) -> i64 {
    let (year, month_from_march) = ((month - 2).div_euclid(12), (month - 2).rem_euclid(12));
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month_from_march + 2) / 5 - FROM_MARCH
}

/// Returns the day of the week, from 0 for Monday, of a day counted from 1970-01-01, a Thursday.
pub(crate) fn weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_day_of_every_month_has_its_date() {
        for month in -12 * 3000..12 * 9000_i64 {
            let date = Date::of(first_day(month));
            let expected = (month.div_euclid(12), month.rem_euclid(12) as usize, 0);
            assert_eq!((date.year, date.month, date.day), expected);
            assert_ne!(Date::of(first_day(month) - 1).month, date.month);
        }
        assert_eq!((first_day(1970 * 12), weekday(0)), (0, 3));
    }

    #[test]
    fn a_time_has_its_text() {
        for (time_us, text) in [
            (0, "1970-01-01 00:00:00"),
            (-1, "1969-12-31 23:59:59.999999"),
            (1_694_304_000_500_000, "2023-09-10 00:00:00.500"),
            (951_827_696_000_007, "2000-02-29 12:34:56.000007"),
            (253_402_300_800_000_000, "+10000-01-01 00:00:00"),
            (-62_167_219_200_000_001, "-0001-12-31 23:59:59.999999"),
            (i64::MAX, "+294247-01-10 04:00:54.775807"),
            (i64::MIN, "-290308-12-21 19:59:05.224192"),
        ] {
            assert_eq!(time_text(time_us), text);
        }
    }
}
