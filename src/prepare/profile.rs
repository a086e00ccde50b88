//! What one pass over a table tells of its columns.

use arrow::array::{Array, ArrayRef, AsArray, StringViewArray, timezone::Tz};
use arrow::compute::cast;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType};

use super::source::{Source, SourceColumn};
use crate::error::{Context, Error, Result};

/// How a source keeps a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Text,
    Integer,
    Real,
    Truth,
    Time,
    /// Lists, bytes and the like, which no semantic type takes.
    Other,
}

impl Storage {
    fn of(column: &SourceColumn) -> Self {
        let declared = column.declared.as_deref().unwrap_or_default().to_ascii_lowercase();
        if declared.contains("blob") || declared.contains("binary") {
            return Self::Other;
        }
        let inner = match &column.data_type {
            DataType::Dictionary(_, values) => values,
            DataType::RunEndEncoded(_, values) => values.data_type(),
            plain => plain,
        };
        match inner {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Boolean => Self::Truth,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Self::Time,
            // A count past the signed range is no key that people write down.
            DataType::UInt64 => Self::Real,
            DataType::Decimal128(_, 0) | DataType::Decimal256(_, 0) => Self::Integer,
            kind if kind.is_integer() => Self::Integer,
            kind if kind.is_numeric() => Self::Real,
            _ => Self::Other,
        }
    }
}

/// What the values of one column have in common.
pub(super) struct Profile {
    pub storage: Storage,
    pub rows: u64,
    pub nulls: u64,
    /// How many values are integers, written as integers are.
    pub integers: u64,
    /// How many are finite numbers, integers among them.
    pub numbers: u64,
    /// How many are a word for true or false.
    pub truths: u64,
    /// How many are 0 or 1.
    pub bits: u64,
    /// How many are points in time.
    pub times: u64,
    /// How many look like dates, and are in no form that is read.
    pub odd_dates: u64,
    /// How many are digits with a zero before them, which a number would lose.
    pub coded: u64,
    /// The least and the greatest integer.
    pub range: Option<(i64, i64)>,
    /// The sum of the integers, or of the points in time in microseconds.
    total: i128,
    /// The shortest and the longest text, in bytes.
    pub lengths: Option<(usize, usize)>,
    /// How many texts hold a space.
    pub spaced: u64,
    /// The different values.
    pub values: Distinct,
}

impl Profile {
    fn new(column: &SourceColumn, limit: Option<usize>) -> Self {
        Self {
            storage: Storage::of(column),
            rows: 0,
            nulls: 0,
            integers: 0,
            numbers: 0,
            truths: 0,
            bits: 0,
            times: 0,
            odd_dates: 0,
            coded: 0,
            range: None,
            total: 0,
            lengths: None,
            spaced: 0,
            values: Distinct::new(limit),
        }
    }

    /// How many values there are that are not NULL.
    pub(super) fn present(&self) -> u64 {
        self.rows - self.nulls
    }

    /// Whether all values (and there are some) are among those that `count` counts.
    pub(super) fn all(&self, count: u64) -> bool {
        count > 0 && count == self.present()
    }

    /// The mean of the values, where all are integers or all are points in time (in microseconds).
    pub(super) fn mean(&self) -> i128 {
        self.total / i128::from(self.present().max(1))
    }

    /// Whether no value occurs twice; as far as was counted, where that was limited.
    pub(super) fn is_unique(&self) -> bool {
        !self.values.repeats
    }

    /// Whether the values could be a table's key.
    pub(super) fn is_key(&self) -> bool {
        let countable = matches!(self.storage, Storage::Text | Storage::Integer);
        let whole = self.nulls == 0 && self.rows > 0 && !self.values.overflowed;
        countable && whole && self.is_unique()
    }

