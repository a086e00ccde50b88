//! The fifteen features of a timestamp: its place in each of seven cycles, and its z-score.

use std::f64::consts::TAU;
use std::sync::LazyLock;

use crate::days::{Date, weekday};

/// The number of features of a timestamp.
pub(super) const FEATURES: usize = 15;

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// The number of places of each cycle: second, minute, hour, weekday, day of month, month, day of year.
const CYCLES: [usize; 7] = [60, 60, 24, 7, 31, 12, 366];

/// Sine and cosine of every place of every cycle, cycle by cycle. Those of libm are the same on
/// every machine.
static CIRCLE: LazyLock<Vec<[f32; 2]>> = LazyLock::new(|| {
    let angle = |place: usize, period: usize| TAU * place as f64 / period as f64;
    let places = CYCLES.iter().flat_map(|&period| (0..period).map(move |p| angle(p, period)));
    places.map(|angle| [libm::sin(angle) as f32, libm::cos(angle) as f32]).collect()
});

/// The start of each cycle in [`CIRCLE`].
const STARTS: [usize; 7] = {
    let mut starts = [0; 7];
    let mut cycle = 1;
    while cycle < 7 {
        starts[cycle] = starts[cycle - 1] + CYCLES[cycle - 1];
        cycle += 1;
    }
    starts
};

/// Returns the place of a time, in microseconds since 1970 UTC, in each cycle, from 0.
pub(super) fn places(time_us: i64) -> [usize; 7] {
    let seconds = time_us.div_euclid(MICROS_PER_SECOND);
    let (days, second) = (seconds.div_euclid(SECONDS_PER_DAY), seconds.rem_euclid(SECONDS_PER_DAY));
    let second = second as usize;
    let Date { month, day, day_of_year, .. } = Date::of(days);
    let weekday = weekday(days) as usize;
    [second % 60, second / 60 % 60, second / 3600, weekday, day, month, day_of_year]
}

/// Writes the features of a time with its z-score.
pub(super) fn write_features(time_us: i64, z_score: f32, features: &mut [f32]) {
    let circle = &*CIRCLE;
    for (cycle, place) in places(time_us).into_iter().enumerate() {
        features[2 * cycle..2 * cycle + 2].copy_from_slice(&circle[STARTS[cycle] + place]);
    }
    features[FEATURES - 1] = z_score;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the days one by one.
    #[test]
    fn every_day_of_eight_centuries_has_its_calendar_places() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        // 1600-01-01 was a Saturday.
        let (mut day_number, mut weekday) = (-135_140_i64, 5);
        for year in 1600..2400 {
            let mut day_of_year = 0;
            for month in 0..12 {
                let length =
                    [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
                for day in 0..length[month] as usize {
                    let at = |second: i64| (day_number * 86_400 + second) * 1_000_000;
                    let expected = |s, m, h| [s, m, h, weekday, day, month, day_of_year];
                    assert_eq!(places(at(0)), expected(0, 0, 0), "{year}-{month}-{day}");
                    assert_eq!(places(at(86_400) - 1), expected(59, 59, 23));
                    assert_eq!(places(at(23 * 3600)), expected(0, 0, 23));
                    day_number += 1;
                    weekday = (weekday + 1) % 7;
                    day_of_year += 1;
                }
            }
        }
    }

    #[test]
    fn extreme_times_have_features_between_minus_one_and_one() {
        for time in [i64::MIN, i64::MIN + 1, -1, 0, i64::MAX] {
            let mut features = [f32::NAN; FEATURES];
            write_features(time, 0.5, &mut features);
            assert!(features.iter().all(|f| (-1.0..=1.0).contains(f)), "{time}: {features:?}");
        }
    }

    #[test]
    fn p1_golden_features_of_a_time() {
        // 2024-02-29 12:34:56.789, a Thursday, the 60th day of its year.
        let time = 1_709_210_096_789_000;
        assert_eq!(places(time), [56, 34, 12, 3, 28, 1, 59]);
        let mut features = [0.0; FEATURES];
        write_features(time, -1.25, &mut features);
        let angle = |place: f64, period: f64| (std::f64::consts::TAU * place / period).sin_cos();
        let cycles =
            [(56., 60.), (34., 60.), (12., 24.), (3., 7.), (28., 31.), (1., 12.), (59., 366.)];
        for (cycle, (place, period)) in cycles.into_iter().enumerate() {
            let (sine, cosine) = angle(place, period);
            assert!((f64::from(features[2 * cycle]) - sine).abs() < 1e-6);
            assert!((f64::from(features[2 * cycle + 1]) - cosine).abs() < 1e-6);
        }
        assert_eq!(features[14], -1.25);
    }
}
