//! The labels of a task as a table: what was known of earlier targets.

use indexmap::IndexMap;

use super::{Column, DerivedTask, Reference, Schema, Table, Task, Time};
use crate::store::SemanticType;

impl Schema {
    /// Returns the schema with a table of labels for each task with a horizon.
    ///
    /// The table is named after the task: `churn labels`. Its rows are the task's. A row came to
    /// exist when its target was known: at the observation time plus the horizon.
    #[must_use]
    pub fn with_label_tables(&self) -> Self {
        let mut schema = self.clone();
        let tables = self.tasks.iter().filter_map(label_table);
        // `check` refuses a task whose table has the name of another.
        schema.tables.extend(tables.filter(|table| self.table(&table.name).is_none()));
        schema
    }

    /// Returns the task whose labels the rows of `table` are.
    pub(in crate::prepare) fn labelled_task(&self, table: &Table) -> Option<&DerivedTask> {
        let name = table.labels_of.as_ref()?;
        self.tasks.iter().find(|task| task.name == *name)?.derived.as_ref()
    }
}

/// Returns the name of the table of a task's labels.
pub(super) fn label_table_name(task: &Task) -> String {
    format!("{} labels", task.name)
}

/// Returns the table of the labels of `task`, if it has a horizon.
fn label_table(task: &Task) -> Option<Table> {
    let derived = task.derived.as_ref()?;
    let DerivedTask { anchor, source, key, time, target, .. } = derived;
    let (delay, time) = (derived.horizon?, time.clone()?);
    let mut columns: IndexMap<String, Column> =
        key.iter().map(|name| (name.clone(), SemanticType::Ignored.into())).collect();
    columns.insert(time.clone(), SemanticType::Timestamp.into());
    columns.insert(target.clone(), derived.target_column());
    Some(Table {
        name: label_table_name(task),
        source: source.clone(),
        key: Vec::new(),
        time: Some(Time { column: Some(time), through: None, delay }),
        columns,
        references: vec![Reference {
            columns: key.clone(),
            to: anchor.clone(),
            to_columns: Vec::new(),
        }],
        labels_of: Some(task.name.clone()),
    })
}