    fn add(&mut self, array: &ArrayRef) -> Result<()> {
        self.rows += array.len() as u64;
        let convert = |to: &DataType| cast(array, to).map_err(|e| Error::data(e.to_string()));
        let found = match self.storage {
            Storage::Text => convert(&DataType::Utf8View)?,
            Storage::Integer => convert(&DataType::Int64)?,
            Storage::Real => convert(&DataType::Float64)?,
            Storage::Truth => convert(&DataType::Boolean)?,
            Storage::Time => convert(&DataType::Timestamp(TimeUnit::Microsecond, None))?,
            Storage::Other => array.clone(),
        };
        let nulls = array.logical_null_count();
        self.nulls += nulls as u64;
        match self.storage {
            Storage::Text => self.add_words(found.as_string_view()),
            Storage::Integer => {
                found.as_primitive::<Int64Type>().iter().flatten().for_each(|value| {
                    self.add_integer(value);
                    self.values.add(hash_integer(value));
                });
            }
            Storage::Real => {
                found.as_primitive::<Float64Type>().iter().flatten().for_each(|v| self.add_real(v));
            }
            Storage::Truth => {
                for value in found.as_boolean().iter().flatten() {
                    self.truths += 1;
                    self.values.add(u64::from(value));
                }
            }
            Storage::Time => {
                self.times += (array.len() - nulls) as u64;
                let times = found.as_primitive::<TimestampMicrosecondType>();
                self.total += times.iter().flatten().map(i128::from).sum::<i128>();
            }
            Storage::Other => {}
        }
        Ok(())
    }

    fn add_integer(&mut self, value: i64) {
        self.integers += 1;
        self.numbers += 1;
        self.bits += u64::from(matches!(value, 0 | 1));
        self.total += i128::from(value);
        let (low, high) = self.range.unwrap_or((value, value));
        self.range = Some((low.min(value), high.max(value)));
    }

    fn add_real(&mut self, value: f64) {
        self.numbers += u64::from(value.is_finite());
        self.bits += u64::from(value == 0.0 || value == 1.0);
        self.values.add(hash_real(value));
    }

    fn add_words(&mut self, words: &StringViewArray) {
        let utc: Tz = "+00:00".parse().expect("an offset in digits is a zone");
        for word in words.iter().flatten() {
            let (low, high) = self.lengths.unwrap_or((word.len(), word.len()));
            self.lengths = Some((low.min(word.len()), high.max(word.len())));
            self.values.add(hash_word(word));
            let trimmed = word.trim();
            if let Some(integer) = canonical_integer(trimmed) {
                self.add_integer(integer);
                continue;
            }
            if let Some(number) = number(trimmed) {
                self.numbers += 1;
                self.coded += u64::from(is_coded(trimmed));
                self.bits += u64::from(matches!(trimmed, "0.0" | "1.0") && number <= 1.0);
                continue;
            }
            self.spaced += u64::from(trimmed.contains(char::is_whitespace));
            self.truths += u64::from(is_truth(trimmed));
            match time(trimmed, &utc) {
                Some(time) => {
                    self.times += 1;
                    self.total += i128::from(time);
                }
                None => self.odd_dates += u64::from(is_odd_date(trimmed)),
            }
        }
    }
}

/// Profiles the columns of one table; `limit` bounds the different values that are kept of each.
pub(super) fn profile(
    source: &dyn Source,
    table: &str,
    columns: &[SourceColumn],
    limit: impl Fn(&SourceColumn) -> Option<usize>,
) -> Result<Vec<Profile>> {
    let mut profiles: Vec<_> = columns.iter().map(|c| Profile::new(c, limit(c))).collect();
    // Bytes and lists are not even read.
    let readable = |profile: &Profile| profile.storage != Storage::Other;
    let names: Vec<_> = (columns.iter().zip(&profiles))
        .filter(|(_, profile)| readable(profile))
        .map(|(column, _)| column.name.clone())
        .collect();
    for batch in source.read(table, &names)? {
        let batch = batch?;
        let read = profiles.iter_mut().filter(|profile| readable(profile));
        for ((profile, array), name) in read.zip(batch.columns()).zip(&names) {
            profile.add(array).context(|| format!("table {table:?}: column {name:?}"))?;
        }
    }
    for profile in &mut profiles {
        profile.values.settle();
    }
    Ok(profiles)
}

