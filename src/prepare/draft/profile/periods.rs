//! Finds the units of the calendar in which all values of a column are periods.

use crate::prepare::schema::TimeUnit;
use crate::prepare::values::time_of_period;

/// The microseconds from 1970 to 1800, and to 2101: earlier and later years are other numbers.
const FROM: i64 = -5_364_662_400_000_000;
const UNTIL: i64 = 4_133_980_800_000_000;

/// For each unit of [`TimeUnit::PERIODS`] the periods so far; `None` if a value was none.
pub(in crate::prepare::draft) struct Periods([Option<Span>; TimeUnit::PERIODS.len()]);

/// The beginnings of periods, in microseconds since 1970.
#[derive(Clone, Copy)]
pub(in crate::prepare::draft) struct Span {
    count: u64,
    total: i128,
    pub(in crate::prepare::draft) first: i64,
    pub(in crate::prepare::draft) last: i64,
}

impl Span {
    const EMPTY: Self = Self { count: 0, total: 0, first: i64::MAX, last: i64::MIN };

    /// Returns the mean beginning.
    pub(in crate::prepare::draft) fn mean(&self) -> i128 {
        self.total / i128::from(self.count.max(1))
    }

    fn after(self, time: i64) -> Self {
        Self {
            count: self.count + 1,
            total: self.total + i128::from(time),
            first: self.first.min(time),
            last: self.last.max(time),
        }
    }
}

impl Default for Periods {
    fn default() -> Self {
        Self([Some(Span::EMPTY); TimeUnit::PERIODS.len()])
    }
}

impl Periods {
    /// Whether a further value may still be a period like those before it.
    pub(super) fn are_possible(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// Adds a value by its text.
    pub(super) fn add(&mut self, text: &str) {
        for (unit, span) in TimeUnit::PERIODS.into_iter().zip(&mut self.0) {
            let Some(before) = *span else { continue };
            let time =
                time_of_period(text, unit, false).filter(|time| (FROM..UNTIL).contains(time));
            *span = time.map(|time| before.after(time));
        }
    }

    /// Returns the periods, if all values are of this unit, and there are some.
    pub(in crate::prepare::draft) fn of(&self, unit: TimeUnit) -> Option<Span> {
        let place = TimeUnit::PERIODS.iter().position(|&other| other == unit)?;
        self.0[place].filter(|span| span.count > 0)
    }
}
