//! Finds references of several columns: the part and the supplier of a line, the year and the team.
//!
//! **Data.** The tables with a key of several columns, and for each part of such a key the columns of
//! other tables that may hold it: where the part is itself a reference, the references to the same
//! table; otherwise the columns of the same name, or of equal values where names say nothing.
//!
//! **Rule.** The parts of a reference fit together: nearly all rows have a list of values that is a key.
//! Lists whose parts come from different rows are the control: if they are keys nearly as often, each
//! part is known there, but the lists say nothing, unless they have the names of the key. A column that
//! only numbers the rows of its own table within another column (1, 2, 3 .. for each) is doubtful. Where every
//! part is itself a reference and one refers to a table with times, the two tables are facts about the
//! same events, and no reference is drafted: a fastest lap and a place on the grid belong to one driver
//! in one race, but not to each other.
//!
//! **Cost.** Reads the key of each such table once, keeping eight bytes for each row, and the columns
//! of each table that may refer to it once.

use rayon::prelude::*;

use super::evidence::{Kind, MISSING, kind};
use super::profile::{Compared, Lists};
use super::subject::{FoundReference, Notes, Place, Subject, names_speak, ranks, share};
use crate::error::Result;
use crate::prepare::schema::Limits;
use crate::prepare::source::Source;

/// The most lists of columns of a table that are compared with one key.
const LIST_LIMIT: usize = 6;
/// The least share of mixed lists that are not keys, as evidence that the parts fit together.
const MIXED: f64 = 0.05;
/// The share of numbers after the first that follow another one, from which on a column numbers the rows
/// of its own table.
const NUMBERED: f64 = 0.9;
/// The fewest mixed lists that are not keys.
const FEWEST_MIXED: u64 = 20;

/// A reference of several columns, with the rows that were compared.
struct Found {
    child: usize,
    reference: FoundReference,
    compared: Compared,
    /// Whether the columns have the names of the key.
    is_named: bool,
    /// What speaks against it.
    doubt: Option<&'static str>,
}

/// Finds the references to keys of several columns.
pub(super) fn find_pairs(
    source: &dyn Source,
    limits: &Limits,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    let search = Search { source, limits, subjects, ranks: ranks(subjects) };
    let mut found = Vec::new();
    for to in (0..subjects.len()).filter(|&to| subjects[to].key.len() > 1) {
        found.extend(search.children_of(to)?);
    }
    // Of the references of the same columns the surest, with the fewest keys.
    found.sort_by_key(|found| {
        let Found { child, reference, compared, doubt, .. } = found;
        let mut columns = reference.columns.clone();
        columns.sort_unstable();
        let order = (compared.missing, subjects[reference.to].rows(), reference.to);
        (*child, doubt.is_some(), columns, order)
    });
    for Found { child, reference, compared, is_named, doubt } in found {
        let subject = &mut subjects[child];
        let shares = |other: &FoundReference| {
            other.columns.len() > 1
                && other.columns.iter().all(|column| reference.columns.contains(column))
        };
        let is_taken = subject.references.iter().any(shares);
        let is_doubted = subject.doubtful.iter().any(|(other, _)| shares(other));
        if is_taken || (doubt.is_some() && is_doubted) {
            continue;
        }
        let reason = in_words(compared);
        if let Some(doubt) = doubt {
            subject.doubtful.push((reference, format!("{reason}; {doubt}")));
            continue;
        }
        let by = if is_named { "name" } else { "values" };
        let place = Place::Reference(reference.name(subject));
        notes.insert((subject.name.clone(), place), format!("by its {by}; {reason}"));
        subject.references.push(reference);
    }
    Ok(())
}

/// Returns the counts in words, for a note.
fn in_words(Compared { rows, missing, mixed }: Compared) -> String {
    let found = match missing {
        0 => format!("all {rows} rows have a key there"),
        _ => format!("{} rows have no key there", share(missing, rows)),
    };
    format!("{found}; with parts from different rows {mixed} have none")
}

/// Finds the references to one table after the other.
struct Search<'a> {
    source: &'a dyn Source,
    limits: &'a Limits,
    subjects: &'a [Subject],
    ranks: Vec<usize>,
}

