//! What one pass over a table tells of its columns.

mod distinct;
#[cfg(test)]
mod tests;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringViewArray, timezone::Tz};
use arrow::compute::cast;
use arrow::compute::kernels::cast_utils::string_to_datetime;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMicrosecondType};

pub(super) use distinct::Distinct;
use distinct::{canonical_integer, hash_integer, hash_word, mix};

use crate::error::{Context, Error, Result};
use crate::prepare::source::{Source, SourceColumn};
use crate::prepare::values::words;

/// What some writers leave where there is nothing.
const MARKERS: [&str; 14] = [
    "NA", "N/A", "n/a", "NaN", "nan", "NULL", "Null", "null", "None", "none", "NaT", "#N/A", "-",
    "?",
];

/// How a source keeps a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Text,
    Integer,
    /// Floats and decimals.
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
    /// How many of a float's or decimal's values have no fraction.
    pub whole: u64,
    /// How many are a word for true or false.
    pub truths: u64,
    /// How many are 0 or 1.
    pub bits: u64,
    /// How many are points in time.
    pub times: u64,
    /// How many look like dates, and are in no form that is read.
    pub odd_dates: u64,
    /// How many are integers with `.0` behind them, as pandas writes integers with gaps.
    pub pointed: u64,
    /// How many are numbers but for a decimal comma.
    pub comma_numbers: u64,
    /// How many are words that some writers leave for NULL, and the first of them.
    pub markers: u64,
    pub marker: Option<&'static str>,
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
            whole: 0,
            truths: 0,
            bits: 0,
            times: 0,
            odd_dates: 0,
            pointed: 0,
            comma_numbers: 0,
            markers: 0,
            marker: None,
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
        let whole = self.nulls == 0 && self.rows > 0 && !self.values.overflowed;
        self.is_countable() && whole && self.is_unique()
    }

    /// Whether the values are of a kind that counts or names things.
    pub(super) fn is_countable(&self) -> bool {
        match self.storage {
            Storage::Text | Storage::Integer => true,
            Storage::Real => self.all(self.whole),
            Storage::Truth | Storage::Time | Storage::Other => false,
        }
    }

    fn add(&mut self, array: &ArrayRef) -> Result<()> {
        self.rows += array.len() as u64;
        let nulls = array.logical_null_count();
        self.nulls += nulls as u64;
        let convert = |to: &DataType| cast(array, to).map_err(|e| Error::data(e.to_string()));
        match self.storage {
            Storage::Text => self.add_words(&words(array)?),
            Storage::Integer => match integers(array)? {
                Some(integers) => self.add_integers(&integers),
                None => self.add_words(&words(array)?),
            },
            Storage::Real => self.add_reals(&words(array)?),
            Storage::Truth => {
                for value in convert(&DataType::Boolean)?.as_boolean().iter().flatten() {
                    self.truths += 1;
                    self.values.add(u64::from(value));
                }
            }
            Storage::Time => {
                self.times += (array.len() - nulls) as u64;
                let times = convert(&DataType::Timestamp(TimeUnit::Microsecond, None))?;
                let times = times.as_primitive::<TimestampMicrosecondType>();
                self.total += times.iter().flatten().map(i128::from).sum::<i128>();
            }
            Storage::Other => {}
        }
        Ok(())
    }

    fn add_integers(&mut self, integers: &Int64Array) {
        for integer in integers.iter().flatten() {
            self.add_integer(integer);
            self.values.add(hash_integer(integer));
        }
    }

    /// Takes in floats and decimals by their text, which is what keys are compared by.
    fn add_reals(&mut self, words: &StringViewArray) {
        for word in words.iter().flatten() {
            let is_finite = word.ends_with(|c: char| c.is_ascii_digit());
            self.numbers += u64::from(is_finite);
            self.whole += u64::from(is_finite && !word.contains('.'));
            self.bits += u64::from(matches!(word, "0" | "1"));
            self.values.add(hash_word(word));
        }
    }

    fn add_integer(&mut self, value: i64) {
        self.integers += 1;
        self.numbers += 1;
        self.bits += u64::from(matches!(value, 0 | 1));
        self.total += i128::from(value);
        let (low, high) = self.range.unwrap_or((value, value));
        self.range = Some((low.min(value), high.max(value)));
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
                self.pointed += u64::from(without_point(trimmed).is_some());
                self.bits += u64::from(matches!(trimmed, "0.0" | "1.0") && number <= 1.0);
                continue;
            }
            if let Some(marker) = MARKERS.into_iter().find(|marker| *marker == trimmed) {
                self.markers += 1;
                self.marker.get_or_insert(marker);
            }
            self.comma_numbers += u64::from(has_decimal_comma(trimmed));
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