/// How many rows of a column hold a value that `keys` does not.
pub(super) fn unresolved_rows(
    source: &dyn Source,
    table: &str,
    column: &SourceColumn,
    keys: &Distinct,
) -> Result<u64> {
    let mut count = 0;
    for batch in source.read(table, std::slice::from_ref(&column.name))? {
        let hashes = hashes(Storage::of(column), batch?.column(0))?;
        count += hashes.iter().filter(|&&hash| !keys.contains(hash)).count() as u64;
    }
    Ok(count)
}

/// The hashes of all values that are not NULL.
fn hashes(storage: Storage, array: &ArrayRef) -> Result<Vec<u64>> {
    let convert = |to: &DataType| cast(array, to).map_err(|e| Error::data(e.to_string()));
    Ok(match storage {
        Storage::Text => {
            let words = convert(&DataType::Utf8View)?;
            words.as_string_view().iter().flatten().map(hash_word).collect()
        }
        Storage::Integer => {
            let integers = convert(&DataType::Int64)?;
            integers.as_primitive::<Int64Type>().iter().flatten().map(hash_integer).collect()
        }
        _ => {
            let reals = convert(&DataType::Float64)?;
            reals.as_primitive::<Float64Type>().iter().flatten().map(hash_real).collect()
        }
    })
}

/// The different values of a column, as hashes, up to a limit.
pub(super) struct Distinct {
    hashes: Vec<u64>,
    limit: Option<usize>,
    settled: usize,
    /// A value came twice while all were kept.
    repeats: bool,
    /// There are more than the limit; the hashes are gone.
    pub overflowed: bool,
}

impl Distinct {
    fn new(limit: Option<usize>) -> Self {
        Self { hashes: Vec::new(), limit, settled: 0, repeats: false, overflowed: false }
    }

