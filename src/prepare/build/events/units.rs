//! Whether times have the unit that the schema gives them.

use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::prepare::schema::TimeUnit;

/// The years 1980 to 2100, in microseconds.
const USUAL_US: RangeInclusive<i128> = 315_532_800_000_000..=4_102_444_800_000_000;

/// The units from the finest to the coarsest.
const UNITS: [TimeUnit; 3] = [TimeUnit::Microsecond, TimeUnit::Millisecond, TimeUnit::Second];

/// By how many units the right one is coarser, or finer, than the one that was given.
const SHIFTS: [i32; 4] = [1, 2, -1, -2];

/// Of a hundred times, those that must fit another unit, and not their own, to be refused.
const SHARE: u64 = 99;

/// Counts times that would be usual ones in another unit.
#[derive(Clone, Default)]
pub(super) struct UnitCheck {
    count: u64,
    /// The times that would be usual ones in the unit of each shift, and the first of them.
    shifted: [(u64, i64); 4],
}

impl UnitCheck {
    /// Counts a time that was given as an integer.
    pub(super) fn see(&mut self, time_us: i64) {
        self.count += 1;
        let time = i128::from(time_us);
        if USUAL_US.contains(&time) {
            return;
        }
        for (shift, (count, first)) in SHIFTS.into_iter().zip(&mut self.shifted) {
            let factor = 1000_i128.pow(shift.unsigned_abs());
            if USUAL_US.contains(&if shift > 0 { time * factor } else { time / factor }) {
                *first = if *count == 0 { time_us } else { *first };
                *count += 1;
            }
        }
    }

    /// Adds the times of later rows.
    pub(super) fn merge(&mut self, later: &Self) {
        self.count += later.count;
        for ((count, first), (more, first_of_more)) in self.shifted.iter_mut().zip(later.shifted) {
            *first = if *count == 0 { first_of_more } else { *first };
            *count += more;
        }
    }

    /// Rejects times that have another unit; `setting` is where the schema gives it.
    pub(super) fn check(&self, unit: Option<TimeUnit>, setting: &str) -> Result<()> {
        let Some((unit, step)) = unit.and_then(|unit| Some((unit, unit.microseconds()?))) else {
            return Ok(());
        };
        let place = UNITS.iter().position(|known| *known == unit).unwrap_or_default();
        let is_most = |count: u64| count > 0 && count * 100 >= self.count * SHARE;
        let found = SHIFTS.into_iter().zip(self.shifted).find(|(_, (count, _))| is_most(*count));
        let Some((shift, (_, first))) = found else { return Ok(()) };
        let right = usize::try_from(place as i32 + shift).ok().and_then(|at| UNITS.get(at));
        let (words, remedy) = match right {
            Some(right) => {
                (right.values(), format!("write unit = {:?} in {setting}", right.name()))
            }
            None => (
                "smaller steps",
                format!("divide them in the source by {}", 1000_u64.pow(shift.unsigned_abs())),
            ),
        };
        Err(Error::data(format!(
            "expected {}, found numbers such as {}, which could be {words} in the years 1980 to 2100; \
             {remedy}, or, if they count from another moment, add that moment to them in the source",
            unit.values(),
            first / step
        )))
    }
}
