//! Keys and references: declared, or guessed by name and verified by value.

use super::profile::{Profile, Storage, unresolved_rows, without_point};
use super::subject::{Gaps, Link, Notes, Place, Subject, counted, share};
use super::words::{is_uuid, key_rank, names_rows, names_same_table, reference_rank};
use crate::error::Result;
use crate::prepare::schema::{Limits, Reference};
use crate::prepare::source::{DeclaredReference, Source};

impl Link {
    /// The reference as the schema says it.
    pub(super) fn reference(&self, subjects: &[Subject], of: &Subject) -> Reference {
        Reference {
            columns: self.columns.iter().map(|&c| of.source.columns[c].name.clone()).collect(),
            to: subjects[self.to].name.clone(),
            to_columns: self.to_columns.clone(),
        }
    }

    /// The name of that reference.
    pub(super) fn name(&self, of: &Subject) -> String {
        let columns = self.columns.iter().map(|&c| of.source.columns[c].name.as_str());
        columns.collect::<Vec<_>>().join("+")
    }

    /// How many rows refer to none, as far as was counted: a NULL in a part of it is enough.
    pub(super) fn lost(&self, of: &Subject) -> u64 {
        let nulls = self.columns.iter().map(|&column| of.profiles[column].nulls).max();
        nulls.unwrap_or(0) + self.unresolved.unwrap_or(0)
    }

    /// The same as a share; where not all was counted, some rows may.
    pub(super) fn gaps(&self, of: &Subject) -> Gaps {
        let counted = Gaps::of(self.lost(of), of.profiles[self.columns[0]].rows);
        if self.unresolved.is_none() { counted.min(Gaps::Few) } else { counted }
    }
}

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
    // A uuid is what a row is known by elsewhere, where the table has a plainer key.
    let rank = |column: usize| {
        let words = &subject.column_words[column];
        let rank = key_rank(words, &subject.words)?;
        let is_uuid = is_uuid(words);
        Some((rank.max(u32::from(is_uuid)), is_uuid, column))
    };
    let mut candidates: Vec<_> = (0..subject.profiles.len()).filter_map(rank).collect();
    candidates.sort_unstable();
    let keys = candidates.iter().filter(|&&(.., column)| subject.profiles[column].is_key());
    let referring = |column| referring_columns(subjects, index, column, limits);
    let ranked = keys.map(|&(.., column)| (referring(column), column));
    // Of those that as many refer to, the first.
    if let Some((_, column)) = ranked.rev().max_by_key(|&(count, _)| count) {
        return (vec![column], "by its name; unique and never NULL".into());
    }
    let note = match candidates.first().filter(|(rank, ..)| *rank < 3) {
        Some(&(.., column)) => {
            let name = &subject.source.columns[column].name;
            let profile = &subject.profiles[column];
            let fault = match profile.nulls {
                0 if !profile.is_countable() => "is neither text nor integers".to_owned(),
                0 => "is not unique".to_owned(),
                nulls => format!("is NULL in {}", counted(nulls, "row")),
            };
            format!("no key: {name:?} {fault}")
        }
        None => "no key: no column is named like one and unique".into(),
    };
    (vec![], note)
}

/// How many columns of other tables are named like a reference to a table and hold values of this
/// column of it.
fn referring_columns(subjects: &[Subject], to: usize, key: usize, limits: &Limits) -> u64 {
    let parent = &subjects[to];
    let refers = |other: &Subject, column: usize| {
        let words = &other.column_words[column];
        reference_rank(words, &parent.words, &parent.column_words[key]).is_some()
            && counts(&other.profiles[column], &parent.profiles[key])
                .is_some_and(|(count, missing)| count > 0 && are_few(missing, count, limits))
    };
    let others = subjects.iter().enumerate().filter(|&(other, _)| other != to);
    let columns = |other: &Subject| (0..other.profiles.len()).filter(|&c| refers(other, c)).count();
    others.map(|(_, other)| columns(other) as u64).sum()
}

/// Where columns stand; none where one is missing.
fn places(subject: &Subject, names: &[String]) -> Option<Vec<usize>> {
    let place = |name: &String| subject.source.columns.iter().position(|c| c.name == *name);
    names.iter().map(place).collect()
}

