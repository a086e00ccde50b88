//! Checks that no seed sees its own target.
//!
//! A table of the database may be read from the source of a derived task. If a seed could see the
//! row with its own target, a model would learn to copy it.

use std::collections::HashMap;

use super::row_numbers::RowNumbers;
use super::tasks::Derived;
use crate::error::{Context, Error, Result};
use crate::prepare::schema::{DerivedTask, Schema, Table};
use crate::store::{ALWAYS_VISIBLE, SEES_EVERYTHING, is_visible};

/// Whether rows of `table` reveal the targets of `task`: both have the same source.
///
/// Then row i of the table is row i of the task.
pub(super) fn reveals_target(schema: &Schema, table: &Table, task: &DerivedTask) -> bool {
    let has_its_rows = match schema.labelled_task(table) {
        Some(labelled) => labelled == task,
        None => task.source.as_deref() == Some(table.source_name()),
    };
    has_its_rows && schema.reveals(table, &task.target)
}

/// Checks that no seed of a derived task sees its own target in the database.
///
/// `times` are the times of the rows of each table that has a time and reveals a target.
pub(super) fn check(
    schema: &Schema,
    derived_tasks: &HashMap<String, Derived>,
    times: &[Option<RowNumbers<i64>>],
) -> Result<()> {
    for task in &schema.tasks {
        let (Some(derived), Some(read)) = (&task.derived, derived_tasks.get(&task.name)) else {
            continue;
        };
        for (table, times) in schema.tables.iter().zip(times) {
            if reveals_target(schema, table, derived) {
                let hidden = i64::from(task.strict);
                let seen = |&time: &i64| {
                    time.saturating_sub(if time == SEES_EVERYTHING { 0 } else { hidden })
                };
                let seen: Vec<i64> = read.obs_times().iter().map(seen).collect();
                check_table(table, derived, &seen, times.as_deref())
                    .context(|| format!("task {:?}", task.name))?;
            }
        }
    }
    Ok(())
}

fn check_table(
    table: &Table,
    task: &DerivedTask,
    obs_times: &[i64],
    times: Option<&[i64]>,
) -> Result<()> {
    let time = |row: usize| times?.get(row).copied();
    let sees = |&(row, &obs_time): &(usize, &i64)| {
        is_visible(time(row).unwrap_or(ALWAYS_VISIBLE), obs_time)
    };
    let count = obs_times.iter().enumerate().filter(sees).count();
    if count == 0 {
        return Ok(());
    }
    let (name, target) = (&table.name, &task.target);
    Err(Error::data(format!(
        "{count} of {} seeds could see their own target: table {name:?} is also read from {:?}, \
         and its row with the seed's {target:?} is visible at the observation time; remove that \
         table, give {target:?} the type ignored there and use it in no key, reference or time, or \
         give the table the time at which the target was known",
        obs_times.len(),
        table.source_name(),
    )))
}
