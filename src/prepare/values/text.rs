//! Converts values to text: equal values of different types have the same text.

use std::fmt::Display;

use arrow_array::builder::StringViewBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray, StringViewArray};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::DataType;

use super::cast::{BadValues, arrow_error, convert, convert_all, unpack, wrong_type};
use crate::error::{Error, Result};

/// Converts the array to text, for keys, categories and texts.
///
/// A value has the same text in every type, so a key that is an integer in one table equals a float
/// or a decimal in another: numbers have no fraction of zeros, times are in UTC and have no time of
/// day at midnight, bytes are hexadecimal digits. Texts stay unchanged: `007` and `1.0` may be
/// codes.
pub(in crate::prepare) fn to_texts(array: &ArrayRef) -> Result<StringViewArray> {
    let array = unpack(array)?;
    match array.data_type() {
        DataType::Utf8View => Ok(array.as_string_view().clone()),
        DataType::Float64 => Ok(float_texts(array.as_primitive::<Float64Type>())),
        DataType::Float16 | DataType::Float32 => {
            let numbers = convert(&array, &DataType::Float32)?;
            Ok(float_texts(numbers.as_primitive::<Float32Type>()))
        }
        kind if kind.is_decimal() => Ok(trimmed(&text(&array)?, |text| match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => text,
        })),
        DataType::Date32 | DataType::Date64 => Ok(without_midnight(&text(&array)?)),
        DataType::Timestamp(unit, zone) => {
            let utc = zone.as_ref().map(|_| "+00:00".into());
            let utc = convert(&array, &DataType::Timestamp(*unit, utc))?;
            let naive = convert(&utc, &DataType::Timestamp(*unit, None))?;
            Ok(without_midnight(&text(&naive)?))
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let options = FormatOptions::default();
            let formatter = ArrayFormatter::try_new(&array, &options).map_err(arrow_error)?;
            let mut builder = StringViewBuilder::with_capacity(array.len());
            for row in 0..array.len() {
                match array.is_null(row) {
                    true => builder.append_null(),
                    // Without the prefix the byte 0x31 would equal the number 31.
                    false => builder.append_value(format!("0x{}", formatter.value(row))),
                }
            }
            Ok(builder.finish())
        }
        kind if kind.is_nested() => Err(wrong_type(&array, "text")),
        _ => text(&array),
    }
}

/// Returns the text of a float: all digits of an integer, otherwise the shortest exact text.
pub(in crate::prepare) fn float_text<F: Into<f64> + Display + Copy>(number: F) -> String {
    let exact: f64 = number.into();
    match exact.fract() == 0.0 {
        // The sum turns minus zero into zero.
        true => format!("{:.0}", exact + 0.0),
        false => number.to_string(),
    }
}

fn float_texts<T: ArrowPrimitiveType>(numbers: &PrimitiveArray<T>) -> StringViewArray
where
    T::Native: Into<f64> + Display,
{
    numbers.iter().map(|number| number.map(float_text)).collect()
}

fn without_midnight(texts: &StringViewArray) -> StringViewArray {
    trimmed(texts, |text| text.strip_suffix("T00:00:00").unwrap_or(text))
}

fn trimmed(texts: &StringViewArray, trim: impl Fn(&str) -> &str) -> StringViewArray {
    texts.iter().map(|text| text.map(&trim)).collect()
}

