//! Converts Arrow arrays of any type to the few that a store has.

mod cast;
mod periods;
mod text;

use arrow_array::builder::BooleanBuilder;
use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::types::{
    Float64Type, Int64Type, TimestampMicrosecondType, TimestampNanosecondType,
};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray};
use arrow_cast::parse::string_to_datetime;
use arrow_schema::{DataType, TimeUnit as ArrowUnit};

pub(super) use cast::{BadValues, Normalised, arrow_error, convert};
pub(super) use periods::time_of_period;
use periods::whole;
pub(super) use text::{float_text, to_texts};

use cast::{convert_all, note, unpack, wrong_type};

use crate::error::{Error, Result};
use crate::prepare::schema::{Column, TimeUnit, Written};
use crate::store::{ALWAYS_VISIBLE, NEVER_VISIBLE, SEES_EVERYTHING, SemanticType};

/// The values of one column of one batch, by its semantic type.
#[derive(Clone)]
pub(super) enum Values {
    /// Numerical.
    Numbers(Float64Array),
    /// Timestamp, in microseconds.
    Times(Int64Array),
    /// Boolean.
    Booleans(BooleanArray),
    /// Identifier, categorical or text.
    Texts(StringViewArray),
}

impl Values {
    /// Reads `array` as the semantic type of `column`.
    pub(super) fn read(array: &ArrayRef, column: &Column) -> Normalised<Self> {
        Ok(match column.semantic {
            SemanticType::Numerical => numbers(array)?.map(Self::Numbers),
            SemanticType::Timestamp => {
                times(array, column)?.and_then(reject_reserved_times).map(Self::Times)
            }
            SemanticType::Boolean => booleans(array)?.map(Self::Booleans),
            SemanticType::Identifier
            | SemanticType::Categorical
            | SemanticType::Text
            | SemanticType::Ignored => Ok(Self::Texts(to_texts(array)?)),
        })
    }

    /// Checks that numbers and times are finite, as [`Values::read`] does.
    pub(super) fn checked(self) -> std::result::Result<Self, BadValues> {
        match self {
            Self::Numbers(numbers) => reject_infinite_numbers(numbers).map(Self::Numbers),
            Self::Times(times) => reject_reserved_times(times).map(Self::Times),
            other => Ok(other),
        }
    }

    /// Returns `rows` NULLs.
    pub(super) fn nulls(column: &Column, rows: usize) -> Self {
        match column.semantic {
            SemanticType::Numerical => Self::Numbers(Float64Array::new_null(rows)),
            SemanticType::Timestamp => Self::Times(Int64Array::new_null(rows)),
            SemanticType::Boolean => Self::Booleans(BooleanArray::new_null(rows)),
            SemanticType::Identifier
            | SemanticType::Categorical
            | SemanticType::Text
            | SemanticType::Ignored => Self::Texts(StringViewArray::new_null(rows)),
        }
    }

    /// Returns the number of NULLs.
    pub(super) fn null_count(&self) -> usize {
        match self {
            Self::Numbers(values) => values.null_count(),
            Self::Times(values) => values.null_count(),
            Self::Booleans(values) => values.null_count(),
            Self::Texts(values) => values.null_count(),
        }
    }

    /// Appends the identifying bytes of the value of `row`, for rows without a key.
    pub(super) fn append_identity(&self, row: usize, bytes: &mut Vec<u8>) {
        let null = match self {
            Self::Numbers(values) => values.is_null(row),
            Self::Times(values) => values.is_null(row),
            Self::Booleans(values) => values.is_null(row),
            Self::Texts(values) => values.is_null(row),
        };
        if null {
            return bytes.push(0);
        }
        bytes.push(1);
        match self {
            Self::Numbers(values) => bytes.extend_from_slice(&values.value(row).to_le_bytes()),
            Self::Times(values) => bytes.extend_from_slice(&values.value(row).to_le_bytes()),
            Self::Booleans(values) => bytes.push(u8::from(values.value(row))),
            Self::Texts(values) => {
                let text = values.value(row).as_bytes();
                bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
                bytes.extend_from_slice(text);
            }
        }
    }
}

/// Parses texts, and counts those that it cannot parse.
struct Parser<'a> {
    texts: &'a StringViewArray,
    expected: &'static str,
    bad: Option<BadValues>,
}

impl<'a> Parser<'a> {
    fn parse<T>(
        texts: &'a StringViewArray,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> std::result::Result<Vec<Option<T>>, BadValues> {
        let mut parser = Self { texts, expected, bad: None };
        let values = (0..texts.len()).map(|row| parser.value(row, &parse)).collect();
        match parser.bad {
            None => Ok(values),
            Some(bad) => Err(bad),
        }
    }