/// Finds each table's references.
pub(super) fn find_links(
    source: &dyn Source,
    limits: &Limits,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    for index in 0..subjects.len() {
        let mut finder = Finder { source, limits, subjects, index, notes: vec![] };
        let mut links = finder.declared()?;
        let taken: Vec<_> = links.iter().flat_map(|link| link.columns.clone()).collect();
        for column in (0..subjects[index].profiles.len()).filter(|c| !taken.contains(c)) {
            links.extend(finder.guessed(column)?);
        }
        let found = finder.notes;
        let subject = &mut subjects[index];
        for (place, note) in found {
            notes.insert((subject.name.clone(), place), note);
        }
        subject.links = links;
    }
    Ok(())
}

/// Looks for the references of one table.
struct Finder<'a> {
    source: &'a dyn Source,
    limits: &'a Limits,
    subjects: &'a [Subject],
    index: usize,
    notes: Vec<(Place, String)>,
}

/// Whether a column is named as the key of its own table is: `id`, `user_id` in `users`.
fn names_own_rows(subject: &Subject, column: usize) -> bool {
    key_rank(&subject.column_words[column], &subject.words).is_some_and(|rank| rank <= 1)
}

/// How much of a column a key holds.
struct Containment {
    holds: bool,
    /// How many rows are not, NULL apart, where it holds.
    unresolved: u64,
    words: String,
}