/// Converts the array to text as Arrow does.
fn text(array: &ArrayRef) -> Result<StringViewArray> {
    match convert_all(array, &DataType::Utf8View, "a value that can be written as text")? {
        Ok(texts) => Ok(texts.as_string_view().clone()),
        Err(BadValues { count, row, value, expected }) => Err(Error::data(format!(
            "expected {expected}, found {value:?} in row {} of a batch ({count} such values); \
             correct the data, or leave the column out of the schema",
            row + 1
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{
        BinaryArray, BinaryViewArray, Date32Array, Date64Array, Decimal128Array, Float32Array,
        Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
        TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
    };

    use super::*;

    /// The texts of an array without NULLs.
    fn texts(array: impl Array + 'static) -> Vec<String> {
        let array: ArrayRef = Arc::new(array);
        to_texts(&array).unwrap().iter().map(|text| text.unwrap().to_owned()).collect()
    }

    #[test]
    fn a_number_has_the_same_text_in_every_type() {
        let integers = ["-2", "0", "5", "10"];
        assert_eq!(texts(Int64Array::from(vec![-2, 0, 5, 10])), integers);
        assert_eq!(texts(Float64Array::from(vec![-2.0, -0.0, 5.0, 10.0])), integers);
        assert_eq!(texts(Float32Array::from(vec![-2.0, -0.0, 5.0, 10.0])), integers);
        let halves =
            arrow_cast::cast(&Float32Array::from(vec![-2.0, -0.0, 5.0, 10.0]), &DataType::Float16);
        assert_eq!(
            texts(halves.unwrap().as_primitive::<arrow_array::types::Float16Type>().clone()),
            integers
        );
        for scale in [0, 1, 3] {
            let scaled = [-2, 0, 5, 10].map(|value| value * 10_i128.pow(scale));
            let decimals = Decimal128Array::from_iter_values(scaled);
            let decimals = decimals.with_precision_and_scale(30, scale as i8).unwrap();
            assert_eq!(texts(decimals), integers, "scale {scale}");
        }
        let tens = Decimal128Array::from_iter_values([1]).with_precision_and_scale(5, -1).unwrap();
        assert_eq!(texts(tens), ["10"], "these zeros are not a fraction");
        let fractions = ["-0.5", "0.1", "12.25"];
        assert_eq!(texts(Float64Array::from(vec![-0.5, 0.1, 12.25])), fractions);
        assert_eq!(texts(Float32Array::from(vec![-0.5, 0.1, 12.25])), fractions);
        let decimals = Decimal128Array::from_iter_values([-500, 100, 12250]);
        assert_eq!(texts(decimals.with_precision_and_scale(9, 3).unwrap()), fractions);
        // All digits, also those beyond the precision of a float.
        assert_eq!(texts(Float64Array::from(vec![2_f64.powi(60)])), ["1152921504606846976"]);
        assert_eq!(texts(Float32Array::from(vec![2_f32.powi(30) + 128.0])), ["1073741952"]);
        assert_eq!(texts(UInt64Array::from(vec![u64::MAX])), ["18446744073709551615"]);
        assert_eq!(texts(StringArray::from(vec!["1.0", "007", "1e3"])), ["1.0", "007", "1e3"]);
    }

    #[test]
    fn a_time_has_the_same_text_in_every_unit() {
        let midnight = 1_500_076_800;
        let dates = ["2017-07-15"];
        assert_eq!(texts(Date32Array::from(vec![17_362])), dates);
        assert_eq!(texts(Date64Array::from(vec![midnight * 1_000])), dates);
        assert_eq!(texts(TimestampSecondArray::from(vec![midnight])), dates);
        assert_eq!(texts(TimestampMicrosecondArray::from(vec![midnight * 1_000_000])), dates);
        let zoned = TimestampNanosecondArray::from(vec![midnight * 1_000_000_000]);
        assert_eq!(texts(zoned.with_timezone("+02:00")), dates);
        let halves = ["2017-07-15T00:00:00.500"];
        assert_eq!(texts(Date64Array::from(vec![midnight * 1_000 + 500])), halves);
        assert_eq!(texts(TimestampMillisecondArray::from(vec![midnight * 1_000 + 500])), halves);
        let last = TimestampNanosecondArray::from(vec![-1]).with_timezone("+02:00");
        assert_eq!(texts(last), ["1969-12-31T23:59:59.999999999"]);
    }

    #[test]
    fn a_time_without_a_text_is_an_error() {
        let far: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, i64::MAX]));
        let error = to_texts(&far).unwrap_err();
        assert!(error.to_string().contains("9223372036854775807"), "{error}");
    }

    #[test]
    fn bytes_have_the_same_text_in_every_array_type() {
        let values: [&[u8]; 2] = [b"ab", b"\xff\xfe"];
        let plain: ArrayRef = Arc::new(BinaryArray::from_iter_values(values));
        let view: ArrayRef = Arc::new(BinaryViewArray::from_iter_values(values));
        assert_eq!(to_texts(&plain).unwrap(), to_texts(&view).unwrap());
        assert_eq!(to_texts(&view).unwrap().value(1), "0xfffe");
    }

    #[test]
    fn an_instant_has_the_same_text_in_every_zone() {
        let instants = || TimestampMillisecondArray::from(vec![Some(1_500_000_000_000), None]);
        for zone in ["UTC", "+00:00", "+02:00"] {
            let zoned: ArrayRef = Arc::new(instants().with_timezone(zone));
            let texts = to_texts(&zoned).unwrap();
            assert_eq!((texts.value(0), texts.is_null(1)), ("2017-07-14T02:40:00", true), "{zone}");
        }
    }
}