    fn value<T>(&mut self, row: usize, parse: &impl Fn(&str) -> Option<T>) -> Option<T> {
        if self.texts.is_null(row) {
            return None;
        }
        let text = self.texts.value(row);
        let value = parse(text.trim());
        if value.is_none() {
            note(&mut self.bad, row, self.expected, || text.to_owned());
        }
        value
    }
}

/// What a numerical value is.
const FINITE_NUMBER: &str = "a finite number";

fn numbers(array: &ArrayRef) -> Normalised<Float64Array> {
    Ok(any_numbers(array, FINITE_NUMBER)?.and_then(reject_infinite_numbers))
}

fn reject_infinite_numbers(numbers: Float64Array) -> std::result::Result<Float64Array, BadValues> {
    let mut bad = None;
    for (row, number) in numbers.iter().enumerate() {
        if let Some(number) = number.filter(|n| !n.is_finite()) {
            note(&mut bad, row, FINITE_NUMBER, || number.to_string());
        }
    }
    bad.map_or(Ok(numbers), Err)
}

/// Reads numbers, also those that are infinite or NaN.
pub(super) fn any_numbers(array: &ArrayRef, expected: &'static str) -> Normalised<Float64Array> {
    let array = unpack(array)?;
    match array.data_type() {
        DataType::Utf8View => {
            let parse = |text: &str| text.parse::<f64>().ok();
            let read = Parser::parse(array.as_string_view(), expected, parse);
            Ok(read.map(|values| values.into_iter().collect()))
        }
        kind if kind.is_numeric() || *kind == DataType::Boolean || *kind == DataType::Null => {
            let numbers = convert(&array, &DataType::Float64)?;
            Ok(Ok(numbers.as_primitive::<Float64Type>().clone()))
        }
        _ => Err(wrong_type(&array, "numbers")),
    }
}

fn times(array: &ArrayRef, column: &Column) -> Normalised<Int64Array> {
    const EXPECTED: &str = "a time such as 2020-01-31, 2020-01-31 12:00:00 or with a zone";
    let with_unit = |what: &str, unit| {
        let written = column.written.time_with_unit(unit);
        format!("a time such as 2020-01-31 ({what} needs its unit, as in {written})")
    };
    let array = unpack(array)?;
    if *array.data_type() == DataType::Null {
        return Ok(Ok(Int64Array::new_null(array.len())));
    }
    let parsed = |texts: &StringViewArray, expected, parse: &dyn Fn(&str) -> Option<i64>| {
        Ok(Parser::parse(texts, expected, parse).map(|values| values.into_iter().collect()))
    };
    // A timestamp has a unit of its own: the column may be one of integers in another form of the source.
    let is_timestamp = matches!(array.data_type(), DataType::Timestamp(..));
    let unit = column.unit.filter(|unit| !is_timestamp || unit.microseconds().is_none());
    match (array.data_type(), unit) {
        (kind, Some(unit)) if *kind == DataType::Utf8View || kind.is_numeric() => {
            // A number with a fraction has a text that no unit reads.
            let texts = to_texts(&array)?;
            parsed(&texts, unit.values(), &|text| match unit.microseconds() {
                Some(step) => whole(text).parse::<i64>().ok()?.checked_mul(step),
                None => time_of_period(text, unit, column.end),
            })
        }
        (DataType::Utf8View, None) => {
            let read = parsed(array.as_string_view(), EXPECTED, &time_of_text)?;
            Ok(read.map_err(|bad| match likely_period(&bad.value) {
                Some(unit) => {
                    let expected = with_unit("a year or another period", unit).into();
                    BadValues { expected, ..bad }
                }
                None if bad.value.trim().parse::<i64>().is_ok() => {
                    let expected = with_unit("an integer since 1970", TimeUnit::Second).into();
                    BadValues { expected, ..bad }
                }
                None => bad,
            }))
        }
        (DataType::Timestamp(..) | DataType::Date32 | DataType::Date64, None) => {
            let micros = DataType::Timestamp(ArrowUnit::Microsecond, None);
            let naive = match array.data_type() {
                // Dropping the zone keeps the instant, which is what the integers are.
                DataType::Timestamp(unit, Some(_)) => {
                    convert(&array, &DataType::Timestamp(*unit, Some("+00:00".into())))?
                }
                _ => array,
            };
            // Arrow would round towards 1970, not down.
            if let DataType::Timestamp(ArrowUnit::Nanosecond, _) = naive.data_type() {
                let times = naive.as_primitive::<TimestampNanosecondType>();
                return Ok(Ok(times.unary(|nanoseconds| nanoseconds.div_euclid(1_000))));
            }
            Ok(convert_all(&naive, &micros, EXPECTED)?.map(|times| {
                let times = times.as_primitive::<TimestampMicrosecondType>();
                times.reinterpret_cast::<Int64Type>()
            }))
        }
        (kind, None) if kind.is_integer() => Err(unit_missing(&array, column.written)?),
        _ => Err(wrong_type(&array, "times")),
    }
}

