//! What could be predicted.

use std::collections::BTreeMap;

use super::profile::Storage;
use super::subject::{Gaps, Notes, Origin, Place, Subject};
use crate::prepare::schema::{CellTask, DerivedTask, Limits, Table, Task};
use crate::store::SemanticType;

/// The names that a task's recorded splits go by.
const SPLITS: [&str; 3] = ["train", "val", "test"];

/// Finds the tables that are tasks: a key, a time, a target, perhaps a split, and nothing else.
pub(super) fn take_derived(subjects: &[Subject]) -> BTreeMap<usize, Task> {
    let task = |index| derived(subjects, index).map(|task| (index, task));
    let mut tasks: BTreeMap<_, _> = (0..subjects.len()).filter_map(task).collect();
    // A task's anchor must be a table, and so must whatever others refer to.
    let needed: Vec<_> =
        subjects.iter().flat_map(|subject| &subject.links).map(|link| link.to).collect();
    tasks.retain(|index, _| !needed.contains(index));
    tasks
}

fn derived(subjects: &[Subject], index: usize) -> Option<Task> {
    let subject = &subjects[index];
    let named = |wanted: &str| subject.column_words.iter().position(|words| words[..] == [wanted]);
    let [link] = &subject.links[..] else { return None };
    let [key] = link.columns[..] else { return None };
    let said = named("target").or_else(|| named("label"));
    let is_time = |&column: &usize| {
        let profile = &subject.profiles[column];
        profile.all(profile.times) && profile.nulls == 0 && said != Some(column)
    };
    // Of two, one may be the answer.
    let times: Vec<_> = (0..subject.profiles.len()).filter(is_time).collect();
    let [time] = times[..] else { return None };
    let split = named("split").filter(|&split| {
        subject.profiles[split].nulls == 0 && subject.profiles[split].values.are_among(&SPLITS)
    });
    let is_left = |&column: &usize| ![Some(key), Some(time), split].contains(&Some(column));
    let mut left = (0..subject.profiles.len()).filter(is_left);
    let (Some(target), None) = (left.next(), left.next()) else { return None };
    // Rows that are divided for training are a task's, whatever their target is called.
    let is_task = split.is_some() || said == Some(target);
    if !is_task || link.gaps(subject) != Gaps::None || !link.to_columns.is_empty() {
        return None;
    }
    let profile = &subject.profiles[target];
    let target_type = match super::columns::guess(subject, target, &Limits::default()).0.semantic {
        SemanticType::Numerical if profile.all(profile.bits) => SemanticType::Boolean,
        SemanticType::Text | SemanticType::Identifier | SemanticType::Ignored => return None,
        semantic => semantic,
    };
    let name = |column: usize| subject.source.columns[column].name.clone();
    let derived = DerivedTask {
        anchor: subjects[link.to].name.clone(),
        source: Some(subject.source.name.clone()),
        sql: None,
        key: vec![name(key)],
        time: Some(name(time)),
        target: name(target),
        target_type,
        split: split.map(name),
    };
    let is_free = |name: &&str| subjects.iter().all(|s| !s.name.eq_ignore_ascii_case(name));
    let short = subject.name.strip_prefix("task_").filter(|name| !name.is_empty());
    let task_name = short.filter(is_free).unwrap_or(&subject.name).to_owned();
    Some(Task { name: task_name, cell: None, derived: Some(derived), sees_everything: false })
}

/// A task for each cell that says something: no key, no time, no constant.
///
/// A cell whose name the derived task of a table has already is left out.
pub(super) fn cell_tasks(
    subjects: &[Subject],
    kept: &[usize],
    tables: &[Table],
    derived: &BTreeMap<usize, Task>,
    notes: &mut Notes,
) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let mut names: Vec<String> = derived.values().map(|task| task.name.to_lowercase()).collect();
    for (&index, table) in kept.iter().zip(tables) {
        let subject = &subjects[index];
        for (place, (column, found)) in table.columns.iter().enumerate() {
            let predictable = matches!(
                found.semantic,
                SemanticType::Numerical | SemanticType::Boolean | SemanticType::Categorical
            );
            if !predictable || is_constant(subject, place) {
                continue;
            }
            let name = format!("{}.{column}", table.name);
            let fits = name.len() <= 200 && !name.contains(['/', '\\']);
            // Two names that differ in case only are one file on some systems.
            if !fits || name.contains(char::is_control) || names.contains(&name.to_lowercase()) {
                continue;
            }
            names.push(name.to_lowercase());
            let cell = CellTask { table: table.name.clone(), column: column.clone() };
            let timeless = timeless_seeds(subject);
            let sees_everything = timeless.is_some();
            notes.extend(
                timeless.map(|note| ((table.name.clone(), Place::Task(name.clone())), note)),
            );
            tasks.push(Task { name, cell: Some(cell), derived: None, sees_everything });
        }
    }
    tasks
}

/// What is to be said when rows of a table have no time, and as seeds would see the future.
fn timeless_seeds(subject: &Subject) -> Option<String> {
    let name = &subject.name;
    match &subject.time {
        None => Some(format!(
            "{name:?} has no time, so a seed sees every row, later ones too; give {name:?} a time \
             and delete this line"
        )),
        Some(time) if time.gaps != Gaps::None => Some(format!(
            "a row of {name:?} may have no time, and as a seed it sees every row, later ones too; \
             give each row a time and delete this line"
        )),
        Some(_) => None,
    }
}

fn is_constant(subject: &Subject, column: usize) -> bool {
    let profile = &subject.profiles[column];
    let own_time = matches!(
        subject.time.as_ref().map(|time| &time.from),
        Some(Origin::Column(own, _)) if *own == column
    );
    let counted = profile.storage != Storage::Time;
    own_time || (counted && profile.values.count().is_some_and(|count| count < 2))
}
