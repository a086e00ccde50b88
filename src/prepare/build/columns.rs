//! Summarises each column while the first pass reads its table.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, UInt32Array};

use super::numbers::Numbers;
use crate::days::DAY_US;
use crate::error::{Context, Error, Result};
use crate::fold::{Moments, ZScore};
use crate::prepare::schema::{Column, Limits, TimeUnit, Written};
use crate::prepare::values::{BadValues, Values};
use crate::store::SemanticType;

/// The summary of a column.
pub(in crate::prepare) struct ColumnSummary {
    /// The column's name.
    pub name: String,
    /// The column in the schema.
    pub column: Column,
    /// The number of NULLs.
    pub null_count: u64,
    /// The statistics of its semantic type.
    pub summary: Summary,
    /// The values that cannot be read.
    bad_values: Option<BadValues>,
}

/// The values of a column in a batch: all NULL if some could not be read.
pub(super) struct ReadColumn {
    pub values: Values,
    /// The values that could not be read.
    pub bad: Option<BadValues>,
}

impl ReadColumn {
    pub(super) fn read(name: &str, column: &Column, array: &ArrayRef) -> Result<Self> {
        Ok(match Values::read(array, column).context(|| place(name))? {
            Ok(values) => Self { values, bad: None },
            Err(bad) => Self { values: Values::nulls(column, array.len()), bad: Some(bad) },
        })
    }
}

/// Statistics by semantic type, still growing.
#[derive(Clone)]
pub(in crate::prepare) enum Summary {
    Identifier,
    Numerical(Numbers),
    Timestamp {
        moments: Moments,
        min: i64,
        max: i64,
        /// Until when times have a part in the moments; `None` if all have.
        until: Option<i64>,
    },
    Boolean {
        true_count: u64,
    },
    Categorical(Dictionary),
    Text,
}

/// The categories of a column, numbered in the order of their first row.
#[derive(Clone, Default)]
pub(in crate::prepare) struct Dictionary {
    codes: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
    /// Which of them statistics may know; `None` for all.
    known: Option<Vec<bool>>,
}

impl Dictionary {
    fn code(&mut self, name: &str) -> u32 {
        if let Some(&code) = self.codes.get(name) {
            return code;
        }
        let code = self.names.len() as u32;
        self.names.push(name.into());
        self.codes.insert(name.into(), code);
        code
    }

    /// Returns the number of categories.
    pub(in crate::prepare) fn len(&self) -> usize {
        self.names.len()
    }

    /// Says which categories statistics may know: those with `codes`.
    pub(super) fn know(&mut self, codes: impl Iterator<Item = u32>) {
        let mut known = vec![false; self.names.len()];
        codes.for_each(|code| known[code as usize] = true);
        self.known = Some(known);
    }

    /// Returns the number of categories that statistics may know.
    pub(super) fn known_count(&self) -> usize {
        let count = |known: &Vec<bool>| known.iter().filter(|&&known| known).count();
        self.known.as_ref().map_or(self.names.len(), count)
    }

    /// Returns the names in the order of their bytes, the known ones first, and the place of each code
    /// in that order. So the order of rows does not change the categories.
    pub(in crate::prepare) fn sorted(&self) -> (Vec<&str>, Vec<u32>) {
        let is_later = |code: usize| self.known.as_ref().is_some_and(|known| !known[code]);
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_unstable_by_key(|&code| (is_later(code), &self.names[code]));
        let mut places = vec![0; order.len()];
        for (place, &code) in order.iter().enumerate() {
            places[code] = place as u32;
        }
        (order.iter().map(|&code| &*self.names[code]).collect(), places)
    }
}

/// The standard deviation of times of which training knows none or one: a year, in microseconds.
const YEAR_US: f64 = 31_557_600e6;

impl Summary {
    /// Whether there are no values, or no categories that statistics may know.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Numerical(numbers) => numbers.is_empty(),
            Self::Timestamp { moments, .. } => moments.count() == 0,
            Self::Categorical(dictionary) => dictionary.known_count() == 0,
            Self::Identifier | Self::Boolean { .. } | Self::Text => false,
        }
    }

    /// Whether these values, of all those of the column, are too few or too equal to scale the others.
    pub(super) fn cannot_scale(&self, all: &Self) -> bool {
        let is_scaled = match self {
            Self::Numerical(numbers) => numbers.is_scaled(),
            Self::Timestamp { moments, .. } => moments.is_scaled(),
            _ => !self.is_empty(),
        };
        let is_one_value = match all {
            Self::Numerical(numbers) => numbers.is_one_number(),
            Self::Timestamp { moments, .. } => moments.min() == moments.max(),
            _ => false,
        };
        !is_scaled && !all.is_empty() && (self.is_empty() || !is_one_value)
    }

    /// Says that these are the values known at `until`, so that they may have no scale.
    pub(super) fn restrict(&mut self, time: i64) {
        match self {
            Self::Numerical(numbers) => numbers.restrict(),
            Self::Timestamp { until, .. } => *until = Some(time),
            _ => {}
        }
    }
}

/// Returns the conversion of times to z-scores. Times of the training period that have no scale have the
/// distance from them, or from its end, in years.
pub(super) fn time_z_score(moments: &Moments, until: Option<i64>) -> ZScore {
    match until {
        Some(until) if !moments.is_scaled() => {
            let mean = if moments.count() == 0 { until as f64 } else { moments.mean() };
            ZScore { mean, std: YEAR_US }
        }
        _ => moments.z_score(),
    }
}