/// Returns the microseconds since 1970 of a time as a person writes it; `None` if it is none.
pub(super) fn time_of_text(text: &str) -> Option<i64> {
    let utc: Tz = "+00:00".parse().ok()?;
    Some(string_to_datetime(&utc, text).ok()?.timestamp_micros())
}

/// Returns the error about integers without a unit, with the units that they could have.
fn unit_missing(array: &ArrayRef, written: Written) -> Result<Error> {
    let texts = to_texts(array)?;
    let Some(first) = texts.iter().flatten().next() else {
        return Ok(wrong_type(array, "times"));
    };
    let likely = likely_period(first).unwrap_or(TimeUnit::Second);
    let others: Vec<_> =
        TimeUnit::ALL.into_iter().filter(|unit| *unit != likely).map(TimeUnit::name).collect();
    Ok(Error::schema(format!(
        "expected a time, found integers such as {first}; give their unit, as in {} (or {})",
        written.time_with_unit(likely),
        others.join(", ")
    )))
}

/// Returns the unit of the calendar that a text could be of.
fn likely_period(text: &str) -> Option<TimeUnit> {
    TimeUnit::PERIODS.into_iter().find(|unit| time_of_period(text.trim(), *unit, false).is_some())
}

/// Another value that databases use for minus infinity.
const MINUS_INFINITY: i64 = -i64::MAX;

/// Rejects the times that are reserved; databases use some of them for minus and plus infinity.
fn reject_reserved_times(times: Int64Array) -> std::result::Result<Int64Array, BadValues> {
    let mut bad = None;
    for (row, time) in times.iter().enumerate() {
        let reserved = [ALWAYS_VISIBLE, MINUS_INFINITY, NEVER_VISIBLE, SEES_EVERYTHING];
        if let Some(time) = time.filter(|time| reserved.contains(time)) {
            note(&mut bad, row, "a time that is not infinite", || time.to_string());
        }
    }
    bad.map_or(Ok(times), Err)
}

fn booleans(array: &ArrayRef) -> Normalised<BooleanArray> {
    const EXPECTED: &str = "true or false (or t/f, yes/no, y/n, 1/0)";
    let array = unpack(array)?;
    if *array.data_type() == DataType::Boolean {
        return Ok(Ok(array.as_boolean().clone()));
    }
    let texts = to_texts(&array)?;
    let read = Parser::parse(&texts, EXPECTED, |text| match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "1" | "1.0" => Some(true),
        "false" | "f" | "no" | "n" | "0" | "0.0" => Some(false),
        _ => None,
    });
    Ok(read.map(|values| {
        let mut builder = BooleanBuilder::with_capacity(values.len());
        values.into_iter().for_each(|value| builder.append_option(value));
        builder.finish()
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{NullArray, TimestampNanosecondArray};

    use super::*;

    #[test]
    fn nanoseconds_before_1970_are_rounded_down() {
        let column = Column::from(SemanticType::Timestamp);
        for zone in [None, Some("+02:00")] {
            let times = TimestampNanosecondArray::from(vec![Some(-1), Some(-1_000), None, Some(1)]);
            let array: ArrayRef = Arc::new(times.with_timezone_opt(zone));
            let Ok(Values::Times(times)) = Values::read(&array, &column).unwrap() else {
                panic!("these are times");
            };
            assert_eq!(times, Int64Array::from(vec![Some(-1), Some(-1), None, Some(0)]));
        }
    }

    #[test]
    fn a_column_of_the_type_null_is_read_as_nulls_of_any_type() {
        let array: ArrayRef = Arc::new(NullArray::new(3));
        let types = [
            SemanticType::Numerical,
            SemanticType::Timestamp,
            SemanticType::Boolean,
            SemanticType::Identifier,
            SemanticType::Categorical,
            SemanticType::Text,
        ];
        let columns = types.into_iter().map(Column::from);
        let seconds = Column { unit: Some(TimeUnit::Second), ..SemanticType::Timestamp.into() };
        let years = Column { unit: Some(TimeUnit::Year), ..SemanticType::Timestamp.into() };
        for column in columns.chain([seconds, years]) {
            let values =
                Values::read(&array, &column).unwrap().unwrap_or_else(|_| panic!("{column:?}"));
            assert_eq!(values.null_count(), 3, "{column:?}");
        }
        assert_eq!(any_numbers(&array, "a number").unwrap().unwrap().null_count(), 3);
        assert_eq!(to_texts(&array).unwrap().null_count(), 3);
    }

    #[test]
    fn p7_no_leak_by_an_infinite_time() {
        for time in [i64::MIN, -i64::MAX, i64::MAX - 1, i64::MAX] {
            let found = reject_reserved_times(Int64Array::from(vec![Some(1), None, Some(time)]));
            let bad = found.unwrap_err();
            assert_eq!((bad.count, bad.row, bad.value), (1, 2, time.to_string()));
        }
    }
}
