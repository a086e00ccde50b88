//! Profiles the columns of a table in one pass: types, ranges, distinct values.

mod distinct;
mod forms;
mod magnitudes;
mod periods;
mod reads;
#[cfg(test)]
mod tests;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, StringViewArray, timezone::Tz};
use arrow_cast::cast;
use arrow_schema::{DataType, TimeUnit};

pub(super) use distinct::{Distinct, Keep, hash_integer, mix};
use distinct::{canonical_integer, hash_text};
pub(super) use forms::without_point;
use forms::{MARKERS, has_decimal_comma, is_boolean_text, is_coded, is_odd_date, number, time};
use magnitudes::Magnitudes;
use periods::Periods;
pub(super) use reads::{Compared, Lists, parent_rows, unique_lists, unresolved_rows};

use crate::error::{Context, Error, Result};
use crate::prepare::source::{Source, SourceColumn};
use crate::prepare::values::to_texts;

/// The longest mean length of texts that may identify rows, in bytes; longer ones are prose.
const LONGEST_KEY: f64 = 64.0;

/// The characters of a text that a note shows.
const SHOWN: usize = 40;

/// The type in which a source stores the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    Text,
    Integer,
    /// Floats and decimals.
    Real,
    Boolean,
    Time,
    /// Lists, bytes and other types without a semantic type.
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
            DataType::Boolean => Self::Boolean,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Self::Time,
            kind if kind.is_integer() => Self::Integer,
            kind if kind.is_numeric() => Self::Real,
            _ => Self::Other,
        }
    }
}

/// Counts over the values of one column.
pub(super) struct Profile {
    pub storage: Storage,
    pub rows: u64,
    pub nulls: u64,
    /// How many values are integers in canonical decimal form.
    pub integers: u64,
    /// How many values are finite numbers, integers included.
    pub numbers: u64,
    /// How many values of a float or decimal column have no fraction.
    pub whole: u64,
    /// How many values are a text for true or false.
    pub booleans: u64,
    /// How many values are 0 or 1.
    pub bits: u64,
    /// How many values are points in time.
    pub times: u64,
    /// How many values look like dates in an unsupported format.
    pub odd_dates: u64,
    /// How many values are integers with `.0`, as pandas writes integers with missing values.
    pub pointed: u64,
    /// How many values are numbers with a decimal comma.
    pub comma_numbers: u64,
    /// How many values are texts that some writers use for NULL, and the first of them.
    pub markers: u64,
    pub marker: Option<&'static str>,
    /// How many texts are neither numbers nor points in time, and the first of them.
    pub others: u64,
    pub other: Option<String>,
    /// How many values have a leading zero or sign that a number would lose.
    pub coded: u64,
    /// The least and the greatest integer.
    pub range: Option<(i64, i64)>,
    /// Whether no integer is less than the one in the row before.
    pub ascending: bool,
    last: Option<i64>,
    /// The earliest and the latest point in time, in microseconds.
    pub time_range: Option<(i64, i64)>,
    /// The sum of the integers, or of the points in time in microseconds.
    total: i128,
    /// The shortest and the longest text, in bytes.
    pub lengths: Option<(usize, usize)>,
    /// The bytes of all texts together.
    bytes: u64,
    /// How many texts contain a space.
    pub spaced: u64,
    /// The distinct values.
    pub values: Distinct,
    /// The numbers by magnitude.
    pub magnitudes: Magnitudes,
    /// The values as periods of the calendar.
    pub periods: Periods,
}

impl Profile {
    fn new(column: &SourceColumn, keep: Keep) -> Self {
        Self {
            storage: Storage::of(column),
            rows: 0,
            nulls: 0,
            integers: 0,
            numbers: 0,
            whole: 0,
            booleans: 0,
            bits: 0,
            times: 0,
            odd_dates: 0,
            pointed: 0,
            comma_numbers: 0,
            markers: 0,
            marker: None,
            others: 0,
            other: None,
            coded: 0,
            range: None,
            ascending: true,
            last: None,
            time_range: None,
            total: 0,
            lengths: None,
            bytes: 0,
            spaced: 0,
            values: Distinct::new(keep),
            magnitudes: Magnitudes::default(),
            periods: Periods::default(),
        }
    }

    /// Returns the number of values that are not NULL.
    pub(super) fn present(&self) -> u64 {
        self.rows - self.nulls
    }

    /// Whether `count` is the number of all values, and there are some.
    pub(super) fn all(&self, count: u64) -> bool {
        count > 0 && count == self.present()
    }

    /// Returns the mean of integers, or of points in time in microseconds.
    pub(super) fn mean(&self) -> i128 {
        self.total / i128::from(self.present().max(1))
    }

    /// Returns the mean length of the texts, in bytes.
    pub(super) fn mean_length(&self) -> f64 {
        self.bytes as f64 / self.present().max(1) as f64
    }

    /// Whether the values may identify rows by their kind: whole numbers, or short texts that are no
    /// times.
    pub(super) fn may_identify(&self) -> bool {
        let is_whole = self.numbers == self.integers || self.coded > 0;
        let is_text = || is_whole && self.times == 0 && self.mean_length() <= LONGEST_KEY;
        match self.storage {
            Storage::Integer => true,
            Storage::Text => is_text(),
            _ => false,
        }
    }

    /// Whether most values are numbers.
    pub(super) fn is_numeric(&self) -> bool {
        self.numbers * 2 > self.present()
    }

