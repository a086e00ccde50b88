//! Finds references by the values of columns, whatever their names.
//!
//! **Data.** The columns that no reference has yet, and the columns whose values are unique: the keys
//! of tables, and of tables without a key each column that could be one. Integers refer to keys alone,
//! texts also to other unique columns.
//!
//! **Rule.** Each column is weighed against each unique column by [`weigh`], on the hashes that are
//! kept; of the likely ones it refers to one, in this order of preference:
//!
//! 1. the table after which the column is named;
//! 2. the column that is its table's key;
//! 3. another table than its own;
//! 4. of columns of which one refers to the other, the one that is referred to, so that rows about the
//!    same thing meet at its table; otherwise the one with the fewest values;
//! 5. the first table by [`ranks`].
//!
//! A column of unique values refers only to a table of a lower rank, so that two tables with the same
//! keys never refer to each other. Then the rows are counted that have no key there.
//!
//! **Cost.** A column and a unique column are compared by their ranges and 16 values, and only if these
//! agree by all values kept, at most 4,096 unless the column is unique. A column of which only a
//! sample is kept is read again.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rayon::prelude::*;

use super::containment::contained;
use super::evidence::{Evidence, Kind, MISSING, Naming, Verdict, kind, weigh};
use super::keys::{find_first_columns, find_referring_columns};
use super::name_tokens::{is_named_after, names_rows};
use super::profile::parent_rows;
use super::subject::{FoundReference, Notes, Place, Subject, names_own_rows, names_speak, ranks};
use crate::error::Result;
use crate::prepare::schema::Limits;
use crate::prepare::source::Source;

/// The largest share of rows of a table that refer to themselves: more are copies of the key.
const OWN_ROWS: f64 = 0.5;
/// The most rows that are read to tell copies of a key from references.
const COPY_ROWS: usize = 1 << 20;

/// A column of a table.
type At = (usize, usize);

/// A reference that values suggest.
struct Candidate {
    child: At,
    target: At,
    evidence: Evidence,
}

/// Finds the references of columns without one, and the keys that they refer to.
pub(super) fn find_by_value(
    source: &dyn Source,
    limits: &Limits,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    let search = Search::new(subjects);
    let (unique, others): (Vec<_>, Vec<_>) =
        search.children().into_iter().partition(|&at| search.profile(at).is_key());
    let mut found = search.candidates(&unique, &BTreeMap::new());
    found = without_twins(found);
    let likely = found.iter().filter(|found| found.evidence.verdict == Verdict::Likely);
    let satellites: BTreeMap<At, At> = likely.map(|found| (found.child, found.target)).collect();
    found.extend(search.candidates(&others, &satellites));
    found.sort_by_key(|candidate| candidate.child);
    let checked = found.into_par_iter().map(|candidate| check(source, limits, subjects, candidate));
    let checked: Vec<_> = checked.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    choose_keys(subjects, &checked, notes);
    find_first_columns(subjects, notes);
    for Checked { candidate, unresolved, reason, is_likely } in checked {
        let ((index, column), (to, target)) = (candidate.child, candidate.target);
        let is_key = subjects[to].key == [target];
        // A second way to the same row, such as its name.
        let is_second = |subject: &Subject| subject.references.iter().any(|r| r.to == to);
        if !is_key && is_second(&subjects[index]) {
            continue;
        }
        let name = subjects[to].source.columns[target].name.clone();
        let to_columns = if is_key { vec![] } else { vec![name] };
        let unresolved = Some(unresolved);
        let reference = FoundReference { columns: vec![column], to, to_columns, unresolved };
        let subject = &mut subjects[index];
        if is_likely {
            let place = (subject.name.clone(), Place::Column(reference.name(subject)));
            notes.remove(&place);
            let place = (subject.name.clone(), Place::Reference(reference.name(subject)));
            notes.insert(place, format!("by its values; {reason}"));
            subject.doubtful.retain(|(doubtful, _)| doubtful.columns != [column]);
            subject.references.push(reference);
        } else if !subject.doubtful.iter().any(|(doubtful, _)| doubtful.columns == [column]) {
            subject.doubtful.push((reference, reason));
        }
    }
    for subject in &mut *subjects {
        subject.references.sort_by_key(|reference| reference.columns.clone());
    }
    find_referring_columns(subjects, notes);
    follow_satellites(subjects);
    Ok(())
}

