//! Finds references: declared ones, and ones guessed by name and verified by value.

use super::containment::contained;
use super::evidence::MISSING;
use super::keys::places;
use super::name_tokens::{names_rows, names_same_table, reference_rank};
use super::profile::Storage;
use super::subject::{FoundReference, Notes, Place, Subject, names_own_rows, ranks};
use super::time_names::Gaps;
use crate::error::Result;
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

/// Finds each table's references.
pub(super) fn find_references(
    source: &dyn Source,
    limits: &Limits,
    subjects: &mut [Subject],
    notes: &mut Notes,
) -> Result<()> {
    let ranks = ranks(subjects);
    for index in 0..subjects.len() {
        let (notes_of_table, doubtful) = (vec![], vec![]);
        let mut finder = Finder {
            source,
            limits,
            subjects,
            ranks: &ranks,
            index,
            notes: notes_of_table,
            doubtful,
        };
        let mut references = finder.declared()?;
        let taken: Vec<_> =
            references.iter().flat_map(|reference| reference.columns.clone()).collect();
        for column in (0..subjects[index].profiles.len()).filter(|c| !taken.contains(c)) {
            references.extend(finder.guessed(column)?);
        }
        let (found, doubtful) = (finder.notes, finder.doubtful);
        let subject = &mut subjects[index];
        for (place, note) in found {
            notes.insert((subject.name.clone(), place), note);
        }
        subject.references = references;
        subject.doubtful = doubtful;
    }
    Ok(())
}

/// Finds the references of one table.
struct Finder<'a> {
    source: &'a dyn Source,
    limits: &'a Limits,
    subjects: &'a [Subject],
    /// The place of each table among those that share their keys.
    ranks: &'a [usize],
    index: usize,
    notes: Vec<(Place, String)>,
    doubtful: Vec<(FoundReference, String)>,
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
            let keys = &self.subjects[reference.to].profiles[parent];
            let child = (self.subject(), reference.columns[0]);
            let found = contained(self.source, self.limits, child, keys)?;
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
            let keys = &self.subjects[to].profiles[target];
            let found = contained(self.source, self.limits, (self.subject(), column), keys)?;
            if found.holds {
                let note = format!("by its name; {}", found.reason);
                self.notes.push((Place::Reference(name), note));
                return Ok(Some(Self::single_column(column, to, found.unresolved)));
            }
            let parent = &self.subjects[to].name;
            refused.get_or_insert((
                format!("named like a reference to {parent:?}, but {}", found.reason),
                (found.missing <= MISSING).then_some(to),
            ));
        }
        let Some(to) = self.only_container(column) else {
            match refused {
                Some((note, Some(to))) => {
                    let note = format!("{note}, more than unresolved_share allows");
                    self.doubtful.push((Self::single_column(column, to, 0), note));
                }
                Some((note, None)) => self.notes.push((Place::Column(name), note)),
                None => {}
            }
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
            // Two tables with the same keys do not refer to each other: one is first.
            let is_first = names_own_rows(parent, key) || self.ranks[to] < self.ranks[self.index];
            if subject.key == [column] && !is_first {
                continue;
            }
            let rank = reference_rank(tokens, &parent.tokens, &parent.column_tokens[key]);
            let upward = (to == self.index && names_same_table(tokens)).then_some(1);
            ranked.extend(rank.or(upward).map(|rank| (u32::MAX - rank, self.ranks[to], to)));
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(.., to)| to).collect()
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
}
