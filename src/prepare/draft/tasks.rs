//! Finds tasks: tables of seeds, and cells worth predicting.

use std::collections::BTreeMap;

use super::profile::Storage;
use super::subject::{Notes, Origin, Place, Subject};
use super::time_names::Gaps;
use crate::prepare::schema::{CellTask, DerivedTask, Limits, ScaleName, Table, Task};
use crate::store::SemanticType;

/// The names of the recorded splits of a task.
const SPLITS: [&str; 3] = ["train", "val", "test"];

/// Finds the tables that hold the seeds of a task: a key, a time, a target and maybe a split.
pub(super) fn find_derived(subjects: &[Subject]) -> BTreeMap<usize, Task> {
    let task = |index| derived(subjects, index).map(|task| (index, task));
    let mut tasks: BTreeMap<_, _> = (0..subjects.len()).filter_map(task).collect();
    // The schema needs every table that another one refers to.
    let referred: Vec<_> = subjects
        .iter()
        .flat_map(|subject| &subject.references)
        .map(|reference| reference.to)
        .collect();
    tasks.retain(|index, _| !referred.contains(index));
    tasks
}

fn derived(subjects: &[Subject], index: usize) -> Option<Task> {
    let subject = &subjects[index];
    let named =
        |wanted: &str| subject.column_tokens.iter().position(|tokens| tokens[..] == [wanted]);
    let [reference] = &subject.references[..] else { return None };
    let [key] = reference.columns[..] else { return None };
    let named_target = named("target").or_else(|| named("label"));
    let is_time = |&column: &usize| {
        let profile = &subject.profiles[column];
        profile.all(profile.times) && profile.nulls == 0 && named_target != Some(column)
    };
    // One of two times may be the target.
    let times: Vec<_> = (0..subject.profiles.len()).filter(is_time).collect();
    let [time] = times[..] else { return None };
    let split = named("split").filter(|&split| {
        subject.profiles[split].nulls == 0 && subject.profiles[split].values.are_among(&SPLITS)
    });
    let is_other = |&column: &usize| ![Some(key), Some(time), split].contains(&Some(column));
    let mut others = (0..subject.profiles.len()).filter(is_other);
    let (Some(target), None) = (others.next(), others.next()) else { return None };
    // Rows with a split are seeds, whatever the name of their target.
    let is_task = split.is_some() || named_target == Some(target);
    if !is_task || reference.gaps(subject) != Gaps::None || !reference.to_columns.is_empty() {
        return None;
    }
    let profile = &subject.profiles[target];
    let (guessed, _) = super::columns::guess(subject, target, &Limits::default());
    let target_type = match guessed.semantic {
        SemanticType::Numerical if profile.all(profile.bits) => SemanticType::Boolean,
        SemanticType::Text | SemanticType::Identifier | SemanticType::Ignored => return None,
        semantic => semantic,
    };
    let name = |column: usize| subject.source.columns[column].name.clone();
    let derived = DerivedTask {
        anchor: subjects[reference.to].name.clone(),
        source: Some(subject.source.name.clone()),
        sql: None,
        key: vec![name(key)],
        time: Some(name(time).into()),
        target: name(target),
        target_type,
        scale: match guessed.scale {
            ScaleName::Log if target_type == guessed.semantic => ScaleName::Log,
            _ => ScaleName::Linear,
        },
        split: split.map(name),
        horizon: None,
    };
    let is_unused = |name: &&str| subjects.iter().all(|s| !s.name.eq_ignore_ascii_case(name));
    let short = subject.name.strip_prefix("task_").filter(|name| !name.is_empty());
    let task_name = short.filter(is_unused).unwrap_or(&subject.name).to_owned();
    Some(Task {
        name: task_name,
        cell: None,
        derived: Some(derived),
        predict: None,
        sees_everything: false,
        strict: false,
    })
}

/// Returns a task for each column that is worth predicting: not a key, a time or a constant.
///
/// Leaves out a column whose task would have the name of a derived task.
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
            // A rank does not keep the number exactly.
            let is_rank = found.scale == ScaleName::Rank;
            // The links of a row would reveal the target if a person takes the reference as right.
            let may_link =
                subject.doubtful.iter().any(|(reference, _)| reference.columns.contains(&place));
            if !predictable || is_rank || may_link || is_constant(subject, place) {
                continue;
            }
            let name = format!("{}.{column}", table.name);
            let fits = name.len() <= 200 && !name.contains(['/', '\\']);
            // Some file systems treat two names that differ only in case as one file.
            if !fits || name.contains(char::is_control) || names.contains(&name.to_lowercase()) {
                continue;
            }
            names.push(name.to_lowercase());
            let cell = CellTask { table: table.name.clone(), column: column.clone(), hide: vec![] };
            let warning = timeless_warning(subject);
            let sees_everything = warning.is_some();
            notes.extend(
                warning.map(|note| ((table.name.clone(), Place::Task(name.clone())), note)),
            );
            tasks.push(Task {
                name,
                cell: Some(cell),
                derived: None,
                predict: None,
                sees_everything,
                strict: false,
            });
        }
    }
    tasks
}

/// Returns a warning if rows of a table have no time, and as seeds would see the future.
fn timeless_warning(subject: &Subject) -> Option<String> {
    let name = &subject.name;
    match &subject.time {
        None => Some(format!(
            "{name:?} has no time, so its seeds see all rows, also later ones; give {name:?} a \
             time and delete this line"
        )),
        Some(time) if time.gaps != Gaps::None => Some(format!(
            "rows of {name:?} may have no time, and as seeds they see all rows, also later ones; \
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
