//! Finds the columns by which rows of a table refer to other rows of it: categories to a parent.
//!
//! **Data.** The key and a column of integers that are keys of the same table, row by row, in their
//! order. That they are keys says nothing, because small integers are.
//!
//! **Rule.** A hierarchy has roots, where the column is NULL, and no circle. By chance rows would refer
//! to later rows as often as to earlier ones, and to rows with a parent as often as to roots. The
//! column is a reference where no row refers to a later row, or all refer to roots, and chance would
//! do so at most once in 1,000 times.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::evidence::{Kind, kind};
use super::name_tokens::names_rows;
use super::profile::parent_rows;
use super::subject::{FoundReference, Notes, Place, Subject, names_speak};
use crate::error::Result;
use crate::prepare::source::Source;

/// The logarithm of the chance at which an order of rows is evidence: 1 in 1,000.
const CHANCE: f64 = 6.9;
/// Larger tables are not searched.
const ROWS_MAX: u64 = 1 << 20;

/// Finds the references of tables to themselves.
pub(super) fn find_hierarchies(
    source: &dyn Source,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    let names_speak = names_speak(subjects);
    let found = |subject: &Subject| -> Result<Vec<usize>> {
        let mut found = Vec::new();
        for column in candidates(subject, names_speak) {
            let columns = &subject.source.columns;
            let columns = (&columns[subject.key[0]], &columns[column]);
            let rows = parent_rows(source, &subject.source.name, columns, ROWS_MAX as usize)?;
            if is_hierarchy(&rows) {
                found.push(column);
            }
        }
        Ok(found)
    };
    let found: Vec<_> = subjects.par_iter().map(found).collect::<Result<_>>()?;
    for (to, columns) in found.into_iter().enumerate() {
        let subject = &mut subjects[to];
        for column in columns {
            let unresolved = Some(0);
            let reference =
                FoundReference { columns: vec![column], to, to_columns: vec![], unresolved };
            let name = reference.name(subject);
            notes.remove(&(subject.name.clone(), Place::Column(name.clone())));
            let note = "by its values; keys of this table, whose rows form a hierarchy".to_owned();
            notes.insert((subject.name.clone(), Place::Reference(name)), note);
            subject.doubtful.retain(|(doubtful, _)| doubtful.columns != [column]);
            subject.references.push(reference);
        }
        subject.references.sort_by_key(|reference| reference.columns.clone());
    }
    Ok(())
}

/// Returns the columns of integers that are all keys of their own table, some of them NULL.
fn candidates(subject: &Subject, names_speak: bool) -> Vec<usize> {
    let [key] = subject.key[..] else { return vec![] };
    let keys = &subject.profiles[key];
    if kind(keys) != Some(Kind::Integer) || subject.rows() > ROWS_MAX {
        return vec![];
    }
    let may_refer = |&column: &usize| {
        let profile = &subject.profiles[column];
        column != key
            && profile.nulls > 0
            && kind(profile) == Some(Kind::Integer)
            && !subject.refers_by(column)
            && (!names_speak || names_rows(&subject.column_tokens[column]))
            && profile.values.few_missing_from(&keys.values, 0).is_some()
    };
    (0..subject.profiles.len()).filter(may_refer).collect()
}

/// Whether rows, each with the hashes of its key and of its parent's, form a hierarchy that chance
/// does not explain.
fn is_hierarchy(rows: &[(u64, Option<u64>)]) -> bool {
    let places: BTreeMap<u64, usize> =
        rows.iter().enumerate().map(|(place, &(key, _))| (key, place)).collect();
    let mut links = Vec::new();
    for (place, (_, parent)) in rows.iter().enumerate() {
        let Some(parent) = parent else { continue };
        let Some(&parent) = places.get(parent) else { return false };
        links.push((place, parent));
    }
    order_evidence(&links) >= CHANCE || root_evidence(rows, &links) >= CHANCE
}

/// Returns the logarithm of the chance that no row refers to itself or a later one; 0 if one does.
fn order_evidence(links: &[(usize, usize)]) -> f64 {
    let mut parents: Vec<_> = links.iter().map(|&(_, parent)| parent).collect();
    parents.sort_unstable();
    let mut evidence = 0.0;
    for &(place, parent) in links {
        if parent >= place {
            return 0.0;
        }
        let earlier = parents.partition_point(|&parent| parent < place);
        evidence -= (earlier as f64 / parents.len() as f64).ln();
    }
    evidence
}

/// Returns the logarithm of the chance that all rows referred to are roots; 0 if one is not.
fn root_evidence(rows: &[(u64, Option<u64>)], links: &[(usize, usize)]) -> f64 {
    let mut parents: Vec<_> = links.iter().map(|&(_, parent)| parent).collect();
    parents.sort_unstable();
    parents.dedup();
    if parents.iter().any(|&parent| rows[parent].1.is_some()) {
        return 0.0;
    }
    let (count, roots) = (rows.len(), rows.len() - links.len());
    let chance = |place: usize| ((roots - place) as f64 / (count - place) as f64).ln();
    -(0..parents.len()).map(chance).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hierarchy(parents: &[Option<u64>]) -> bool {
        let rows: Vec<_> = parents.iter().enumerate().map(|(i, p)| (i as u64 + 1, *p)).collect();
        is_hierarchy(&rows)
    }

    #[test]
    fn rows_below_earlier_rows_or_roots_are_a_hierarchy() {
        // Each row below one of those before, as employees that were hired one after the other.
        let hired: Vec<_> = (0..30).map(|i| (i > 0).then_some(i / 3 + 1)).collect();
        assert!(hierarchy(&hired));
        // Twenty kinds of four departments.
        let kinds: Vec<_> = (0..24).map(|i| (i >= 4).then(|| (i - 4) / 5 + 1)).collect();
        assert!(hierarchy(&kinds));
    }

    #[test]
    fn small_integers_with_nulls_are_not_a_hierarchy() {
        let ratings: Vec<_> = (0..200_u64).map(|i| (i % 7 > 0).then_some(i * i % 5 + 1)).collect();
        assert!(!hierarchy(&ratings));
        let ring: Vec<_> = (0..50).map(|i| (i > 0).then_some((i + 1) % 50 + 1)).collect();
        assert!(!hierarchy(&ring));
        assert!(!hierarchy(&[None, Some(1), Some(1)]));
    }
}
