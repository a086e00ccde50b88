//! Guesses the semantic type of each column.

use indexmap::IndexMap;

use super::name_tokens::names_rows;
use super::profile::{Profile, Storage};
use super::subject::{ChosenTime, Notes, Origin, Place, Subject};
use crate::days::time_text;
use crate::prepare::names::counted;
use crate::prepare::schema::{Column, Limits, ScaleName, TimeUnit};
use crate::store::SemanticType;

/// The reason for which a column named like a key is not a reference.
const UNLINKED: &str = "named like a key, but no table found with these keys";

/// A column is one of numbers or times if at most this part of its values is something else: a tenth.
const OTHERS_SHARE: u64 = 10;

/// Returns the columns of a table, with a note for each guess that is not obvious.
pub(super) fn columns(
    subject: &Subject,
    limits: &Limits,
    notes: &mut Notes,
) -> IndexMap<String, Column> {
    let mut columns = IndexMap::new();
    for (place, column) in subject.source.columns.iter().enumerate() {
        let (mut found, note) = match is_identifier(subject, place) {
            true => (SemanticType::Identifier.into(), unused_feature(subject, place, limits)),
            false => guess(subject, place, limits),
        };
        // What a row says of its year is known at the end of the year.
        found.end = is_own_time(subject, place)
            && found.unit.is_some_and(|unit| TimeUnit::PERIODS.contains(&unit));
        let note = match found.end {
            true => note.map(|note| format!("{note}; end = true: known when it is over")),
            false => note,
        };
        if let Some(note) = note {
            let place = (subject.name.clone(), Place::Column(column.name.clone()));
            // A note about a rejected reference explains more.
            notes.entry(place).or_insert(note);
        }
        columns.insert(column.name.clone(), found);
    }
    columns
}

/// Whether a column is part of the key or of a reference.
fn is_identifier(subject: &Subject, column: usize) -> bool {
    let refers = subject.references.iter().any(|reference| reference.columns.contains(&column));
    (refers || subject.key.contains(&column)) && !is_own_time(subject, column)
}

/// Whether a column is the time of its table.
fn is_own_time(subject: &Subject, column: usize) -> bool {
    let is_time = |time: &ChosenTime| matches!(time.from, Origin::Column(own, _) if own == column);
    subject.time.as_ref().is_some_and(is_time)
}

/// Returns a note about a part of a key that could be a feature, but is not as an identifier.
fn unused_feature(subject: &Subject, column: usize, limits: &Limits) -> Option<String> {
    let refers = subject.references.iter().any(|reference| reference.columns.contains(&column));
    let is_part = subject.key.len() > 1 && subject.key.contains(&column);
    if refers || !is_part {
        return None;
    }
    let semantic = guess(subject, column, limits).0.semantic;
    let is_feature = matches!(
        semantic,
        SemanticType::Numerical | SemanticType::Categorical | SemanticType::Boolean
    );
    is_feature
        .then(|| format!("part of the key, so its value is not a feature; otherwise {semantic}"))
}

