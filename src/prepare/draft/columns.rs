//! Each column's semantic type.

use indexmap::IndexMap;

use super::profile::{Profile, Storage};
use super::subject::{Chosen, Notes, Origin, Place, Subject, counted};
use super::words::names_rows;
use crate::prepare::schema::{Column, Limits, TimeUnit};
use crate::store::SemanticType;

/// Why a column that is named like a key is no reference.
const UNLINKED: &str = "named like a key, and not found to refer to a table";

/// The columns of a table, with a note for each guess that is not plain.
pub(super) fn columns(
    subject: &Subject,
    limits: &Limits,
    notes: &mut Notes,
) -> IndexMap<String, Column> {
    let mut columns = IndexMap::new();
    for (place, column) in subject.source.columns.iter().enumerate() {
        let (found, note) = match is_identifier(subject, place) {
            true => (SemanticType::Identifier.into(), lost_feature(subject, place, limits)),
            false => guess(subject, place, limits),
        };
        if let Some(note) = note {
            let place = (subject.name.clone(), Place::Column(column.name.clone()));
            // What was said about a reference that failed is the better reason.
            notes.entry(place).or_insert(note);
        }
        columns.insert(column.name.clone(), found);
    }
    columns
}

/// Whether a column is part of the key or of a reference.
fn is_identifier(subject: &Subject, column: usize) -> bool {
    let is_time = |time: &Chosen| matches!(time.from, Origin::Column(own, _) if own == column);
    let refers = subject.links.iter().any(|link| link.columns.contains(&column));
    (refers || subject.key.contains(&column)) && !subject.time.as_ref().is_some_and(is_time)
}

/// What to say of a part of a key that could be a feature, and is none as an identifier.
fn lost_feature(subject: &Subject, column: usize, limits: &Limits) -> Option<String> {
    let refers = subject.links.iter().any(|link| link.columns.contains(&column));
    let is_part = subject.key.len() > 1 && subject.key.contains(&column);
    if refers || !is_part {
        return None;
    }
    let semantic = guess(subject, column, limits).0.semantic;
    let is_feature = matches!(
        semantic,
        SemanticType::Numerical | SemanticType::Categorical | SemanticType::Boolean
    );
    is_feature.then(|| format!("part of the key, so that its value is no feature; else {semantic}"))
}

/// The semantic type that a column's values and name suggest, and why.
pub(super) fn guess(subject: &Subject, column: usize, limits: &Limits) -> (Column, Option<String>) {
    let profile = &subject.profiles[column];
    let words = &subject.column_words[column];
    let plain = |semantic: SemanticType| (semantic.into(), None);
    let with = |semantic: SemanticType, note: String| (semantic.into(), Some(note));
    if profile.storage == Storage::Other {
        let source = &subject.source.columns[column];
        let found = source.declared.clone().unwrap_or_else(|| source.data_type.to_string());
        return with(SemanticType::Ignored, format!("{found} values have no semantic type"));
    }
    if profile.present() == 0 {
        return with(SemanticType::Ignored, "always NULL".into());
    }
    if profile.all(profile.times) {
        return plain(SemanticType::Timestamp);
    }
    if profile.all(profile.truths) {
        return plain(SemanticType::Boolean);
    }
    let declared = subject.source.columns[column].declared.as_deref().unwrap_or_default();
    let is_truth = declared.to_ascii_lowercase().contains("bool") || asks(words);
    if profile.all(profile.bits) && is_truth {
        return with(SemanticType::Boolean, "0 and 1, named like a question".into());
    }
    if names_rows(words) {
        return match few(profile, limits) {
            Some(count) => with(
                SemanticType::Categorical,
                format!("{}, {UNLINKED}", counted(count, "different value")),
            ),
            None => with(SemanticType::Identifier, UNLINKED.into()),
        };
    }
    if profile.all(profile.integers) {
        if let Some((unit, note)) = epoch(words, profile) {
            let column = Column { semantic: SemanticType::Timestamp, unit: Some(unit) };
            return (column, Some(note));
        }
        return (SemanticType::Numerical.into(), hidden_epoch(profile));
    }
    if profile.storage == Storage::Real && !profile.all(profile.numbers) {
        return with(SemanticType::Ignored, "holds NaN or infinity, which no z-score takes".into());
    }
    if profile.all(profile.numbers) && profile.coded == 0 {
        return plain(SemanticType::Numerical);
    }
    if let Some(note) = nearly(profile) {
        let semantic = match few(profile, limits) {
            Some(_) => SemanticType::Categorical,
            None => SemanticType::Text,
        };
        return with(semantic, note);
    }
    let same_length = profile.lengths.is_some_and(|(low, high)| low == high && low >= 16);
    if same_length && profile.spaced == 0 && profile.is_unique() {
        return with(SemanticType::Identifier, "unique words of one length".into());
    }
    match few(profile, limits) {
        Some(count) => with(SemanticType::Categorical, counted(count, "different value")),
        None => plain(SemanticType::Text),
    }
}