impl ColumnSummary {
    pub(in crate::prepare) fn new(name: &str, column: Column) -> Self {
        let moments = Moments::default();
        let summary = match column.semantic {
            SemanticType::Identifier | SemanticType::Ignored => Summary::Identifier,
            SemanticType::Numerical => Summary::Numerical(Numbers::new(column.scale)),
            SemanticType::Timestamp => {
                Summary::Timestamp { moments, min: i64::MAX, max: i64::MIN, until: None }
            }
            SemanticType::Boolean => Summary::Boolean { true_count: 0 },
            SemanticType::Categorical => Summary::Categorical(Dictionary::default()),
            SemanticType::Text => Summary::Text,
        };
        Self { name: name.to_owned(), column, null_count: 0, summary, bad_values: None }
    }

    /// Reads a batch of values; counts unreadable values for `check`, and reads the batch as NULL.
    pub(in crate::prepare) fn read(&mut self, array: &ArrayRef, first_row: u64) -> Result<Values> {
        let ReadColumn { values, bad } = ReadColumn::read(&self.name, &self.column, array)?;
        self.note(bad, first_row);
        Ok(values)
    }

    /// Counts the unreadable values of a batch for `check`.
    pub(super) fn note(&mut self, bad: Option<BadValues>, first_row: u64) {
        let Some(bad) = bad else { return };
        let (count, first) = (bad.count, BadValues { count: 0, row: first_row + bad.row, ..bad });
        self.bad_values.get_or_insert(first).count += count;
    }

    /// Adds a batch to the summary; returns the values to stage. Texts are staged by their indexes.
    pub(in crate::prepare) fn add(&mut self, values: &Values) -> ArrayRef {
        self.null_count += values.null_count() as u64;
        match (&mut self.summary, values) {
            (Summary::Numerical(summary), Values::Numbers(numbers)) => {
                numbers.iter().flatten().for_each(|number| summary.push(number));
                Arc::new(numbers.clone())
            }
            (Summary::Timestamp { moments, min, max, .. }, Values::Times(times)) => {
                for time in times.iter().flatten() {
                    moments.push(time as f64);
                    (*min, *max) = ((*min).min(time), (*max).max(time));
                }
                Arc::new(times.clone())
            }
            (Summary::Boolean { true_count }, Values::Booleans(booleans)) => {
                *true_count += booleans.true_count() as u64;
                Arc::new(booleans.clone())
            }
            (Summary::Categorical(dictionary), Values::Texts(texts)) => {
                let codes = texts.iter().map(|text| text.map(|text| dictionary.code(text)));
                Arc::new(codes.collect::<UInt32Array>())
            }
            // An identifier is staged as its NULLs alone.
            (_, Values::Texts(texts)) => {
                let present = arrow_buffer::BooleanBuffer::new_unset(texts.len());
                Arc::new(BooleanArray::new(present, texts.logical_nulls()))
            }
            (_, Values::Numbers(_) | Values::Times(_) | Values::Booleans(_)) => {
                unreachable!("values are read by the same semantic type")
            }
        }
    }

    /// Checks that all values could be read, and that 64 bits can scale the numbers.
    pub(in crate::prepare) fn check(&self) -> Result<()> {
        if let Some(bad) = &self.bad_values {
            return Err(Error::data(format!(
                "{} {} cannot be read as {}: expected {}, found {:?} in row {}; correct the \
                 data or the column's type",
                bad.count,
                if bad.count == 1 { "value" } else { "values" },
                self.column.semantic,
                bad.expected,
                bad.value,
                bad.row + 1
            ))
            .context(self.place()));
        }
        let numbers = match &self.summary {
            Summary::Timestamp { min, max, .. } => {
                return self.check_epoch(*min, *max).context(|| self.place());
            }
            Summary::Numerical(numbers) => numbers,
            _ => return Ok(()),
        };
        let (moments, (min, max)) = (&numbers.moments, numbers.range());
        let (found, direction) = match (moments.mean().is_finite(), moments.std()) {
            (true, std) if std.is_finite() && (std > 0.0 || moments.min() == moments.max()) => {
                return Ok(());
            }
            (true, 0.0) => ("a standard deviation that 64 bits round to 0", "up"),
            _ => ("no finite mean and standard deviation", "down"),
        };
        Err(Error::data(format!(
            "the numbers from {min:e} to {max:e} have {found}; scale them {direction}, or make the \
             column categorical or text"
        ))
        .context(self.place()))
    }

    /// Checks that not all times that are steps since 1970 lie on its first day, as years do if they
    /// are read as seconds.
    fn check_epoch(&self, min: i64, max: i64) -> Result<()> {
        let Some(step) = self.column.unit.and_then(TimeUnit::microseconds) else { return Ok(()) };
        // A column of zeros says nothing.
        if min > max || min < 0 || max == 0 || max >= DAY_US {
            return Ok(());
        }
        let other = match self.column.written {
            Written::InColumns => ", or make the column numerical",
            Written::AsTime | Written::InFields => "",
        };
        Err(Error::data(format!(
            "every time is on 1970-01-01, the day on which counting begins, as {} would be; correct \
             the unit, as in {}{other}",
            max / step,
            self.column.written.time_with_unit(TimeUnit::Year)
        )))
    }

    /// Checks the number of categories after each batch, to bound the memory.
    pub(in crate::prepare) fn check_categories(&self, limits: &Limits) -> Result<()> {
        if let Summary::Categorical(dictionary) = &self.summary
            && dictionary.len() > limits.categories as usize
        {
            return Err(Error::limit(format!(
                "{} categories or more, expected at most {}; make the column text, or raise \
                 limits.categories",
                dictionary.len(),
                limits.categories
            ))
            .context(self.place()));
        }
        Ok(())
    }

    fn place(&self) -> String {
        place(&self.name)
    }
}

fn place(name: &str) -> String {
    format!("column {name:?}")
}
