//! Finds undeclared keys of several columns: order and line, part and supplier.

use rayon::prelude::*;

use super::name_tokens::{may_number_rows, names_rows, numbers_within};
use super::profile::unique_lists;
use super::subject::{Notes, Place, Subject};
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
}

/// Finds the two or three columns that identify the rows of each table without a key.
pub(super) fn find_composite_keys(
    source: &dyn Source,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    let found = |subject: &Subject| match subject.key.is_empty() {
        true => composite_key(source, subject),
        false => Ok(None),
    };
    let keys: Vec<_> = subjects.par_iter().map(found).collect::<Result<_>>()?;
    for (subject, key) in subjects.iter_mut().zip(keys) {
        let Some(key) = key else { continue };
        let note = format!("these {} columns are unique together and never NULL", key.len());
        notes.insert((subject.name.clone(), Place::Key), note);
        subject.key = key;
    }
    Ok(())
}

/// Returns the likeliest two columns that identify a row, otherwise three.
fn composite_key(source: &dyn Source, subject: &Subject) -> Result<Option<Vec<usize>>> {
    let parts = parts(subject);
    for size in [2, 3] {
        let mut lists: Vec<_> = combinations(&parts, size)
            .into_iter()
            .filter(|list| is_significant(subject, list))
            .collect();
        // Two references are likelier than a name; a reference and a number are the likeliest.
        lists.sort_by_key(|list| {
            let least = list.iter().map(|&(role, _)| role).min();
            let most = list.iter().map(|&(role, _)| role).max();
            (most == Some(Role::Name), least, most)
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

/// Returns the columns that may be part of a key, in their order.
fn parts(subject: &Subject) -> Vec<(Role, usize)> {
    let role = |column: usize| {
        let profile = &subject.profiles[column];
        let tokens = &subject.column_tokens[column];
        if profile.nulls > 0 || !profile.is_countable() {
            None
        } else if numbers_within(tokens) {
            Some(Role::Number)
        } else if subject.references.iter().any(|reference| reference.columns == [column]) {
            Some(Role::Reference)
        } else {
            (names_rows(tokens) || may_number_rows(tokens)).then_some(Role::Name)
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

/// Whether uniqueness of these columns is evidence of a key: their values have at least as many
/// combinations as there are rows, and few enough that chance would repeat some.
fn is_significant(subject: &Subject, list: &[(Role, usize)]) -> bool {
    let counts = list.iter().map(|&(_, column)| subject.profiles[column].values.count());
    let Some(combinations) = counts.map(|count| Some(count? as f64)).product::<Option<f64>>()
    else {
        return false;
    };
    let rows = subject.profiles[list[0].1].rows as f64;
    combinations >= rows && rows * (rows - 1.0) / 2.0 >= EXPECTED_PAIRS * combinations
}
