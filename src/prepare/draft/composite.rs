//! Finds undeclared keys of several columns: order and line, part and supplier.

use std::cmp::Reverse;

use rayon::prelude::*;

use super::evidence::kind;
use super::name_tokens::{may_number_rows, names_rows, numbers_within};
use super::profile::unique_lists;
use super::subject::{Notes, Place, Subject, names_speak};
use crate::error::Result;
use crate::prepare::source::Source;

/// The most columns of a table that the search combines.
const PART_LIMIT: usize = 8;

/// The most lists of columns whose values are compared at a time, to bound the memory.
const LIST_LIMIT: usize = 6;

/// How many equal pairs of rows chance must predict before their absence is evidence of a key.
const EXPECTED_PAIRS: f64 = 8.0;

/// The role of a column in a composite key, the likeliest role first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// A number within the rows of one parent.
    Number,
    Reference,
    /// Another column that is named like a key.
    Name,
    /// A column of a database whose names say nothing.
    Value,
}

/// Finds the two or three columns that identify the rows of each table without a key.
pub(super) fn find_composite_keys(
    source: &dyn Source,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    let names_speak = names_speak(subjects);
    let found = |index: usize| match subjects[index].key.is_empty() {
        true => composite_key(source, subjects, index, names_speak),
        false => Ok(None),
    };
    let keys: Vec<_> = (0..subjects.len()).into_par_iter().map(found).collect::<Result<_>>()?;
    for (subject, key) in subjects.iter_mut().zip(keys) {
        let Some(key) = key else { continue };
        let note = format!("these {} columns are unique together and never NULL", key.len());
        notes.insert((subject.name.clone(), Place::Key), note);
        subject.key = key;
    }
    Ok(())
}

/// Returns the likeliest two columns that identify a row, otherwise three.
fn composite_key(
    source: &dyn Source,
    subjects: &[Subject],
    index: usize,
    names_speak: bool,
) -> Result<Option<Vec<usize>>> {
    let subject = &subjects[index];
    let parts = parts(subject, names_speak);
    for size in [2, 3] {
        let mut lists: Vec<_> = combinations(&parts, size)
            .into_iter()
            .filter(|list| is_significant(subject, list) && is_meant(list))
            .collect();
        // Other tables with columns of the same names may refer to them. Two references are likelier
        // than a name; a reference and a number are the likeliest.
        lists.sort_by_cached_key(|list| {
            let least = list.iter().map(|&(role, _)| role).min();
            let most = list.iter().map(|&(role, _)| role).max();
            (Reverse(sharing_tables(subjects, index, list)), most >= Some(Role::Name), least, most)
        });
        lists.truncate(LIST_LIMIT);
        let columns: Vec<Vec<usize>> =
            (lists.iter()).map(|list| list.iter().map(|&(_, column)| column).collect()).collect();
        if columns.is_empty() {
            continue;
        }
        let unique = unique_lists(source, &subject.source.name, &subject.source.columns, &columns)?;
        let first = columns.into_iter().zip(unique).find(|(_, unique)| *unique);
        if let Some((columns, _)) = first {
            return Ok(Some(columns));
        }
    }
    Ok(None)
}

/// Counts the other tables with columns of the same names as those of a list.
fn sharing_tables(subjects: &[Subject], index: usize, list: &[(Role, usize)]) -> usize {
    let tokens = &subjects[index].column_tokens;
    let shares = |other: &&Subject| {
        list.iter().all(|&(_, column)| other.column_tokens.contains(&tokens[column]))
    };
    let others = subjects.iter().enumerate().filter(|&(other, _)| other != index);
    others.filter(|(_, other)| shares(other)).count()
}

/// Returns the columns that may be part of a key, in their order.
fn parts(subject: &Subject, names_speak: bool) -> Vec<(Role, usize)> {
    let role = |column: usize| {
        let profile = &subject.profiles[column];
        let tokens = &subject.column_tokens[column];
        if profile.nulls > 0 || !profile.is_countable() || profile.is_key() {
            None
        } else if numbers_within(tokens) {
            Some(Role::Number)
        } else if subject.references.iter().any(|reference| reference.columns == [column]) {
            Some(Role::Reference)
        } else if names_rows(tokens) || may_number_rows(tokens) {
            Some(Role::Name)
        } else {
            (!names_speak && kind(profile).is_some()).then_some(Role::Value)
        }
    };
    let parts = (0..subject.profiles.len()).filter_map(|column| Some((role(column)?, column)));
    parts.take(PART_LIMIT).collect()
}

/// Returns all lists of `size` parts, each in the order of the parts.
fn combinations(parts: &[(Role, usize)], size: usize) -> Vec<Vec<(Role, usize)>> {
    if size == 0 {
        return vec![vec![]];
    }
    let mut lists = Vec::new();
    for (place, &part) in parts.iter().enumerate() {
        for mut list in combinations(&parts[place + 1..], size - 1) {
            list.insert(0, part);
            lists.push(list);
        }
    }
    lists
}

/// Whether the roles of columns make a key: values without a name only beside a reference.
fn is_meant(list: &[(Role, usize)]) -> bool {
    let has = |role: Role| list.iter().any(|&(other, _)| other == role);
    !has(Role::Value) || has(Role::Reference)
}

/// Whether uniqueness of these columns is evidence of a key: their values have at least as many
/// combinations as there are rows, and few enough that chance would repeat some.
fn is_significant(subject: &Subject, list: &[(Role, usize)]) -> bool {
    let counts = list.iter().map(|&(_, column)| subject.profiles[column].values.estimate());
    let combinations: f64 = counts.product();
    let rows = subject.profiles[list[0].1].rows as f64;
    combinations >= rows && rows * (rows - 1.0) / 2.0 >= EXPECTED_PAIRS * combinations
}
