//! Finds keys and references: declared ones, and ones guessed by name and verified by value.

use super::name_tokens::{is_uuid, key_rank, names_rows, names_same_table, reference_rank};
use super::profile::{Profile, Storage, unresolved_rows, without_point};
use super::subject::{FoundReference, Notes, Place, Subject, share};
use super::time_names::Gaps;
use crate::error::Result;
use crate::prepare::names::counted;
use crate::prepare::schema::{Limits, Reference};
use crate::prepare::source::{DeclaredReference, Source};

impl FoundReference {
    /// Returns the reference as a schema has it.
    pub(super) fn to_schema(&self, subjects: &[Subject], of: &Subject) -> Reference {
        Reference {
            columns: self.columns.iter().map(|&c| of.source.columns[c].name.clone()).collect(),
            to: subjects[self.to].name.clone(),
            to_columns: self.to_columns.clone(),
        }
    }

    /// Returns the name of the reference: its columns, joined by `+`.
    pub(super) fn name(&self, of: &Subject) -> String {
        let columns = self.columns.iter().map(|&c| of.source.columns[c].name.as_str());
        columns.collect::<Vec<_>>().join("+")
    }

    /// Counts the rows without a parent, as far as the draft counted.
    pub(super) fn missing_rows(&self, of: &Subject) -> u64 {
        self.null_rows(of) + self.unresolved.unwrap_or(0)
    }

    /// Counts the rows whose reference is NULL: one NULL part is enough.
    pub(super) fn null_rows(&self, of: &Subject) -> u64 {
        let nulls = self.columns.iter().map(|&column| of.profiles[column].nulls).max();
        nulls.unwrap_or(0)
    }

    /// Returns the share of rows without a parent; `Few` at best where not all rows were counted.
    pub(super) fn gaps(&self, of: &Subject) -> Gaps {
        let counted = Gaps::of(self.missing_rows(of), of.profiles[self.columns[0]].rows);
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
    // A uuid identifies a row in other systems if the table has a plainer key.
    let rank = |column: usize| {
        let tokens = &subject.column_tokens[column];
        let rank = key_rank(tokens, &subject.tokens)?;
        let is_uuid = is_uuid(tokens);
        Some((rank.max(u32::from(is_uuid)), is_uuid, column))
    };
    let mut candidates: Vec<_> = (0..subject.profiles.len()).filter_map(rank).collect();
    candidates.sort_unstable();
    let keys = candidates.iter().filter(|&&(.., column)| subject.profiles[column].is_key());
    let referring = |column| referring_columns(subjects, index, column, limits);
    let ranked = keys.map(|&(.., column)| (referring(column), column));
    // The first of those that equally many columns refer to.
    if let Some((_, column)) = ranked.rev().max_by_key(|&(count, _)| count) {
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
            && counts(&other.profiles[column], &parent.profiles[key])
                .is_some_and(|(count, missing)| count > 0 && are_few(missing, count, limits))
    };
    let others = subjects.iter().enumerate().filter(|&(other, _)| other != to);
    let columns = |other: &Subject| (0..other.profiles.len()).filter(|&c| refers(other, c)).count();
    others.map(|(_, other)| columns(other) as u64).sum()
}

/// Returns the positions of columns; `None` if one is missing.
fn places(subject: &Subject, names: &[String]) -> Option<Vec<usize>> {
    let place = |name: &String| subject.source.columns.iter().position(|c| c.name == *name);
    names.iter().map(place).collect()
}

/// Finds each table's references.
pub(super) fn find_references(
    source: &dyn Source,
    limits: &Limits,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    for index in 0..subjects.len() {
        let mut finder = Finder { source, limits, subjects, index, notes: vec![] };
        let mut references = finder.declared()?;
        let taken: Vec<_> =
            references.iter().flat_map(|reference| reference.columns.clone()).collect();
        for column in (0..subjects[index].profiles.len()).filter(|c| !taken.contains(c)) {
            references.extend(finder.guessed(column)?);
        }
        let found = finder.notes;
        let subject = &mut subjects[index];
        for (place, note) in found {
            notes.insert((subject.name.clone(), place), note);
        }
        subject.references = references;
    }
    Ok(())
}

/// Finds the references of one table.
struct Finder<'a> {
    source: &'a dyn Source,
    limits: &'a Limits,
    subjects: &'a [Subject],
    index: usize,
    notes: Vec<(Place, String)>,
}