/// What is to be done for words to be read as the times or numbers that they look like.
fn nearly(profile: &Profile) -> Option<String> {
    if profile.odd_dates > 0 && profile.all(profile.odd_dates + profile.times) {
        let note = "looks like dates in a form that is ambiguous or not read; rewrite them as \
                    YYYY-MM-DD to use them as times";
        return Some(note.to_owned());
    }
    if profile.comma_numbers > 0 && profile.all(profile.comma_numbers + profile.numbers) {
        return Some("looks like numbers with a decimal comma; rewrite with a point".to_owned());
    }
    // Digits with a zero before them stay words anyway.
    let numbers = if profile.coded == 0 { profile.numbers } else { 0 };
    let others = [("numbers", "numerical", numbers), ("times", "a time", profile.times)];
    let marker = profile.marker?;
    let (kind, semantic, _) = others
        .into_iter()
        .find(|&(.., count)| count > 0 && profile.all(profile.markers + count))?;
    let are = match profile.markers {
        1 => format!("1 value is the word {marker:?}"),
        markers => format!("{markers} values are words such as {marker:?}"),
    };
    Some(format!(
        "{are}; the others are {kind}: in CSV only the empty field is NULL; empty those fields to \
         use it as {semantic}"
    ))
}

/// How many different values there are, when they are few and come again.
fn few(profile: &Profile, limits: &Limits) -> Option<u64> {
    let count = profile.values.count()?;
    let most = u64::from(limits.categories).min((profile.rows / 20).max(20));
    (count <= most && count * 2 <= profile.present()).then_some(count)
}

/// Whether a name asks a question that 0 and 1 answer.
fn asks(words: &[String]) -> bool {
    let first = ["is", "ha", "has", "was", "wa", "can", "should", "did", "doe", "does", "will"];
    let last = ["flag", "active", "enabled", "deleted", "bool", "boolean"];
    words.len() > 1 && words.first().is_some_and(|word| first.contains(&word.as_str()))
        || words.last().is_some_and(|word| last.contains(&word.as_str()))
}

/// The unit in which integers count from 1970, when their name and size say that they do.
fn epoch(words: &[String], profile: &Profile) -> Option<(TimeUnit, String)> {
    let ends = ["at", "time", "t", "ts", "timestamp", "date", "datetime", "epoch", "created"];
    words.last().filter(|last| ends.contains(&last.as_str()))?;
    // The years 1980 to 2100, in seconds.
    let (unit, name) = unit_since_1970(profile, 315_532_800, 4_102_444_800)?;
    Some((unit, format!("integers that read as {name} since 1970")))
}

/// What to say of integers that may be times though their name does not say so.
fn hidden_epoch(profile: &Profile) -> Option<String> {
    // The years 1990 to 2040, in seconds.
    let (name, unit) = match unit_since_1970(profile, 631_152_000, 2_208_988_800)? {
        (TimeUnit::Second, name) => (name, "s"),
        (TimeUnit::Millisecond, name) => (name, "ms"),
        (TimeUnit::Microsecond, name) => (name, "us"),
    };
    let column = format!("{{ type = \"timestamp\", unit = \"{unit}\" }}");
    Some(format!("could be a time in {name} since 1970: {column}"))
}

/// The unit in which all integers lie between two times, which are given in seconds.
fn unit_since_1970(profile: &Profile, from: i64, until: i64) -> Option<(TimeUnit, &'static str)> {
    let (low, high) = profile.range?;
    let units = [
        (TimeUnit::Second, 1, "seconds"),
        (TimeUnit::Millisecond, 1_000, "milliseconds"),
        (TimeUnit::Microsecond, 1_000_000, "microseconds"),
    ];
    let within = |size: i64| low >= from * size && high < until * size;
    let (unit, _, name) = units.into_iter().find(|&(_, size, _)| within(size))?;
    Some((unit, name))
}