/// Returns the semantic type that a column's values and name suggest, and the reason.
pub(super) fn guess(subject: &Subject, column: usize, limits: &Limits) -> (Column, Option<String>) {
    let profile = &subject.profiles[column];
    let tokens = &subject.column_tokens[column];
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
        return (SemanticType::Timestamp.into(), odd_times(profile));
    }
    if profile.all(profile.booleans) {
        return plain(SemanticType::Boolean);
    }
    let declared = subject.source.columns[column].declared.as_deref().unwrap_or_default();
    let is_boolean = declared.to_ascii_lowercase().contains("bool") || names_flag(tokens);
    if profile.all(profile.bits) && is_boolean {
        return with(SemanticType::Boolean, "0 and 1, named like a flag".into());
    }
    if let Some(unit) = named_period(tokens, profile) {
        let column = Column { unit: Some(unit), ..SemanticType::Timestamp.into() };
        return (column, Some(format!("each value is {}", unit.values())));
    }
    let has_fractions = profile.storage == Storage::Real && !profile.all(profile.whole);
    if names_rows(tokens) && !has_fractions {
        return match category_count(profile, limits) {
            Some(count) => with(
                SemanticType::Categorical,
                format!("{}, {UNLINKED}", counted(count, "different value")),
            ),
            None => with(SemanticType::Identifier, UNLINKED.into()),
        };
    }
    if profile.all(profile.integers) {
        if let Some((unit, note)) = named_epoch(tokens, profile) {
            let column = Column { unit: Some(unit), ..SemanticType::Timestamp.into() };
            return (column, Some(note));
        }
        return match hidden_time(profile) {
            None => numerical(profile),
            note => (SemanticType::Numerical.into(), note),
        };
    }
    if profile.storage == Storage::Real && !profile.all(profile.numbers) {
        return with(
            SemanticType::Ignored,
            "contains NaN or infinity, which have no z-score".into(),
        );
    }
    if profile.all(profile.numbers) && profile.coded == 0 {
        return numerical(profile);
    }
    if let Some(note) = unreadable_values(profile) {
        let semantic = match category_count(profile, limits) {
            Some(_) => SemanticType::Categorical,
            None => SemanticType::Text,
        };
        return with(semantic, note);
    }
    let same_length = profile.lengths.is_some_and(|(low, high)| low == high && low >= 16);
    if same_length && profile.spaced == 0 && profile.is_unique() {
        return with(SemanticType::Identifier, "unique texts of equal length".into());
    }
    match category_count(profile, limits) {
        Some(count) => with(SemanticType::Categorical, counted(count, "different value")),
        None => plain(SemanticType::Text),
    }
}

/// Returns a numerical column, on the scale that its tail needs.
fn numerical(profile: &Profile) -> (Column, Option<String>) {
    let (scale, note) = match profile.magnitudes.heavy_tail() {
        None => (ScaleName::Linear, None),
        Some((scale, times)) => {
            let note =
                format!("heavy tail: the largest magnitude is about {times:.0} times the median");
            (scale, Some(note))
        }
    };
    (Column { scale, ..SemanticType::Numerical.into() }, note)
}

/// Returns a note about texts that look like times or numbers, but cannot be read as such.
fn unreadable_values(profile: &Profile) -> Option<String> {
    if profile.odd_dates > 0 && profile.all(profile.odd_dates + profile.times) {
        let note = "looks like dates in an ambiguous or unsupported format; rewrite them as \
                    YYYY-MM-DD to use them as times";
        return Some(note.to_owned());
    }
    if profile.comma_numbers > 0 && profile.all(profile.comma_numbers + profile.numbers) {
        return Some(
            "looks like numbers with a decimal comma; rewrite them with a decimal point".to_owned(),
        );
    }
    // Digits with a leading zero stay texts in any case.
    let numbers = if profile.coded == 0 { profile.numbers } else { 0 };
    let readable = [("numbers", "numerical", numbers), ("times", "a time", profile.times)];
    let only_markers = profile.markers == profile.others;
    let are_few = only_markers || profile.others * OTHERS_SHARE <= profile.present();
    let (kind, semantic, _) = readable
        .into_iter()
        .find(|&(.., count)| count > 0 && profile.all(profile.others + count) && are_few)?;
    let found = |text: &str| match profile.others {
        1 => format!("1 value is the text {text:?}"),
        others => format!("{others} values are texts such as {text:?}"),
    };
    Some(match profile.marker.filter(|_| only_markers) {
        Some(marker) => format!(
            "{}; the others are {kind}: in CSV only an empty field is NULL; clear those fields to \
             use the column as {semantic}",
            found(marker)
        ),
        None => format!(
            "{}; the others are {kind}: correct those fields to use the column as {semantic}",
            found(profile.other.as_deref()?)
        ),
    })
}