/// Whether a column has the name of its own table's key: `id`, or `user_id` in `users`.
fn names_own_rows(subject: &Subject, column: usize) -> bool {
    key_rank(&subject.column_tokens[column], &subject.tokens).is_some_and(|rank| rank <= 1)
}

/// Which of a column's values are keys of a parent table.
struct Containment {
    /// Whether enough of the values are keys.
    holds: bool,
    /// How many rows have another value than NULL that is not a key.
    unresolved: u64,
    /// The finding in words, for a note.
    reason: String,
}

impl Finder<'_> {
    fn subject(&self) -> &Subject {
        &self.subjects[self.index]
    }

    /// Returns the declared references that the data do not contradict.
    fn declared(&mut self) -> Result<Vec<FoundReference>> {
        let mut references: Vec<FoundReference> = Vec::new();
        for declared in self.subject().source.references.clone() {
            let Some((reference, parent)) = self.resolve(&declared) else { continue };
            let name = reference.name(self.subject());
            if references.iter().any(|earlier| earlier.columns == reference.columns) {
                continue;
            }
            let Some(parent) = parent else {
                self.notes.push((Place::Reference(name), "declared".into()));
                references.push(reference);
                continue;
            };
            let found = self.contained(reference.columns[0], reference.to, parent)?;
            if found.holds {
                self.notes.push((Place::Reference(name), format!("declared; {}", found.reason)));
                references.push(FoundReference { unresolved: Some(found.unresolved), ..reference });
            } else {
                let to = &self.subjects[reference.to].name;
                let note = format!("declared to refer to {to:?}, but {}", found.reason);
                self.notes.push((Place::Column(name), note));
            }
        }
        Ok(references)
    }

    /// Resolves the names in a declared reference to positions, with the parent's column if it is a
    /// single one.
    fn resolve(&self, reference: &DeclaredReference) -> Option<(FoundReference, Option<usize>)> {
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
        Some((FoundReference { columns, to, to_columns, unresolved: None }, single))
    }

    /// Guesses the reference of a column by its name or by its values.
    fn guessed(&mut self, column: usize) -> Result<Option<FoundReference>> {
        let subject = self.subject();
        let profile = &subject.profiles[column];
        let comparable =
            matches!(profile.storage, Storage::Text | Storage::Integer | Storage::Real);
        if !comparable || profile.present() == 0 {
            return Ok(None);
        }
        // The table's own key is not a reference to another table with the same key.
        if subject.key == [column] && names_own_rows(subject, column) {
            return Ok(None);
        }
        let name = subject.source.columns[column].name.clone();
        let mut refused = None;
        for to in self.named_parents(column) {
            let [target] = self.subjects[to].key[..] else { continue };
            let found = self.contained(column, to, target)?;
            if found.holds {
                let note = format!("by its name; {}", found.reason);
                self.notes.push((Place::Reference(name), note));
                return Ok(Some(Self::single_column(column, to, found.unresolved)));
            }
            let parent = &self.subjects[to].name;
            refused.get_or_insert(format!(
                "named like a reference to {parent:?}, but {}",
                found.reason
            ));
        }
        let Some(to) = self.only_container(column) else {
            self.notes.extend(refused.map(|note| (Place::Column(name), note)));
            return Ok(None);
        };
        let note = "its values are keys of this table only".to_owned();
        self.notes.push((Place::Reference(name), note));
        Ok(Some(Self::single_column(column, to, 0)))
    }

    fn single_column(column: usize, to: usize, unresolved: u64) -> FoundReference {
        FoundReference {
            columns: vec![column],
            to,
            to_columns: vec![],
            unresolved: Some(unresolved),
        }
    }

    /// Returns the tables that a column's name may refer to, the likeliest first.
    fn named_parents(&self, column: usize) -> Vec<usize> {
        let subject = self.subject();
        let tokens = &subject.column_tokens[column];
        let mut ranked = Vec::new();
        for (to, parent) in self.subjects.iter().enumerate() {
            let [key] = parent.key[..] else { continue };
            if to == self.index && (key == column || names_own_rows(subject, column)) {
                continue;
            }
            let rank = reference_rank(tokens, &parent.tokens, &parent.column_tokens[key]);
            let upward = (to == self.index && names_same_table(tokens)).then_some(1);
            ranked.extend(rank.or(upward).map(|rank| (u32::MAX - rank, to)));
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, to)| to).collect()
    }

    /// Returns the only table whose keys contain all of a column's text identifiers.
    fn only_container(&self, column: usize) -> Option<usize> {
        let profile = &self.subject().profiles[column];
        let is_slug = profile.storage == Storage::Text && profile.numbers == 0;
        if !is_slug
            || !names_rows(&self.subject().column_tokens[column])
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
        let mut containers = (0..self.subjects.len()).filter(holds);
        let first = containers.next()?;
        containers.next().is_none().then_some(first)
    }

    /// Compares the values of `column` with column `target` of table `to`.
    fn contained(&self, column: usize, to: usize, target: usize) -> Result<Containment> {
        let subject = self.subject();
        let profile = &subject.profiles[column];
        let keys = &self.subjects[to].profiles[target];
        let Some((count, missing)) = counts(profile, keys) else {
            let reason = "its values could not be compared".to_owned();
            return Ok(Containment { holds: false, unresolved: 0, reason });
        };
        let missing_values = format!("{} values are not keys there", share(missing, count));
        let few = |missing: u64, of: u64| are_few(missing, of, self.limits);
        if missing == 0 {
            let reason = match count {
                1 => "its one value is a key there".to_owned(),
                count => format!("all {count} values are keys there"),
            };
            return Ok(Containment { holds: true, unresolved: 0, reason });
        }
        // Few values can be many rows, and `prepare` counts rows.
        let name = &subject.source.columns[column];
        let unresolved = |rewrite| {
            unresolved_rows(self.source, &subject.source.name, name, &keys.values, rewrite)
        };
        if few(missing, count) {
            let rows = unresolved(|text| text)?;
            let reason = format!("{missing_values}, in {} rows", share(rows, profile.present()));
            let holds = few(rows, profile.present());
            return Ok(Containment { holds, unresolved: rows, reason });
        }
        let pointed = profile.pointed > 0 && profile.all(profile.integers + profile.pointed);
        let reason = match pointed && few(unresolved(without_fraction)?, profile.present()) {
            true => format!(
                "{missing_values}: it has 1.0 where the keys have 1, as pandas writes integers \
                 with missing values; write integers (astype(\"Int64\") in pandas)"
            ),
            false => missing_values,
        };
        Ok(Containment { holds: false, unresolved: 0, reason })
    }
}

/// Returns a text such as `1.0` as `1`, and any other text unchanged.
fn without_fraction(text: &str) -> &str {
    without_point(text).unwrap_or(text)
}

/// Whether `missing` values are within the limit of unresolved references.
fn are_few(missing: u64, of: u64, limits: &Limits) -> bool {
    missing as f64 <= of as f64 * limits.unresolved_share
}

/// Counts the distinct values of a column, and those that are not keys.
fn counts(column: &Profile, keys: &Profile) -> Option<(u64, u64)> {
    keys.values.count()?;
    Some((column.values.count()?, column.values.missing_from(&keys.values)))
}
