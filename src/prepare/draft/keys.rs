//! Finds the key of each table: declared, by its name, or by its place and values.

use super::containment::are_keys;
use super::name_tokens::{is_uuid, key_rank, names_rows, reference_rank};
use super::profile::Profile;
use super::subject::{Notes, Place, Subject};
use crate::prepare::names::counted;
use crate::prepare::schema::Limits;

/// The rank of a column that is named like a key, but not like the key of its own table.
const FOREIGN_NAME: u32 = 4;

/// The fewest rows whose different values are evidence of a key.
const FEWEST_ROWS: u64 = 20;

/// Finds each table's key.
pub(super) fn find_keys(subjects: &mut [Subject], limits: &Limits, notes: &mut Notes) {
    let key = |index: usize| match declared_key(&subjects[index]) {
        Some(key) => (key, "declared".to_owned()),
        None => guessed_key(subjects, index, limits),
    };
    let keys: Vec<_> = (0..subjects.len()).map(key).collect();
    for (subject, (key, note)) in subjects.iter_mut().zip(keys) {
        subject.key = key;
        notes.insert((subject.name.clone(), Place::Key), note);
    }
}

fn declared_key(subject: &Subject) -> Option<Vec<usize>> {
    let places = places(subject, &subject.source.key)?;
    let sound = match places[..] {
        [column] => subject.profiles[column].is_key() || subject.profiles[column].rows == 0,
        [] => false,
        _ => places.iter().all(|&column| subject.profiles[column].nulls == 0),
    };
    sound.then_some(places)
}

fn guessed_key(subjects: &[Subject], index: usize, limits: &Limits) -> (Vec<usize>, String) {
    let subject = &subjects[index];
    // A uuid identifies a row in other systems if the table has a plainer key.
    let rank = |column: usize| {
        let tokens = &subject.column_tokens[column];
        let rank = key_rank(tokens, &subject.tokens)
            .or_else(|| names_rows(tokens).then_some(FOREIGN_NAME))?;
        let is_uuid = is_uuid(tokens);
        Some((rank.max(u32::from(is_uuid)), is_uuid, column))
    };
    let mut candidates: Vec<_> = (0..subject.profiles.len()).filter_map(rank).collect();
    candidates.sort_unstable();
    let keys = candidates.iter().filter(|&&(.., column)| subject.profiles[column].is_key());
    let referring = |column| referring_columns(subjects, index, column, limits);
    let ranked = keys.map(|&(rank, _, column)| (rank < FOREIGN_NAME, referring(column), column));
    // The first of those that equally many columns refer to.
    let best = ranked.rev().max_by_key(|&(is_own, count, _)| (is_own, count));
    if let Some((is_own, count, column)) = best
        && (is_own || count > 0 || subject.rows() >= FEWEST_ROWS)
    {
        return (vec![column], "by its name; unique and never NULL".into());
    }
    let note = match candidates.first().filter(|(rank, ..)| *rank < 3) {
        Some(&(.., column)) => {
            let name = &subject.source.columns[column].name;
            let profile = &subject.profiles[column];
            let reason = match profile.nulls {
                0 if !profile.is_countable() => "is neither text nor integers".to_owned(),
                0 => "is not unique".to_owned(),
                nulls => format!("is NULL in {}", counted(nulls, "row")),
            };
            format!("no key: {name:?} {reason}")
        }
        None => "no key: no column is unique and named like a key".into(),
    };
    (vec![], note)
}

/// Counts the columns of other tables that are named like a reference to table `to` and hold values
/// of its column `key`.
fn referring_columns(subjects: &[Subject], to: usize, key: usize, limits: &Limits) -> u64 {
    let parent = &subjects[to];
    let refers = |other: &Subject, column: usize| {
        let tokens = &other.column_tokens[column];
        reference_rank(tokens, &parent.tokens, &parent.column_tokens[key]).is_some()
            && are_keys(&other.profiles[column], &parent.profiles[key], limits)
    };
    let others = subjects.iter().enumerate().filter(|&(other, _)| other != to);
    let columns = |other: &Subject| (0..other.profiles.len()).filter(|&c| refers(other, c)).count();
    others.map(|(_, other)| columns(other) as u64).sum()
}

/// Returns the positions of columns; `None` if one is missing.
pub(super) fn places(subject: &Subject, names: &[String]) -> Option<Vec<usize>> {
    let place = |name: &String| subject.source.columns.iter().position(|c| c.name == *name);
    names.iter().map(place).collect()
}

/// Gives each table that is still without a key its first column, if that identifies the rows.
pub(super) fn find_first_columns(subjects: &mut [Subject], notes: &mut Notes) {
    for subject in subjects.iter_mut().filter(|subject| subject.key.is_empty()) {
        if subject.profiles.first().is_some_and(identifies_rows) {
            subject.key = vec![0];
            let note = "the first column; unique and never NULL".to_owned();
            notes.insert((subject.name.clone(), Place::Key), note);
        }
    }
}

/// Whether values without a telling name are likely to identify the rows of their table.
fn identifies_rows(profile: &Profile) -> bool {
    let is_word = || profile.spaced == 0 && profile.booleans == 0;
    profile.is_key()
        && profile.rows >= FEWEST_ROWS
        && profile.may_identify()
        && (profile.all(profile.integers) || is_word())
}

/// Gives each table that is still without a key a column of unique values that refers to another table:
/// its rows add to those of the other.
pub(super) fn find_referring_columns(subjects: &mut [Subject], notes: &mut Notes) {
    for subject in subjects.iter_mut().filter(|subject| subject.key.is_empty()) {
        let is_key = |column: usize| {
            let profile = &subject.profiles[column];
            profile.is_key() && profile.rows >= FEWEST_ROWS
        };
        let single =
            subject.references.iter().filter_map(|r| <[usize; 1]>::try_from(&r.columns[..]).ok());
        let Some([column]) = single.into_iter().find(|[column]| is_key(*column)) else { continue };
        subject.key = vec![column];
        let note = "refers to another table; unique and never NULL".to_owned();
        notes.insert((subject.name.clone(), Place::Key), note);
    }
}
