//! Statistics of what was known at the end of the training period.
//!
//! Mean, standard deviation, quantiles and categories of a column tell a model about every row that they
//! are made of. So rows of the validation and test years have no part in them, where there is a period
//! of training: up to the time in the schema, or to the end of the earliest recorded train split. Where
//! too little was known by then to scale a column, it has a fixed scale, which depends on no later row.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, RecordBatch};

use super::columns::{ColumnSummary, Summary};
use super::first_pass::Ingested;
use super::records::staged;
use super::row_numbers::RowNumbers;
use super::tasks::Derived;
use crate::error::Result;
use crate::fold::Moments;
use crate::prepare::schema::{Known, Schema, Table};
use crate::store::StatisticsUntil;

/// Returns until when rows have a part in statistics; `None` if all of them have.
pub(super) fn statistics_until(
    schema: &Schema,
    derived_tasks: &HashMap<String, Derived>,
) -> Result<Option<StatisticsUntil>> {
    if let Some(time_us) = schema.statistics_until()? {
        return Ok(Some(StatisticsUntil { time_us, task: None }));
    }
    let ends = schema.tasks.iter().filter_map(|task| {
        let time_us = derived_tasks.get(&task.name)?.train_end()?;
        Some(StatisticsUntil { time_us, task: Some(task.name.clone()) })
    });
    Ok(ends.min_by_key(|until| until.time_us))
}

/// The rows of a table that was read, and when they came to be known.
pub(super) struct DatedTable<'a> {
    pub table: &'a Table,
    /// None if all rows are always visible.
    pub times: Option<&'a [i64]>,
    /// The times in each column that says when others are known.
    pub known_times: &'a [RowNumbers<i64>],
}

/// Takes what was known later than `until` out of the statistics of a table. Returns the columns of which
/// too little was known to scale them.
///
/// # Cost
/// Reads the staging file once more.
pub(super) fn restrict(
    read: &mut Ingested,
    until: i64,
    dated: &DatedTable<'_>,
) -> Result<Vec<String>> {
    let mut columns: Vec<_> =
        read.columns.iter().map(|column| Restricted::new(column, until, dated)).collect();
    if columns.iter().all(|column| matches!(column.statistics, Statistics::None)) {
        return Ok(Vec::new());
    }
    let mut first_row = 0;
    for batch in staged(&read.staged)? {
        let batch: RecordBatch = batch?;
        for (column, array) in columns.iter_mut().zip(batch.columns()) {
            column.add(array, first_row);
        }
        first_row += batch.num_rows();
    }
    let mut unscaled = Vec::new();
    for (column, restricted) in read.columns.iter_mut().zip(columns) {
        if !restricted.statistics.replace(&mut column.summary, until) {
            unscaled.push(column.name.clone());
        }
    }
    Ok(unscaled)
}

/// The statistics of the known values of a column, still growing.
enum Statistics {
    None,
    Numbers(super::numbers::Numbers),
    Times(Moments),
    True(u64),
    Codes(Vec<u32>),
}

struct Restricted<'a> {
    until: i64,
    dated: &'a DatedTable<'a>,
    /// The time from the row to its value, and the column of times at which it is known.
    delay: i64,
    known_at: Option<&'a [i64]>,
    statistics: Statistics,
}

impl<'a> Restricted<'a> {
    fn new(column: &ColumnSummary, until: i64, dated: &'a DatedTable<'a>) -> Self {
        let (delay, known_at) = match &column.column.known {
            Some(Known::Delay(delay)) => (delay.0, None),
            Some(Known::At(time)) => {
                let place = dated.table.known_times().iter().position(|known| *known == time);
                (0, place.map(|place| &*dated.known_times[place]))
            }
            None => (0, None),
        };
        let statistics = match &column.summary {
            Summary::Numerical(numbers) => Statistics::Numbers(numbers.emptied()),
            Summary::Timestamp { .. } => Statistics::Times(Moments::default()),
            Summary::Boolean { .. } => Statistics::True(0),
            Summary::Categorical(_) => Statistics::Codes(Vec::new()),
            Summary::Identifier | Summary::Text => Statistics::None,
        };
        Self { until, dated, delay, known_at, statistics }
    }

    fn is_known(&self, row: usize) -> bool {
        let is_visible = |times: &[i64]| times[row].saturating_add(self.delay) <= self.until;
        self.dated.times.is_none_or(is_visible)
            && self.known_at.is_none_or(|times| times[row] <= self.until)
    }

    fn add(&mut self, array: &ArrayRef, first_row: usize) {
        let known: Vec<usize> = (0..array.len())
            .filter(|&row| array.is_valid(row) && self.is_known(first_row + row))
            .collect();
        match &mut self.statistics {
            Statistics::None => {}
            Statistics::Numbers(numbers) => {
                let array = array.as_primitive::<Float64Type>();
                known.iter().for_each(|&row| numbers.push(array.value(row)));
            }
            Statistics::Times(moments) => {
                let array = array.as_primitive::<Int64Type>();
                let times = known.iter().map(|&row| array.value(row));
                // A later time is not known before it comes.
                times.filter(|&time| time <= self.until).for_each(|time| moments.push(time as f64));
            }
            Statistics::True(count) => {
                let array = array.as_boolean();
                *count += known.iter().filter(|&&row| array.value(row)).count() as u64;
            }
            Statistics::Codes(codes) => {
                let array = array.as_primitive::<UInt32Type>();
                codes.extend(known.iter().map(|&row| array.value(row)));
                codes.sort_unstable();
                codes.dedup();
            }
        }
    }
}

impl Statistics {
    /// Puts these statistics in the place of those of all rows; false if they cannot scale all rows.
    fn replace(self, all: &mut Summary, until: i64) -> bool {
        let known = match (self, &*all) {
            (Self::Numbers(known), _) => Summary::Numerical(known),
            // The least and the greatest time stay: they say of which times the data are.
            (Self::Times(moments), &Summary::Timestamp { min, max, .. }) => {
                Summary::Timestamp { moments, min, max, until: None }
            }
            (Self::True(true_count), _) => Summary::Boolean { true_count },
            (Self::Codes(codes), Summary::Categorical(dictionary)) => {
                let mut dictionary = dictionary.clone();
                dictionary.know(codes.into_iter());
                Summary::Categorical(dictionary)
            }
            _ => return true,
        };
        let is_scaled = !known.cannot_scale(all);
        *all = known;
        all.restrict(until);
        is_scaled
    }
}