/// How many rows of a column hold a value that, rewritten, is not among `keys`.
pub(super) fn unresolved_rows(
    source: &dyn Source,
    table: &str,
    column: &SourceColumn,
    keys: &Distinct,
    rewrite: fn(&str) -> &str,
) -> Result<u64> {
    let mut count = 0;
    for batch in source.read(table, std::slice::from_ref(&column.name))? {
        let words = words(batch?.column(0))?;
        let missing = |word: &&str| !keys.contains(hash_word(rewrite(word)));
        count += words.iter().flatten().filter(missing).count() as u64;
    }
    Ok(count)
}

/// Which lists of a table's columns have no values in two rows; the columns are never NULL.
///
/// # Cost
/// Reads the columns once, or until each list was seen to repeat. Keeps eight bytes for each row
/// and each list that was not.
pub(super) fn unique_lists(
    source: &dyn Source,
    table: &str,
    columns: &[SourceColumn],
    lists: &[Vec<usize>],
) -> Result<Vec<bool>> {
    let mut read: Vec<usize> = lists.concat();
    read.sort_unstable();
    read.dedup();
    let names: Vec<_> = read.iter().map(|&column| columns[column].name.clone()).collect();
    let mut seen: Vec<_> = lists.iter().map(|_| Some(Distinct::new(None))).collect();
    for batch in source.read(table, &names)? {
        let batch = batch?;
        let hashes = batch.columns().iter().map(hashes).collect::<Result<Vec<_>>>()?;
        for (list, seen) in lists.iter().zip(&mut seen) {
            let Some(distinct) = seen else { continue };
            let parts: Vec<_> = read
                .iter()
                .zip(&hashes)
                .filter(|(c, _)| list.contains(c))
                .map(|(_, h)| h)
                .collect();
            for row in 0..batch.num_rows() {
                distinct.add(parts.iter().fold(0, |hash, part| mix(hash ^ part[row])));
            }
            if distinct.repeats {
                *seen = None;
            }
        }
        if seen.iter().all(Option::is_none) {
            break;
        }
    }
    let is_unique = |distinct: &mut Distinct| {
        distinct.settle();
        !distinct.repeats
    };
    Ok(seen.iter_mut().map(|seen| seen.as_mut().is_some_and(is_unique)).collect())
}

/// The hash of each row's value.
fn hashes(array: &ArrayRef) -> Result<Vec<u64>> {
    if let Some(integers) = integers(array)? {
        return Ok(integers.values().iter().map(|&integer| hash_integer(integer)).collect());
    }
    Ok(words(array)?.iter().map(|word| word.map_or(0, hash_word)).collect())
}

/// The array as signed integers, if integers are what it holds and they are within that range.
fn integers(array: &ArrayRef) -> Result<Option<Int64Array>> {
    if !array.data_type().is_integer() {
        return Ok(None);
    }
    let integers = cast(array, &DataType::Int64).map_err(|e| Error::data(e.to_string()))?;
    let whole = integers.logical_null_count() == array.logical_null_count();
    Ok(whole.then(|| integers.as_primitive::<Int64Type>().clone()))
}

/// The integer that is written with `.0` behind it.
pub(super) fn without_point(word: &str) -> Option<&str> {
    word.strip_suffix(".0").filter(|integer| canonical_integer(integer).is_some())
}

fn number(word: &str) -> Option<f64> {
    // Words such as "inf" read as numbers, too.
    let begins = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.');
    word.as_bytes().first().filter(|b| begins(b))?;
    word.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether a word is a number with a decimal comma, perhaps with points between the thousands.
fn has_decimal_comma(word: &str) -> bool {
    word.split_once(',').is_some_and(|(whole, fraction)| {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        digits(fraction) && whole.trim_start_matches(['-', '+']).split('.').all(digits)
    })
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