impl Finder<'_> {
    fn subject(&self) -> &Subject {
        &self.subjects[self.index]
    }

    /// The declared references that the data do not contradict.
    fn declared(&mut self) -> Result<Vec<Link>> {
        let mut links: Vec<Link> = Vec::new();
        for reference in self.subject().source.references.clone() {
            let Some((link, parent)) = self.settle(&reference) else { continue };
            let name = link.name(self.subject());
            if links.iter().any(|earlier| earlier.columns == link.columns) {
                continue;
            }
            let Some(parent) = parent else {
                self.notes.push((Place::Reference(name), "declared".into()));
                links.push(link);
                continue;
            };
            let found = self.contained(link.columns[0], link.to, parent)?;
            if found.holds {
                self.notes.push((Place::Reference(name), format!("declared; {}", found.words)));
                links.push(Link { unresolved: Some(found.unresolved), ..link });
            } else {
                let to = &self.subjects[link.to].name;
                let note = format!("declared to refer to {to:?}, but {}", found.words);
                self.notes.push((Place::Column(name), note));
            }
        }
        Ok(links)
    }

    /// A declared reference in places, with the parent's column where it is a single one.
    fn settle(&self, reference: &DeclaredReference) -> Option<(Link, Option<usize>)> {
        let columns = places(self.subject(), &reference.columns)?;
        let to = self.subjects.iter().position(|s| s.source.name == reference.to)?;
        let parent = &self.subjects[to];
        let targets = match reference.to_columns.is_empty() {
            true => parent.key.clone(),
            false => places(parent, &reference.to_columns)?,
        };
        if targets.len() != columns.len() || targets.is_empty() {
            return None;
        }
        let to_columns = if targets == parent.key { vec![] } else { reference.to_columns.clone() };
        let single = (targets.len() == 1).then(|| targets[0]);
        Some((Link { columns, to, to_columns, unresolved: None }, single))
    }

    /// The reference that a column is, by its name or by its values.
    fn guessed(&mut self, column: usize) -> Result<Option<Link>> {
        let subject = self.subject();
        let profile = &subject.profiles[column];
        let comparable =
            matches!(profile.storage, Storage::Text | Storage::Integer | Storage::Real);
        if !comparable || profile.present() == 0 {
            return Ok(None);
        }
        // A table's own key is not a reference to a table that shares it.
        if subject.key == [column] && names_own_rows(subject, column) {
            return Ok(None);
        }
        let name = subject.source.columns[column].name.clone();
        let mut refused = None;
        for to in self.named_parents(column) {
            let [target] = self.subjects[to].key[..] else { continue };
            let found = self.contained(column, to, target)?;
            if found.holds {
                let note = format!("by its name; {}", found.words);
                self.notes.push((Place::Reference(name), note));
                return Ok(Some(Self::link(column, to, found.unresolved)));
            }
            let parent = &self.subjects[to].name;
            refused.get_or_insert(format!(
                "named like a reference to {parent:?}, but {}",
                found.words
            ));
        }
        let Some(to) = self.only_container(column) else {
            self.notes.extend(refused.map(|note| (Place::Column(name), note)));
            return Ok(None);
        };
        let note = "its values are keys of this table and of no other".to_owned();
        self.notes.push((Place::Reference(name), note));
        Ok(Some(Self::link(column, to, 0)))
    }

    fn link(column: usize, to: usize, unresolved: u64) -> Link {
        Link { columns: vec![column], to, to_columns: vec![], unresolved: Some(unresolved) }
    }

    /// The tables that a column's name may mean, the likeliest first.
    fn named_parents(&self, column: usize) -> Vec<usize> {
        let subject = self.subject();
        let words = &subject.column_words[column];
        let mut ranked = Vec::new();
        for (to, parent) in self.subjects.iter().enumerate() {
            let [key] = parent.key[..] else { continue };
            if to == self.index && (key == column || names_own_rows(subject, column)) {
                continue;
            }
            let rank = reference_rank(words, &parent.words, &parent.column_words[key]);
            let upward = (to == self.index && names_same_table(words)).then_some(1);
            ranked.extend(rank.or(upward).map(|rank| (u32::MAX - rank, to)));
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, to)| to).collect()
    }

    /// The one table whose key holds all of a column's text identifiers.
    fn only_container(&self, column: usize) -> Option<usize> {
        let profile = &self.subject().profiles[column];
        let is_slug = profile.storage == Storage::Text && profile.numbers == 0;
        if !is_slug
            || !names_rows(&self.subject().column_words[column])
            || profile.values.count().is_none_or(|count| count < 2)
        {
            return None;
        }
        let holds = |to: &usize| match self.subjects[*to].key[..] {
            [key] if *to != self.index => {
                profile.values.missing_from(&self.subjects[*to].profiles[key].values) == 0
            }
            _ => false,
        };
        let mut found = (0..self.subjects.len()).filter(holds);
        let first = found.next()?;
        found.next().is_none().then_some(first)
    }

    /// Whether the values of `column` are found in a parent's column.
    fn contained(&self, column: usize, to: usize, target: usize) -> Result<Containment> {
        let subject = self.subject();
        let profile = &subject.profiles[column];
        let keys = &self.subjects[to].profiles[target];
        let Some((count, missing)) = counts(profile, keys) else {
            let words = "its values could not be compared".to_owned();
            return Ok(Containment { holds: false, unresolved: 0, words });
        };
        let lost = format!("{} values are no key there", share(missing, count));
        let few = |missing: u64, of: u64| are_few(missing, of, self.limits);
        if missing == 0 {
            let words = match count {
                1 => "its one value is a key there".to_owned(),
                count => format!("all {count} values are keys there"),
            };
            return Ok(Containment { holds: true, unresolved: 0, words });
        }
        // Few values can be many rows, and it is rows that `prepare` counts.
        let name = &subject.source.columns[column];
        let unresolved = |rewrite| {
            unresolved_rows(self.source, &subject.source.name, name, &keys.values, rewrite)
        };
        if few(missing, count) {
            let rows = unresolved(|word| word)?;
            let words = format!("{lost}, in {} rows", share(rows, profile.present()));
            let holds = few(rows, profile.present());
            return Ok(Containment { holds, unresolved: rows, words });
        }
        let pointed = profile.pointed > 0 && profile.all(profile.integers + profile.pointed);
        let words = match pointed && few(unresolved(bare)?, profile.present()) {
            true => format!(
                "{lost}: it has 1.0 where they are 1, as pandas writes integers with gaps; write \
                 integers (astype(\"Int64\") in pandas)"
            ),
            false => lost,
        };
        Ok(Containment { holds: false, unresolved: 0, words })
    }
}

/// A word such as `1.0` as the integer 1; others as they are.
fn bare(word: &str) -> &str {
    without_point(word).unwrap_or(word)
}

/// Whether so many of a reference's values may be no key.
fn are_few(missing: u64, of: u64, limits: &Limits) -> bool {
    missing as f64 <= of as f64 * limits.unresolved_share
}

/// How many different values a column has, and how many of them are no key.
fn counts(column: &Profile, keys: &Profile) -> Option<(u64, u64)> {
    keys.values.count()?;
    Some((column.values.count()?, column.values.missing_from(&keys.values)))
}
