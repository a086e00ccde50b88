//! The columns that are read, and their values in one batch.

use arrow_array::{Array, Float64Array, Int64Array, RecordBatch, StringViewArray};
use arrow_schema::DataType;

use crate::error::{Context, Error, Result};
use crate::prepare::schema::Column;
use crate::prepare::values::{BadValues, Normalised, Values, any_numbers, to_texts};

/// The columns that are read, each once.
#[derive(Default)]
pub(super) struct Columns(Vec<String>);

impl Columns {
    /// Returns the place of a column among those that are read; adds it if it is new.
    pub(super) fn place(&mut self, name: &str) -> usize {
        self.0.iter().position(|known| known == name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    /// Returns the names of the columns by their places.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

/// Rows of the source that were read at once.
pub(super) struct Rows<'a> {
    pub columns: &'a Columns,
    pub batch: &'a RecordBatch,
    /// The number of rows before them.
    pub first: u64,
}

impl Rows<'_> {
    /// Returns the values of the column at `place` as texts.
    pub(super) fn texts(&self, place: usize) -> Result<StringViewArray> {
        to_texts(self.batch.column(place)).context(|| self.column(place))
    }

    /// Returns the values of the column at `place` as times in microseconds since 1970.
    pub(super) fn times(&self, place: usize, column: &Column) -> Result<Int64Array> {
        match self.checked(Values::read(self.batch.column(place), column), place)? {
            Values::Times(times) => Ok(times),
            _ => Err(Error::schema("expected times")),
        }
    }

    /// Whether the column at `place` has no type of time: its times are integers, or texts.
    pub(super) fn are_integers(&self, place: usize) -> bool {
        let kind = self.batch.column(place).data_type();
        !matches!(kind, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64)
    }

    /// Returns the values of the column at `place` as numbers.
    pub(super) fn numbers(&self, place: usize, expected: &'static str) -> Result<Float64Array> {
        if *self.batch.column(place).data_type() == DataType::Boolean {
            let message = format!("expected {expected}, found booleans; name another column");
            return Err(Error::data(message)).context(|| self.column(place));
        }
        self.checked(any_numbers(self.batch.column(place), expected), place)
    }

    /// Rejects a column with values of another kind, which no share of dropped events excuses.
    fn checked<T>(&self, read: Normalised<T>, place: usize) -> Result<T> {
        let bad: BadValues = match read.context(|| self.column(place))? {
            Ok(values) => return Ok(values),
            Err(bad) => bad,
        };
        let message = format!(
            "expected {}, found {:?} in row {}; correct the data, or name another column",
            bad.expected,
            bad.value,
            self.first + bad.row + 1
        );
        Err(Error::data(message)).context(|| self.column(place))
    }

    fn column(&self, place: usize) -> String {
        format!("column {:?}", self.columns.0[place])
    }
}