/// Lets references to a table whose key refers to another one refer to that: a review of an order's
/// delivery is one of the order, unless its column is named after the delivery.
fn follow_satellites(subjects: &mut [Subject]) {
    let hub = |subject: &Subject| {
        let own = subject.references.iter().find(|r| r.columns == subject.key)?;
        (own.to_columns.is_empty() && own.columns.len() == 1).then_some(own.to)
    };
    let hubs: Vec<_> = subjects.iter().map(hub).collect();
    let tokens: Vec<_> = subjects.iter().map(|subject| subject.tokens.clone()).collect();
    for (index, subject) in subjects.iter_mut().enumerate() {
        let names = &subject.column_tokens;
        for reference in &mut subject.references {
            let [column] = reference.columns[..] else { continue };
            let mut to = reference.to;
            while let Some(hub) = hubs[to].filter(|&hub| hub != index && hub != to) {
                if !reference.to_columns.is_empty()
                    || is_named_after(&names[column], &tokens[to], &[])
                {
                    break;
                }
                to = hub;
            }
            reference.to = to;
        }
    }
}

/// The columns to compare.
struct Search<'a> {
    subjects: &'a [Subject],
    targets: Vec<At>,
    ranks: Vec<usize>,
    /// Whether any column is named like a key, so that other names say that they are none.
    names_speak: bool,
}

impl<'a> Search<'a> {
    fn new(subjects: &'a [Subject]) -> Self {
        let names_speak = names_speak(subjects);
        let is_target = |subject: &Subject, column: usize| {
            let profile = &subject.profiles[column];
            let found = if profile.is_key() { kind(profile) } else { None };
            match &subject.key[..] {
                [] => found.is_some(),
                // Digits are counted up, as integers are.
                key => key == [column] || (found == Some(Kind::Text) && !profile.is_numeric()),
            }
        };
        let targets = all_columns(subjects).filter(|&(t, c)| is_target(&subjects[t], c)).collect();
        Self { subjects, targets, ranks: ranks(subjects), names_speak }
    }

    fn profile(&self, (table, column): At) -> &'a super::profile::Profile {
        &self.subjects[table].profiles[column]
    }

    /// Returns the columns that may refer to a table.
    fn children(&self) -> Vec<At> {
        let may_refer = |&(table, column): &At| {
            let subject = &self.subjects[table];
            let is_own_key = subject.key == [column] && names_own_rows(subject, column);
            kind(&subject.profiles[column]).is_some() && !is_own_key && !subject.refers_by(column)
        };
        all_columns(self.subjects).filter(may_refer).collect()
    }

    /// Returns the best reference of each column.
    fn candidates(&self, children: &[At], satellites: &BTreeMap<At, At>) -> Vec<Candidate> {
        children.par_iter().filter_map(|&child| self.best(child, satellites)).collect()
    }

    fn best(&self, child: At, satellites: &BTreeMap<At, At>) -> Option<Candidate> {
        let is_unique = self.profile(child).is_key();
        let is_open = |&&target: &&At| {
            let is_self = target.0 == child.0;
            let is_integer = kind(self.profile(child)) == Some(Kind::Integer);
            match is_self {
                true => target != child && !is_integer && !is_unique,
                false => !is_unique || self.ranks[target.0] < self.ranks[child.0],
            }
        };
        let open = self.targets.iter().filter(is_open);
        let found: Vec<_> = open
            .filter_map(|&target| {
                let naming = self.naming(child, target);
                let evidence = weigh(self.profile(child), self.profile(target), naming)?;
                Some((target, naming, evidence))
            })
            .collect();
        let is_listed = |at: &At| found.iter().any(|(target, ..)| target == at);
        let best = found.iter().max_by_key(|(target, naming, evidence)| {
            let to = &self.subjects[target.0];
            let is_satellite = satellites.get(target).is_some_and(is_listed);
            (
                evidence.verdict,
                *naming == Naming::Fits,
                to.key == [target.1],
                target.0 != child.0,
                !is_satellite,
                Reverse(self.profile(*target).rows),
                Reverse((self.ranks[target.0], target.1)),
            )
        });
        best.map(|&(target, _, evidence)| Candidate { child, target, evidence })
    }

    fn naming(&self, (table, column): At, (to, target): At) -> Naming {
        let tokens = &self.subjects[table].column_tokens[column];
        let parent = &self.subjects[to];
        if is_named_after(tokens, &parent.tokens, &parent.column_tokens[target]) {
            Naming::Fits
        } else if self.names_speak && !names_rows(tokens) {
            Naming::Differs
        } else {
            Naming::Silent
        }
    }
}

