//! Remarks on the data of a store: what a person would want to know, and no error.

use super::second_pass::Undated;
use crate::prepare::names::counted;
use crate::prepare::schema::{DerivedTask, Predict, Task, What};
use crate::store::{RelationMetadata, TableMetadata};

/// Returns remarks on the rows of a table with times that have none.
pub(super) fn undated_remarks(table: &TableMetadata, undated: Undated) -> Vec<String> {
    let counts = [
        (
            undated.always,
            "have no time and are always visible; give the table a time that every row has, or leave these \
             rows out",
        ),
        (undated.never, "inherit their time from a missing row and are never visible"),
    ];
    (counts.into_iter())
        .filter(|&(count, _)| table.time.is_some() && count > 0)
        .map(|(count, remark)| {
            format!("table {:?}: {count} of {} rows {remark}", table.name, table.row_count)
        })
        .collect()
}

/// Returns a remark if the target of no seed is known at the observation of another.
pub(super) fn unknown_labels_remark(
    task: &Task,
    derived: &DerivedTask,
    times: &[i64],
) -> Option<String> {
    let horizon = derived.horizon?;
    let span = times.iter().max()?.saturating_sub(*times.iter().min()?);
    (horizon.0 > span).then(|| {
        format!(
            "task {:?}: no seed sees an earlier target, because the horizon of {horizon} is longer \
             than the {} days from the first observation to the last; correct or remove it",
            task.name,
            span / 86_400_000_000
        )
    })
}

/// Returns a remark about the histories of pairs, which a store has of all children: it does not hold which
/// of them a condition leaves out.
pub(super) fn linked_rows_remark(task: &Task, predict: &Predict) -> Option<String> {
    let is_of_some = predict.what == What::Link && predict.condition.is_some();
    is_of_some.then(|| {
        format!(
            "task {:?}: where chooses the pairs and labels; popularity and the last links, which are \
             baselines, count all rows of {:?}, also those that where leaves out",
            task.name, predict.of
        )
    })
}

/// Returns a remark on the values of a reference that no row has.
pub(super) fn unresolved_remark(
    table: &TableMetadata,
    relation: &RelationMetadata,
) -> Option<String> {
    (relation.unresolved_count > 0).then(|| {
        format!(
            "table {:?}: reference {:?} has {} without a matching row; the rows with these values \
             have no such parent",
            table.name,
            relation.name,
            counted(relation.unresolved_count, "value")
        )
    })
}
