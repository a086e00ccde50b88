//! The compact form of a batch, expanded on the device.

use std::f64::consts::TAU;
use std::sync::LazyLock;

use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor};
use headwater::Result;
use headwater::fold::ZScore;
use headwater::store::{ColumnStats, SemanticType, Store};

use crate::batch::Host;

/// The features of a timestamp: sine and cosine of its place in each cycle, and its z-score.
const FEATURES: usize = 15;

/// The number of places of each cycle: second, minute, hour, weekday, day of month, month, day of year.
const CYCLES: [usize; 7] = [60, 60, 24, 7, 31, 12, 366];

const MICROSECONDS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// 400 years, after which the calendar repeats itself.
const DAYS_PER_ERA: i64 = 146_097;

/// Added to a day since 1970, it makes a day since 1 March of a year before every possible time, the first
/// of an era: all divisions are of positive numbers.
const FIRST_DAY: i64 = 719_468 + 800 * DAYS_PER_ERA;

/// Ends the edges of a sequence.
const NO_PLACE: u16 = u16::MAX;

/// Sine and cosine of every place of every cycle, cycle by cycle. Those of libm are the same on every
/// machine, and so the sampler's own.
static CIRCLE: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let angle = |place: usize, period: usize| TAU * place as f64 / period as f64;
    let angles = CYCLES.iter().flat_map(|&period| (0..period).map(move |p| angle(p, period)));
    angles.flat_map(|angle| [libm::sin(angle) as f32, libm::cos(angle) as f32]).collect()
});

/// The z-scores of a store's timestamp columns, which the compact form of a batch leaves to its reader.
#[derive(Clone, Debug)]
pub struct TimeScales(Vec<Option<ZScore>>);

impl TimeScales {
    /// Returns the scales of a store.
    #[must_use]
    pub fn new(store: &Store) -> Self {
        let metadata = store.metadata();
        let mut scales = vec![None; metadata.embedding.column_count as usize];
        let targets = metadata.tasks.iter().map(|task| metadata.target_column(task));
        for column in metadata.tables.iter().flat_map(|table| &table.columns).chain(targets) {
            if let ColumnStats::Timestamp { mean_us, std_us, .. } = column.stats {
                scales[column.index as usize] = Some(ZScore { mean: mean_us, std: std_us });
            }
        }
        Self(scales)
    }
}

/// Returns the features of all timestamps, B S 15.
///
/// The host divides the microseconds, because most devices have no 64-bit numbers, and makes the z-score,
/// which needs f64. The device does the calendar, and looks the sines up.
pub(crate) fn timestamp_values(host: &Host<'_>, scales: &TimeScales) -> Result<Tensor<3>> {
    let [b, s] = host.shape("timestamp_us")?;
    let (times, columns) =
        (host.elements::<i64>("timestamp_us")?, host.elements::<i32>("column_ids")?);
    let seconds = times.iter().map(|time| time.div_euclid(MICROSECONDS_PER_SECOND));
    let (days, of_day): (Vec<i32>, Vec<i32>) = seconds
        .map(|s| (s.div_euclid(SECONDS_PER_DAY), s.rem_euclid(SECONDS_PER_DAY)))
        .map(|(day, second)| ((day + FIRST_DAY) as i32, second as i32))
        .unzip();
    let score = |(&time, &column): (&i64, &i32)| {
        let scale = scales.0.get(column as usize).copied().flatten();
        scale.map_or(0.0, |scale| scale.of(time as f64))
    };
    let scores = host.floats([b, s, 1], times.iter().zip(columns).map(score).collect());
    let places = places(host.ints_of([b, s], days), host.ints_of([b, s], of_day));
    let circle = host.floats([CIRCLE.len() / 2, 2], CIRCLE.clone());
    let waves = circle.select(0, places.reshape([b * s * CYCLES.len()]));
    let features = Tensor::cat(vec![waves.reshape([b, s, FEATURES - 1]), scores], 2);
    let kinds = host.ints::<2, i8>("semantic_types", i32::from)?;
    let has_no_time = kinds
        .not_equal_scalar(SemanticType::Timestamp as i32)
        .bool_or(host.ints::<2, u8>("is_null", i32::from)?.equal_scalar(1));
    Ok(features.mask_fill(has_no_time.unsqueeze_dim::<3>(2).expand([b, s, FEATURES]), 0.0))
}

