//! Keys of several columns that nobody declared: an order and a line, a part and a supplier.

use rayon::prelude::*;

use super::profile::unique_lists;
use super::subject::{Notes, Place, Subject};
use super::words::{may_number_rows, names_rows, numbers_within};
use crate::error::Result;
use crate::prepare::source::Source;

/// The most columns of a table that may be part of such a key.
const PART_LIMIT: usize = 8;

/// The most lists of columns whose values are compared at a time, for the sake of memory.
const LIST_LIMIT: usize = 6;

/// How many pairs of rows must be expected to be alike by chance, for it to say something that none
/// is.
const TELLING: f64 = 8.0;

/// What a column is to a key that it may be part of, the likeliest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    /// A number within another table's row.
    Number,
    Reference,
    /// Something else that is named like a key.
    Name,
}

/// Gives tables without a key the two or three columns that identify their rows.
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
        let note = format!("no two rows are alike in these {}, and none is NULL", key.len());
        notes.insert((subject.name.clone(), Place::Key), note);
        subject.key = key;
    }
    Ok(())
}

/// The likeliest two columns that identify a row, or else three.
fn composite_key(source: &dyn Source, subject: &Subject) -> Result<Option<Vec<usize>>> {
    let parts = parts(subject);
    for size in [2, 3] {
        let mut lists: Vec<_> = combinations(&parts, size)
            .into_iter()
            .filter(|list| is_telling(subject, list))
            .collect();
        // Two references are likelier than any name, and a number within one is likelier yet.
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

/// The columns that may be part of a key, in their order.
fn parts(subject: &Subject) -> Vec<(Role, usize)> {
    let role = |column: usize| {
        let profile = &subject.profiles[column];
        let words = &subject.column_words[column];
        if profile.nulls > 0 || !profile.is_countable() {
            None
        } else if numbers_within(words) {
            Some(Role::Number)
        } else if subject.links.iter().any(|link| link.columns == [column]) {
            Some(Role::Reference)
        } else {
            (names_rows(words) || may_number_rows(words)).then_some(Role::Name)
        }
    };
    let parts = (0..subject.profiles.len()).filter_map(|column| Some((role(column)?, column)));
    parts.take(PART_LIMIT).collect()
}

/// The lists of `size` parts, each in the order of the parts.
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

/// Whether it says something that no two rows are alike in these columns: there are as many
/// combinations of their values as rows, and few enough for some to repeat by chance.
fn is_telling(subject: &Subject, list: &[(Role, usize)]) -> bool {
    let counts = list.iter().map(|&(_, column)| subject.profiles[column].values.count());
    let Some(combinations) = counts.map(|count| Some(count? as f64)).product::<Option<f64>>()
    else {
        return false;
    };
    let rows = subject.profiles[list[0].1].rows as f64;
    combinations >= rows && rows * (rows - 1.0) / 2.0 >= TELLING * combinations
}