impl Search<'_> {
    /// Returns the references to the key of a table.
    fn children_of(&self, to: usize) -> Result<Vec<Found>> {
        let lists: Vec<_> = (0..self.subjects.len())
            .map(|child| (child, self.lists(child, to)))
            .filter(|(_, lists)| !lists.is_empty())
            .collect();
        if lists.is_empty() {
            return Ok(vec![]);
        }
        let keys = self.read(to).distinct(&self.subjects[to].key)?;
        let compare = |(child, lists): (usize, Vec<Vec<usize>>)| -> Result<Vec<Found>> {
            let compared = self.read(child).compare(&lists, &keys)?;
            let found = lists.into_iter().zip(compared);
            let found = found.map(|(columns, found)| self.judge(child, to, columns, found));
            Ok(found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
        };
        let found: Vec<_> = lists.into_par_iter().map(compare).collect::<Result<_>>()?;
        Ok(found.into_iter().flatten().collect())
    }

    fn read(&self, table: usize) -> Lists<'_> {
        let subject = &self.subjects[table];
        Lists { source: self.source, table: &subject.source.name, columns: &subject.source.columns }
    }

    /// Returns the lists of columns of a table that may be a key of table `to`.
    fn lists(&self, child: usize, to: usize) -> Vec<Vec<usize>> {
        let subject = &self.subjects[child];
        let is_linked = subject.references.iter().any(|r| r.to == to && r.columns.len() > 1);
        if child == to || is_linked || self.is_about_events(to) {
            return vec![];
        }
        let mut lists: Vec<Vec<usize>> = vec![vec![]];
        for &part in &self.subjects[to].key {
            let columns = self.columns_for(child, to, part);
            let longer = lists.iter().flat_map(|list| {
                let others = columns.iter().filter(|column| !list.contains(column));
                others.map(|&column| [&list[..], &[column]].concat())
            });
            lists = longer.take(LIST_LIMIT).collect();
        }
        let is_first = self.ranks[to] < self.ranks[child];
        // A table with the same key refers to the first.
        let is_key = |list: &[usize]| {
            list.len() == subject.key.len() && list.iter().all(|c| subject.key.contains(c))
        };
        lists.retain(|list| is_first || !is_key(list));
        lists
    }

    /// Returns the columns of a table that may hold one part of a key, the likeliest first.
    fn columns_for(&self, child: usize, to: usize, part: usize) -> Vec<usize> {
        let (subject, parent) = (&self.subjects[child], &self.subjects[to]);
        let refers_to = |subject: &Subject, column: usize| {
            let found = subject.references.iter().find(|r| r.columns == [column])?;
            found.to_columns.is_empty().then_some(found.to)
        };
        let all = 0..subject.profiles.len();
        if let Some(table) = refers_to(parent, part) {
            return all.filter(|&column| refers_to(subject, column) == Some(table)).collect();
        }
        let tokens = &parent.column_tokens[part];
        let is_other = |&&column: &&usize| refers_to(parent, column).is_none();
        let others = parent.key.iter().filter(is_other).count();
        let named: Vec<_> =
            all.clone().filter(|&column| subject.column_tokens[column] == *tokens).collect();
        // Values tell of one number within a reference, not of two words and a reference.
        if !named.is_empty() || names_speak(self.subjects) || others > 1 {
            return named;
        }
        let keys = &parent.profiles[part];
        let is_contained = |&column: &usize| {
            let profile = &subject.profiles[column];
            kind(profile).is_some()
                && kind(profile) == kind(keys)
                && keys.values.count().is_some()
                && profile.values.few_missing_from(&keys.values, 0).is_some()
        };
        all.filter(is_contained).collect()
    }

    /// Decides about a list of columns; `None` if too many rows have no key.
    fn judge(
        &self,
        child: usize,
        to: usize,
        columns: Vec<usize>,
        compared: Compared,
    ) -> Result<Option<Found>> {
        let (subject, parent) = (&self.subjects[child], &self.subjects[to]);
        let Compared { rows, missing, mixed } = compared;
        let is_named = (columns.iter().zip(&parent.key))
            .all(|(&column, &part)| subject.column_tokens[column] == parent.column_tokens[part]);
        let fits = mixed >= FEWEST_MIXED && mixed as f64 >= MIXED * rows as f64;
        let within = missing as f64 <= self.limits.unresolved_share * rows as f64;
        let most = if is_named { MISSING } else { self.limits.unresolved_share };
        if rows == 0 || missing as f64 > most * rows as f64 || !(fits || is_named) {
            return Ok(None);
        }
        let doubt = match within {
            false => Some("unresolved_share allows fewer without a key"),
            true if !is_named && self.numbers_own_rows(child, &columns)? => {
                Some("but a column may only number the rows within the others")
            }
            true => None,
        };
        let unresolved = Some(missing);
        let reference = FoundReference { columns, to, to_columns: vec![], unresolved };
        Ok(Some(Found { child, reference, compared, is_named, doubt }))
    }

    /// Whether a column of the list numbers the rows within the others: 1, 2, 3 .. for each.
    fn numbers_own_rows(&self, child: usize, columns: &[usize]) -> Result<bool> {
        let subject = &self.subjects[child];
        let is_number = |&&column: &&usize| {
            kind(&subject.profiles[column]) == Some(Kind::Integer) && !subject.refers_by(column)
        };
        let Some(&number) = columns.iter().find(is_number) else { return Ok(false) };
        let others: Vec<_> = columns.iter().copied().filter(|&column| column != number).collect();
        Ok(self.read(child).following_share(&others, number)? >= NUMBERED)
    }

    /// Whether each part of a key is a reference, and one of them refers to a table with times.
    fn is_about_events(&self, to: usize) -> bool {
        let parent = &self.subjects[to];
        let parts: Option<Vec<_>> = (parent.key.iter())
            .map(|&part| parent.references.iter().find(|r| r.columns == [part]).map(|r| r.to))
            .collect();
        let has_times = |&table: &usize| {
            self.subjects[table].profiles.iter().any(|profile| profile.all(profile.times))
        };
        parts.is_some_and(|tables| tables.iter().any(has_times))
    }
}