/// Returns each time's places in the seven cycles, as rows of the circle, B S 7.
///
/// The years of the calendar begin in March here, so that a leap day is the last of its year.
fn places(days: Tensor<2, Int>, second: Tensor<2, Int>) -> Tensor<3, Int> {
    let rest = |tensor: &Tensor<2, Int>, period: i32| tensor.clone().remainder_scalar(period);
    let part = |tensor: &Tensor<2, Int>, period: i32| tensor.clone().div_scalar(period);
    let day = rest(&days, DAYS_PER_ERA as i32);
    let leap_days = part(&day, 1460) - part(&day, 36_524) + part(&day, 146_096);
    let year = part(&(day.clone() - leap_days), 365);
    let of_year = day - year.clone() * 365 - part(&year, 4) + part(&year, 100);
    let month = part(&(of_year.clone() * 5 + 2), 153);
    let of_month = of_year.clone() - part(&(month.clone() * 153 + 2), 5);
    let is_century = rest(&year, 100).equal_scalar(0).bool_and(year.clone().not_equal_scalar(0));
    let leap = rest(&year, 4).equal_scalar(0).bool_and(is_century.bool_not()).int();
    // January and February end the year that began in the March before.
    let is_late = month.clone().greater_equal_scalar(10).int();
    let from_january = of_year + 59 + leap.clone() - is_late * (leap + 365);
    let places = [
        rest(&second, 60),
        rest(&part(&second, 60), 60),
        part(&second, 3600),
        // The first day was a Wednesday.
        rest(&(days + 2), 7),
        of_month,
        rest(&(month + 2), 12),
        from_january,
    ];
    let mut start = 0;
    let on_circle = places.into_iter().zip(CYCLES).map(|(place, period)| {
        let own = place + start;
        start += period as i32;
        own
    });
    Tensor::stack(on_circle.collect(), 2)
}

/// Returns the matrix of references, B R R.
pub(crate) fn fk_adj(host: &Host<'_>) -> Result<Tensor<3, Bool>> {
    let [b, edges, _] = host.shape("fk_edges")?;
    let [_, rows] = host.shape("row_hop")?;
    // One place more than the matrix takes what follows the last edge.
    let place = |edge: &[u16]| match edge[0] {
        NO_PLACE => (rows * rows) as i32,
        child => (usize::from(child) * rows + usize::from(edge[1])) as i32,
    };
    let places = host.elements::<u16>("fk_edges")?.chunks_exact(2).map(place).collect();
    let places = host.ints_of([b, edges], places);
    let empty = host.ints_of([b, rows * rows + 1], vec![0; b * (rows * rows + 1)]);
    let ones = places.ones_like();
    let counts = empty.scatter(1, places, ones, IndexingUpdateOp::Add);
    let matrix = counts.narrow(1, 0, rows * rows).reshape([b, rows, rows]);
    Ok(matrix.not_equal_scalar(0))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{DType, Device, TensorData};

    use super::*;

    /// Returns the places on the circle of the first second of these days since 1970.
    fn places_of(days: &[i64]) -> Vec<i32> {
        let shape = [1, days.len()];
        let ints = |values: Vec<i32>| {
            let options = (&Device::flex(), DType::I32);
            Tensor::<2, Int>::from_data(TensorData::new(values, shape), options)
        };
        let shifted = days.iter().map(|day| (day + FIRST_DAY) as i32).collect();
        places(ints(shifted), ints(vec![0; days.len()])).try_into_vec_as().unwrap()
    }

    /// Counts the days one by one.
    #[test]
    fn every_day_of_eight_centuries_has_its_places() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut days, mut expected) = (Vec::new(), Vec::new());
        // 1600-01-01 was a Saturday.
        let (mut day_number, mut weekday) = (-135_140_i64, 5);
        for year in 1600..2400 {
            let february = 28 + i32::from(is_leap(year));
            let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let mut of_year = 0;
            for (month, length) in (0..).zip(lengths) {
                for day in 0..length {
                    days.push(day_number);
                    let own = [0, 0, 0, weekday, day, month, of_year];
                    expected
                        .extend(own.into_iter().zip(starts()).map(|(place, start)| place + start));
                    day_number += 1;
                    weekday = (weekday + 1) % 7;
                    of_year += 1;
                }
            }
        }
        assert_eq!(places_of(&days), expected);
    }

    fn starts() -> impl Iterator<Item = i32> {
        CYCLES.into_iter().scan(0, |next, period| {
            let start = *next;
            *next += period as i32;
            Some(start)
        })
    }

    #[test]
    fn the_days_of_every_time_lie_on_the_circle() {
        let last = i64::MAX / MICROSECONDS_PER_SECOND / SECONDS_PER_DAY;
        let days = [-last - 1, -last, -1, 0, 1, last];
        for places in places_of(&days).chunks_exact(CYCLES.len()) {
            for ((&place, start), period) in places.iter().zip(starts()).zip(CYCLES) {
                assert!((start..start + period as i32).contains(&place), "{places:?}");
            }
        }
    }
}
