use std::sync::Arc;

use arrow_array::{Decimal128Array, Float64Array, StringArray, UInt64Array};

use super::*;

fn profiled(array: ArrayRef) -> Profile {
    let data_type = array.data_type().clone();
    let column = SourceColumn { name: "c".into(), data_type, declared: None };
    let mut profile = Profile::new(&column, Keep::All);
    profile.add(&array).unwrap();
    profile.values.settle();
    profile
}

fn text(texts: &[&str]) -> Profile {
    profiled(Arc::new(StringArray::from(texts.to_vec())))
}

#[test]
fn texts_are_counted_by_the_types_they_match() {
    let integers = text(&["0", "-7", "9223372036854775807"]);
    assert_eq!((integers.integers, integers.range), (3, Some((-7, i64::MAX))));
    let reals = text(&["1.5", "-.5", "1e3", "+2", "9223372036854775808", " 3 "]);
    assert_eq!((reals.numbers, reals.integers, reals.coded), (6, 1, 1));
    let codes = text(&["007", "00", "-0"]);
    assert_eq!((codes.numbers, codes.integers, codes.coded), (3, 0, 2));
    assert_eq!(text(&["1.0", "-7.0", "0.0", "07.0", "1.00", ".0", "1"]).pointed, 3);
    assert_eq!(text(&["inf", "NaN", "1e999", "", "-", "1,5", "0x10"]).numbers, 0);
    assert_eq!(text(&["1,5", "-0,25", "1.234,5", "1,", ",5", "1,2,3", "a,5"]).comma_numbers, 3);
    assert_eq!(text(&["true", "F", "Yes", "no", "y", "ja"]).booleans, 4);
    assert_eq!(text(&["0", "1", "1.0", "0.0", "2"]).bits, 4);
    let times = ["1950-05-13", "2020-01-01 12:00:00", "2020-01-01T12:00:00.5+02:00"];
    assert_eq!(text(&times).times, 3);
    let others = ["1950-13-13", "1950-5-13", "12:00:00", "1:50.600", "2020-01-01x", "20200101"];
    assert_eq!(text(&others).times, 0);
    let odd = ["01/05/2021", "5.1.2021", "2021/5/1 12:00", "31-12-1999", "1/5/21", "1950-5-13"];
    assert_eq!((text(&odd).times, text(&odd).odd_dates), (0, 6));
    let others = ["1.2.3", "13/13/2021", "1/2", "10.0.0.1", "2021", "32/1/2021", "1.5.21", "a"];
    assert_eq!(text(&others).odd_dates, 0);
}

#[test]
fn equal_values_of_all_types_have_the_same_hash() {
    let integers = profiled(Arc::new(Int64Array::from(vec![1, 2, -3])));
    let words = text(&["1", "2", "-3", "01"]);
    let reals = profiled(Arc::new(Float64Array::from(vec![1.0, 2.0, 2.5])));
    assert_eq!(integers.values.missing_from(&words.values), 0);
    assert_eq!(words.values.missing_from(&integers.values), 1);
    assert_eq!(reals.values.missing_from(&integers.values), 1);
    let great = profiled(Arc::new(UInt64Array::from(vec![1, u64::MAX, u64::MAX - 1])));
    let digits = text(&["18446744073709551615", "18446744073709551614", "1"]);
    assert_eq!(great.values.missing_from(&digits.values), 0);
    assert_eq!((great.values.count(), great.is_key()), (Some(3), true));
    let wide = Decimal128Array::from_iter_values([100, 1_844_674_407_370_955_161_500]);
    let wide = profiled(Arc::new(wide.with_precision_and_scale(38, 2).unwrap()));
    assert_eq!(wide.values.missing_from(&great.values), 0);
    assert_eq!((wide.whole, wide.numbers, wide.nulls, wide.is_key()), (2, 2, 0, true));
}

#[test]
fn floats_are_keys_if_none_has_a_fraction() {
    let floats = |values: Vec<Option<f64>>| profiled(Arc::new(Float64Array::from(values)));
    assert!(floats(vec![Some(1.0), Some(-0.0), Some(1e15)]).is_key());
    assert!(!floats(vec![Some(1.0), Some(2.5)]).is_key());
    assert!(!floats(vec![Some(1.0), Some(f64::INFINITY)]).is_key());
    let gaps = floats(vec![Some(1.0), None, Some(f64::NAN)]);
    assert_eq!((gaps.nulls, gaps.numbers, gaps.whole, gaps.bits), (1, 1, 1, 1));
}

#[test]
fn distinct_over_the_limit_drops_values_but_keeps_repeats() {
    let mut distinct = Distinct::new(Keep::Few(10));
    (0..40_000).for_each(|i| distinct.add(mix(i % 20_000)));
    distinct.settle();
    assert_eq!((distinct.count(), distinct.overflowed), (None, true));
    let mut distinct = Distinct::new(Keep::Few(10));
    (0..40_000).for_each(|i| distinct.add(mix(i % 10)));
    distinct.settle();
    assert_eq!((distinct.count(), distinct.repeats), (Some(10), true));
}