    /// Whether no value occurs twice, as far as values were kept.
    pub(super) fn is_unique(&self) -> bool {
        !self.values.repeats
    }

    /// Whether the values could be a table's key.
    pub(super) fn is_key(&self) -> bool {
        let whole = self.nulls == 0 && self.rows > 0 && !self.values.overflowed;
        self.is_countable() && whole && self.is_unique()
    }

    /// Whether the values are texts or whole numbers.
    pub(super) fn is_countable(&self) -> bool {
        match self.storage {
            Storage::Text | Storage::Integer => true,
            Storage::Real => self.all(self.whole),
            Storage::Boolean | Storage::Time | Storage::Other => false,
        }
    }

    fn add(&mut self, array: &ArrayRef) -> Result<()> {
        self.values.make_room(array.len())?;
        self.rows += array.len() as u64;
        let nulls = array.logical_null_count();
        self.nulls += nulls as u64;
        let convert = |to: &DataType| cast(array, to).map_err(|e| Error::data(e.to_string()));
        match self.storage {
            Storage::Text => self.add_texts(&to_texts(array)?),
            Storage::Integer => match integers(array)? {
                Some(integers) => self.add_integers(&integers),
                None => self.add_texts(&to_texts(array)?),
            },
            Storage::Real => self.add_reals(&to_texts(array)?),
            Storage::Boolean => {
                for value in convert(&DataType::Boolean)?.as_boolean().iter().flatten() {
                    self.booleans += 1;
                    self.values.add(u64::from(value));
                }
            }
            Storage::Time => {
                let times = convert(&DataType::Timestamp(TimeUnit::Microsecond, None))?;
                let times = times.as_primitive::<TimestampMicrosecondType>();
                times.iter().flatten().for_each(|time| self.add_time(time));
            }
            Storage::Other => {}
        }
        if !self.may_identify() {
            self.values.keep_few();
        }
        Ok(())
    }

    fn add_integers(&mut self, integers: &Int64Array) {
        for integer in integers.iter().flatten() {
            if self.periods.are_possible() {
                self.periods.add(&integer.to_string());
            }
            self.add_integer(integer);
            self.values.add(hash_integer(integer));
        }
    }

    /// Adds floats and decimals by their texts, by which keys are compared.
    fn add_reals(&mut self, texts: &StringViewArray) {
        for text in texts.iter().flatten() {
            self.periods.add(text);
            let is_finite = text.ends_with(|c: char| c.is_ascii_digit());
            self.numbers += u64::from(is_finite);
            self.magnitudes.add(text.parse().unwrap_or(0.0));
            self.whole += u64::from(is_finite && !text.contains('.'));
            self.bits += u64::from(matches!(text, "0" | "1"));
            self.values.add(hash_text(text));
        }
    }

    fn add_integer(&mut self, value: i64) {
        self.integers += 1;
        self.numbers += 1;
        self.magnitudes.add(value as f64);
        self.bits += u64::from(matches!(value, 0 | 1));
        self.total += i128::from(value);
        let (low, high) = self.range.unwrap_or((value, value));
        self.range = Some((low.min(value), high.max(value)));
        self.ascending &= self.last.is_none_or(|last| last <= value);
        self.last = Some(value);
    }

    fn add_time(&mut self, time: i64) {
        self.times += 1;
        self.total += i128::from(time);
        let (low, high) = self.time_range.unwrap_or((time, time));
        self.time_range = Some((low.min(time), high.max(time)));
    }

    fn add_texts(&mut self, texts: &StringViewArray) {
        let utc: Tz = "+00:00".parse().expect("an offset in digits is a zone");
        for text in texts.iter().flatten() {
            let (low, high) = self.lengths.unwrap_or((text.len(), text.len()));
            self.lengths = Some((low.min(text.len()), high.max(text.len())));
            self.bytes += text.len() as u64;
            self.values.add(hash_text(text));
            let trimmed = text.trim();
            self.periods.add(trimmed);
            if let Some(integer) = canonical_integer(trimmed) {
                self.add_integer(integer);
                continue;
            }
            if let Some(number) = number(trimmed) {
                self.numbers += 1;
                self.magnitudes.add(number);
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
            self.booleans += u64::from(is_boolean_text(trimmed));
            match time(trimmed, &utc) {
                Some(time) => self.add_time(time),
                None => {
                    self.odd_dates += u64::from(is_odd_date(trimmed));
                    self.others += 1;
                    self.other.get_or_insert_with(|| trimmed.chars().take(SHOWN).collect());
                }
            }
        }
    }
}

/// Profiles the columns of one table; `keep` says which distinct values are kept of each.
pub(super) fn profile(
    source: &dyn Source,
    table: &str,
    columns: &[SourceColumn],
    keep: impl Fn(&SourceColumn) -> Keep,
) -> Result<Vec<Profile>> {
    let mut profiles: Vec<_> = columns.iter().map(|c| Profile::new(c, keep(c))).collect();
    // Columns without a semantic type are not read.
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

/// Returns the array as signed integers, if it holds integers within that range.
fn integers(array: &ArrayRef) -> Result<Option<Int64Array>> {
    if !array.data_type().is_integer() {
        return Ok(None);
    }
    let integers = cast(array, &DataType::Int64).map_err(|e| Error::data(e.to_string()))?;
    let whole = integers.logical_null_count() == array.logical_null_count();
    Ok(whole.then(|| integers.as_primitive::<Int64Type>().clone()))
}
