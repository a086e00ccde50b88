//! Whether everything that the metadata point at is inside the store.

use super::metadata::{
    ColumnStats, Metadata, RelationMetadata, TableMetadata, TargetMetadata, TimeMetadata,
};
use super::table;
use crate::error::{Error, Result};

impl Metadata {
    /// Checks that all that points somewhere points inside, so that no later read can trip.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::corrupt(format!("the metadata are wrong: {what}")));
        for (place, table) in self.tables.iter().enumerate() {
            table::check_layout(table)?;
            if table.time.as_ref().is_some_and(|time| time.delay_us() < 0) {
                return wrong(format!("rows of table {:?} are known before they are", table.name));
            }
            let is_own = |relation: &RelationMetadata| relation.child as usize == place;
            if let Some(TimeMetadata::Inherited { relation, .. }) = table.time
                && !self.relations.get(relation as usize).is_some_and(is_own)
            {
                return wrong(format!(
                    "table {:?} inherits its time through no relation of its own",
                    table.name
                ));
            }
        }
        let columns = self.tables.iter().flat_map(|t| &t.columns).chain(self.derived_columns());
        let mut column_count = 0;
        for column in columns {
            if column.index != column_count {
                return wrong(format!(
                    "column {:?} is number {}, its place is {column_count}",
                    column.name, column.index
                ));
            }
            column_count += 1;
            if let ColumnStats::Categorical { cat_emb_start, cat_emb_count } = column.stats {
                let end = u64::from(cat_emb_start) + u64::from(cat_emb_count);
                if end > u64::from(self.embedding.category_count) {
                    return wrong(format!("column {:?} has categories of others", column.name));
                }
            }
        }
        if self.embedding.column_count != column_count {
            return wrong(format!(
                "{} columns have a name's vector, and there are {column_count}",
                self.embedding.column_count
            ));
        }
        for relation in &self.relations {
            let child = self.tables.get(relation.child as usize);
            let parent = self.tables.get(relation.parent as usize);
            let inside =
                |t: &TableMetadata| u64::from(relation.parent_offset) + 4 <= u64::from(t.stride);
            if parent.is_none() || !child.is_some_and(inside) {
                return wrong(format!("relation {:?} leads nowhere", relation.name));
            }
        }
        for task in &self.tasks {
            let anchor = self.tables.get(task.anchor as usize);
            let inside = match task.target {
                TargetMetadata::Cell { column } => anchor.is_some_and(|table| {
                    (column as usize) < table.columns.len() && task.seed_count == table.row_count
                }),
                TargetMetadata::Derived { .. } => anchor.is_some(),
            };
            if !inside {
                return wrong(format!("task {:?} leads nowhere", task.name));
            }
        }
        for file in &self.files {
            let inside = |part: &str| !matches!(part, "" | "." | "..");
            if file.path.contains(['\\', '\0']) || !file.path.split('/').all(inside) {
                return wrong(format!("the file {:?} lies outside the store", file.path));
            }
        }
        Ok(())
    }
}