/// Returns a note about times that stand for none, as 9999-12-31 does for an end that is not known.
fn odd_times(profile: &Profile) -> Option<String> {
    // The years 1000 and 2500, in microseconds since 1970.
    let sensible = -30_610_224_000_000_000..16_725_225_600_000_000;
    let (first, last) = profile.time_range?;
    let odd = [last, first].into_iter().find(|time| !sensible.contains(time))?;
    let hides = if odd == last { ", and a row of this time is hidden until then" } else { "" };
    let shown = time_text(odd);
    let shown = shown.strip_suffix(" 00:00:00").unwrap_or(&shown);
    Some(format!("{shown} is among the times{hides}; clear it if it means that there is no time"))
}

/// Returns the number of distinct values if they are few and repeat.
fn category_count(profile: &Profile, limits: &Limits) -> Option<u64> {
    let count = profile.values.count()?;
    let most = u64::from(limits.categories).min((profile.rows / 20).max(20));
    (count <= most && count * 2 <= profile.present()).then_some(count)
}

/// Whether a name is that of a flag: `is_active`, `has_children`, `deleted`.
fn names_flag(tokens: &[String]) -> bool {
    let first = ["is", "ha", "has", "was", "wa", "can", "should", "did", "doe", "does", "will"];
    let last = ["flag", "active", "enabled", "deleted", "bool", "boolean"];
    tokens.len() > 1 && tokens.first().is_some_and(|token| first.contains(&token.as_str()))
        || tokens.last().is_some_and(|token| last.contains(&token.as_str()))
}

/// Returns the unit of integers since 1970, if their name and their range are those of times.
fn named_epoch(tokens: &[String], profile: &Profile) -> Option<(TimeUnit, String)> {
    let ends = ["at", "time", "t", "ts", "timestamp", "date", "datetime", "epoch", "created"];
    tokens.last().filter(|last| ends.contains(&last.as_str()))?;
    // The years 1980 to 2100, in seconds.
    let (unit, name) = unit_since_1970(profile, 315_532_800, 4_102_444_800)?;
    Some((unit, format!("integers that look like {name} since 1970")))
}

/// Returns the unit of the calendar of which all values are, if their form or their name says so.
fn named_period(tokens: &[String], profile: &Profile) -> Option<TimeUnit> {
    let named =
        |words: &[&str]| tokens.iter().any(|token| words.iter().any(|word| token.ends_with(word)));
    // 2003/04 and 2003Q2 are nothing else; 200304 and 20032 may be any number.
    let has_form = profile.storage == Storage::Text && profile.integers == 0;
    TimeUnit::PERIODS.into_iter().find(|&unit| {
        profile.periods.of(unit).is_some()
            && match unit {
                TimeUnit::Yyyymmdd => {
                    // By chance a number is a day in one of 27 cases.
                    named(&["date", "day", "dt", "time", "yyyymmdd"])
                        || profile.values.count().is_none_or(|count| count >= 50)
                }
                TimeUnit::Season => has_form || named(&["season"]),
                TimeUnit::Month => has_form || named(&["month", "ym", "yyyymm", "period"]),
                TimeUnit::Quarter => has_form || named(&["quarter", "qtr"]),
                _ => named(&["year", "yr", "fy", "season", "yyyy"]),
            }
    })
}

/// Returns a note about integers that may be times by their range, but not by their name.
fn hidden_time(profile: &Profile) -> Option<String> {
    if profile.periods.of(TimeUnit::Year).is_some() {
        return Some("could be years: { type = \"timestamp\", unit = \"year\" }".to_owned());
    }
    // The years 1990 to 2040, in seconds.
    let (unit, name) = unit_since_1970(profile, 631_152_000, 2_208_988_800)?;
    let column = format!("{{ type = \"timestamp\", unit = \"{}\" }}", unit.name());
    Some(format!("could be a time in {name} since 1970: {column}"))
}

/// Returns the unit in which all integers lie between two times, both given in seconds.
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