fn all_columns(subjects: &[Subject]) -> impl Iterator<Item = At> {
    let columns = |(table, subject): (usize, &Subject)| {
        (0..subject.profiles.len()).map(move |column| (table, column))
    };
    subjects.iter().enumerate().flat_map(columns)
}

/// Keeps one of several columns of unique values by which a table refers to another: the first.
fn without_twins(found: Vec<Candidate>) -> Vec<Candidate> {
    let mut pairs = Vec::new();
    let is_new = |candidate: &Candidate| {
        let pair = (candidate.child.0, candidate.target.0);
        let is_new = !pairs.contains(&pair);
        pairs.push(pair);
        is_new
    };
    found.into_iter().filter(is_new).collect()
}

/// A candidate whose rows are counted.
struct Checked {
    candidate: Candidate,
    unresolved: u64,
    reason: String,
    is_likely: bool,
}

/// Counts the rows that have no key there; `None` if too many have none.
fn check(
    source: &dyn Source,
    limits: &Limits,
    subjects: &[Subject],
    candidate: Candidate,
) -> Result<Option<Checked>> {
    let ((index, column), (to, target)) = (candidate.child, candidate.target);
    let (subject, parent) = (&subjects[index], &subjects[to]);
    let found = contained(source, limits, (subject, column), &parent.profiles[target])?;
    if !found.holds && found.missing > MISSING {
        return Ok(None);
    }
    if index == to && copies_key(source, subject, (target, column))? {
        return Ok(None);
    }
    let is_likely = found.holds && candidate.evidence.verdict == Verdict::Likely;
    let reason = match (candidate.evidence.reason, found.holds) {
        (_, false) => format!("{}, more than unresolved_share allows", found.reason),
        ("", true) => found.reason,
        (reason, true) => format!("{}, and {reason}", found.reason),
    };
    Ok(Some(Checked { candidate, unresolved: found.unresolved, reason, is_likely }))
}

/// Whether a column mostly repeats the key of its own row.
fn copies_key(source: &dyn Source, subject: &Subject, (key, column): At) -> Result<bool> {
    let columns = &subject.source.columns;
    let columns = (&columns[key], &columns[column]);
    let rows = parent_rows(source, &subject.source.name, columns, COPY_ROWS)?;
    let own = rows.iter().filter(|(key, value)| *value == Some(*key)).count();
    let present = rows.iter().filter(|(_, value)| value.is_some()).count();
    Ok(own as f64 > OWN_ROWS * present as f64)
}

/// Gives each table without a key the column to which most columns refer.
fn choose_keys(subjects: &mut [Subject], checked: &[Checked], notes: &mut Notes) {
    for (index, subject) in subjects.iter_mut().enumerate().filter(|(_, s)| s.key.is_empty()) {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let likely = checked.iter().filter(|c| c.is_likely && c.candidate.target.0 == index);
        likely.for_each(|c| *counts.entry(c.candidate.target.1).or_default() += 1);
        let best = counts.into_iter().max_by_key(|&(column, count)| (count, Reverse(column)));
        let Some((column, _)) = best else { continue };
        subject.key = vec![column];
        let note = "other columns refer to it; unique and never NULL".to_owned();
        notes.insert((subject.name.clone(), Place::Key), note);
    }
}