    fn add(&mut self, hash: u64) {
        if self.overflowed {
            return;
        }
        if self.hashes.last() == Some(&hash) {
            self.repeats = true;
            return;
        }
        self.hashes.push(hash);
        // Sorting only when the list has doubled keeps the whole at O(n log n).
        if self.hashes.len() >= 2 * self.settled.max(1 << 13) {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let before = self.hashes.len();
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.repeats |= self.hashes.len() < before;
        self.settled = self.hashes.len();
        if self.limit.is_some_and(|limit| self.settled > limit) {
            self.overflowed = true;
            self.hashes = Vec::new();
        }
    }

    /// How many there are; none where there are more than the limit.
    pub(super) fn count(&self) -> Option<u64> {
        (!self.overflowed).then_some(self.hashes.len() as u64)
    }

    /// How many are not among `keys`.
    pub(super) fn missing_from(&self, keys: &Self) -> u64 {
        self.hashes.iter().filter(|&&hash| !keys.contains(hash)).count() as u64
    }

    /// Whether each of them is one of `words`.
    pub(super) fn are_among(&self, words: &[&str]) -> bool {
        !self.overflowed
            && self.hashes.iter().all(|&hash| words.iter().any(|word| hash_word(word) == hash))
    }

    fn contains(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok()
    }
}

/// An integer and its decimal text have one hash, as they are one key.
fn hash_integer(value: i64) -> u64 {
    mix(value as u64 ^ 0x9e37_79b9_7f4a_7c15)
}

fn hash_real(value: f64) -> u64 {
    match canonical_integer(&value.to_string()) {
        Some(integer) => hash_integer(integer),
        None => mix(value.to_bits()),
    }
}

fn hash_word(word: &str) -> u64 {
    if let Some(integer) = canonical_integer(word) {
        return hash_integer(integer);
    }
    let mut hash = word.len() as u64;
    for chunk in word.as_bytes().chunks(8) {
        let mut block = [0; 8];
        block[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(block));
    }
    mix(hash)
}

/// A bijection of 64 bits that leaves no trace of their order (the finaliser of SplitMix64).
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The integer that is written in no other way than this.
fn canonical_integer(word: &str) -> Option<i64> {
    let digits = word.strip_prefix('-').unwrap_or(word).as_bytes();
    let plain = match digits {
        [b'0'] => word.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if plain { word.parse().ok() } else { None }
}

fn number(word: &str) -> Option<f64> {
    // Words such as "inf" read as numbers, too.
    let begins = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.');
    word.as_bytes().first().filter(|b| begins(b))?;
    word.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether a number's text begins with a zero that a number would lose.
fn is_coded(word: &str) -> bool {
    matches!(word.as_bytes(), [b'+', ..] | [b'0', b'0'..=b'9', ..])
}

fn is_truth(word: &str) -> bool {
    ["true", "false", "t", "f", "yes", "no"].iter().any(|truth| word.eq_ignore_ascii_case(truth))
}

/// The point in time, in microseconds, that a word is.
fn time(word: &str, zone: &Tz) -> Option<i64> {
    let shaped = word.len() >= 10
        && word.bytes().enumerate().take(10).all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let time = shaped.then(|| string_to_datetime(zone, word).ok()).flatten()?;
    Some(time.timestamp_micros())
}

/// Whether a word looks like a date that is not in the one form that is read: 1/5/2021, 5.1.2021,
/// 2021/05/01.
fn is_odd_date(word: &str) -> bool {
    let date = word.split([' ', 'T']).next().unwrap_or_default();
    let Some(separator) = date.chars().find(|c| matches!(c, '/' | '.' | '-')) else { return false };
    let parts: Vec<_> = date.split(separator).collect();
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_year = |part: &str| digits(part) && part.len() == 4;
    let is_part = |part: &str, most: u32| {
        digits(part) && part.len() <= 2 && (1..=most).contains(&part.parse().unwrap_or(0))
    };
    let are_day_and_month = |one: &str, other: &str| {
        (is_part(one, 31) && is_part(other, 12)) || (is_part(one, 12) && is_part(other, 31))
    };
    match parts[..] {
        [year, one, other] if is_year(year) => are_day_and_month(one, other),
        [one, other, year] => {
            // Two digits of a year are no date where a version number may be meant.
            let short = separator == '/' && digits(year) && year.len() == 2;
            (short || is_year(year)) && are_day_and_month(one, other)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array, StringArray};

    use super::*;

    fn profiled(array: ArrayRef) -> Profile {
        let data_type = array.data_type().clone();
        let column = SourceColumn { name: "c".into(), data_type, declared: None };
        let mut profile = Profile::new(&column, None);
        profile.add(&array).unwrap();
        profile.values.settle();
        profile
    }

    fn text(words: &[&str]) -> Profile {
        profiled(Arc::new(StringArray::from(words.to_vec())))
    }

    #[test]
    fn words_are_counted_as_what_they_could_be() {
        let integers = text(&["0", "-7", "9223372036854775807"]);
        assert_eq!((integers.integers, integers.range), (3, Some((-7, i64::MAX))));
        let reals = text(&["1.5", "-.5", "1e3", "+2", "9223372036854775808", " 3 "]);
        assert_eq!((reals.numbers, reals.integers, reals.coded), (6, 1, 1));
        let codes = text(&["007", "00", "-0"]);
        assert_eq!((codes.numbers, codes.integers, codes.coded), (3, 0, 2));
        assert_eq!(text(&["inf", "NaN", "1e999", "", "-", "1,5", "0x10"]).numbers, 0);
        assert_eq!(text(&["true", "F", "Yes", "no", "y", "ja"]).truths, 4);
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
    fn one_value_has_one_hash_whatever_its_type() {
        let integers = profiled(Arc::new(Int64Array::from(vec![1, 2, -3])));
        let words = text(&["1", "2", "-3", "01"]);
        let reals = profiled(Arc::new(Float64Array::from(vec![1.0, 2.0, 2.5])));
        assert_eq!(integers.values.missing_from(&words.values), 0);
        assert_eq!(words.values.missing_from(&integers.values), 1);
        assert_eq!(reals.values.missing_from(&integers.values), 1);
    }

    #[test]
    fn a_limit_forgets_the_values_and_keeps_that_they_repeat() {
        let mut distinct = Distinct::new(Some(10));
        (0..40_000).for_each(|i| distinct.add(mix(i % 20_000)));
        distinct.settle();
        assert_eq!((distinct.count(), distinct.overflowed), (None, true));
        let mut distinct = Distinct::new(Some(10));
        (0..40_000).for_each(|i| distinct.add(mix(i % 10)));
        distinct.settle();
        assert_eq!((distinct.count(), distinct.repeats), (Some(10), true));
    }
}
