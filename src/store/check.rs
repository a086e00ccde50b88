//! Checks that all numbers and paths of the metadata lie inside the store.

use super::metadata::{
    AggregateMetadata, AggregateValue, ColumnStats, KnownMetadata, LinkMetadata, Metadata,
    RelationMetadata, SummaryMetadata, TableMetadata, TargetMetadata, TimeMetadata,
};
use super::table;
use crate::error::{Error, Result};

impl Metadata {
    /// Checks all references of the metadata, so that no later read goes out of range.
    pub(super) fn check(&self) -> Result<()> {
        self.check_tables()?;
        self.check_columns()?;
        if !self.embedding.text_vectors && !self.embedding.text_encoding.is_f16() {
            return wrong("the texts have no vectors, and yet an encoding of vectors");
        }
        let mut relation = self.relations.len() as u32;
        for summary in &self.summaries {
            if !self.is_sound_summary(summary, relation) {
                return wrong(format!(
                    "the summary with table {} names a table, a column or a relation that does not \
                     exist",
                    summary.table
                ));
            }
            relation += u32::from(!self.has_parents(summary));
        }
        for task in &self.tasks {
            let anchor = self.tables.get(task.anchor as usize);
            let inside = match &task.target {
                TargetMetadata::Cell { column, hide } => anchor.is_some_and(|table| {
                    let mut columns = hide.iter().chain([column]);
                    columns.all(|&column| (column as usize) < table.columns.len())
                        && task.seed_count == table.row_count
                }),
                TargetMetadata::Derived { .. } => anchor.is_some(),
            };
            if !inside {
                return wrong(format!(
                    "task {:?} names a table, a column or seeds that do not exist",
                    task.name
                ));
            }
            let has_pairs = anchor.is_some_and(|table| task.seed_count == table.row_count);
            let is_sound = |link| has_pairs && self.is_sound_link(link, task.anchor);
            if !task.link().is_none_or(is_sound) {
                return wrong(format!(
                    "the pairs of task {:?} are not its seeds, or have relations that do not exist \
                     or that list them as children",
                    task.name
                ));
            }
        }
        Ok(())
    }

    fn check_tables(&self) -> Result<()> {
        for (place, table) in self.tables.iter().enumerate() {
            table::check_layout(table)?;
            if table.time.as_ref().is_some_and(|time| time.delay_us() < 0) {
                return wrong(format!("table {:?} has a negative delay", table.name));
            }
            let is_early = |known: &KnownMetadata| matches!(known, KnownMetadata::Delay { delay_us } if *delay_us < 0);
            if table.columns.iter().filter_map(|column| column.known.as_ref()).any(is_early) {
                return wrong(format!("a column of table {:?} has a negative delay", table.name));
            }
            let is_own = |relation: &RelationMetadata| relation.child as usize == place;
            if let Some(TimeMetadata::Inherited { relation, .. }) = &table.time
                && !self.relations.get(*relation as usize).is_some_and(is_own)
            {
                return wrong(format!(
                    "table {:?} inherits its time through a relation of another table",
                    table.name
                ));
            }
        }
        for relation in &self.relations {
            let child = self.tables.get(relation.child as usize);
            let parent = self.tables.get(relation.parent as usize);
            let inside =
                |t: &TableMetadata| u64::from(relation.parent_offset) + 4 <= u64::from(t.stride);
            if parent.is_none() || !child.is_some_and(inside) {
                return wrong(format!(
                    "relation {:?} names a table or an offset that does not exist",
                    relation.name
                ));
            }
        }
        Ok(())
    }

    /// Checks the numbers, the categories and the scales of all columns and aggregates.
    fn check_columns(&self) -> Result<()> {
        let columns = self.tables.iter().flat_map(|t| &t.columns).chain(self.derived_columns());
        let mut column_count = 0;
        for column in columns {
            if column.index != column_count {
                return wrong(format!(
                    "column {:?}: expected index {column_count}, found {}",
                    column.name, column.index
                ));
            }
            column_count += 1;
            if let ColumnStats::Categorical { cat_emb_start, cat_emb_count, known_count } =
                column.stats
            {
                let end = u64::from(cat_emb_start) + u64::from(cat_emb_count);
                if end > u64::from(self.embedding.category_count) {
                    return wrong(format!(
                        "the categories of column {:?} lie outside the categorical embeddings",
                        column.name
                    ));
                }
                if known_count.is_some_and(|known| known > cat_emb_count) {
                    return wrong(format!(
                        "column {:?}: expected at most {cat_emb_count} known categories, found more",
                        column.name
                    ));
                }
            }
        }
        for aggregate in &self.aggregates {
            if !self.is_sound(aggregate) || aggregate.index != column_count {
                return wrong(format!(
                    "aggregate {:?} names an index, a relation, a column or a window that does not \
                     exist",
                    aggregate.name
                ));
            }
            column_count += 1;
        }
        if self.embedding.column_count != column_count {
            return wrong(format!(
                "expected {column_count} column embeddings, one for each column and aggregate, \
                     found {}",
                self.embedding.column_count
            ));
        }
        if !self.scales_are_sound() {
            return wrong("the quantiles of a column are not in ascending order");
        }
        Ok(())
    }

    /// Whether the scale of each column can be read.
    fn scales_are_sound(&self) -> bool {
        let columns = self.tables.iter().flat_map(|table| &table.columns);
        columns.chain(self.derived_columns()).all(|column| match &column.stats {
            ColumnStats::Numerical { scale, .. } => scale.is_sound(),
            _ => true,
        })
    }

    /// Whether a summary has rows with the times of its periods, the columns that it is of, and a
    /// relation: from its rows to their parents, or `own`, the next number after all relations.
    fn is_sound_summary(&self, summary: &SummaryMetadata, own: u32) -> bool {
        let tables =
            (self.tables.get(summary.table as usize), self.tables.get(summary.of as usize));
        let (Some(table), Some(of)) = tables else { return false };
        let inside = |&column: &u32| (column as usize) < of.columns.len();
        let is_related = match self.relations.get(summary.relation as usize) {
            Some(relation) => relation.child == summary.table,
            None => summary.relation == own,
        };
        matches!(table.time, Some(TimeMetadata::Period { .. }))
            && summary.columns.iter().all(inside)
            && is_related
    }

    /// Whether pairs, the rows of table `pairs`, refer to the same tables as the rows that link these,
    /// and are children of no row: a context must not have the pairs of others.
    fn is_sound_link(&self, link: &LinkMetadata, pairs: u32) -> bool {
        let LinkMetadata { anchor, candidate, from_anchor, from_candidate, .. } = *link;
        let all = [anchor, candidate, from_anchor, from_candidate]
            .map(|relation| self.relations.get(relation as usize));
        let [Some(anchor), Some(candidate), Some(from_anchor), Some(from_candidate)] = all else {
            return false;
        };
        let mut incoming = self.relations.iter();
        anchor.child == pairs
            && candidate.child == pairs
            && anchor.edge_count == 0
            && candidate.edge_count == 0
            && incoming.all(|relation| relation.parent != pairs)
            && from_anchor.child == from_candidate.child
            && from_anchor.parent == anchor.parent
            && from_candidate.parent == candidate.parent
    }

    /// Whether an aggregate has a relation, and a window and a column of the child table.
    fn is_sound(&self, aggregate: &AggregateMetadata) -> bool {
        let relation = self.relations.get(aggregate.relation as usize);
        let Some(child) = relation.and_then(|r| self.tables.get(r.child as usize)) else {
            return false;
        };
        let is_summed = |column: u32| {
            let column = child.columns.get(column as usize);
            column.is_some_and(|column| {
                matches!(column.stats, ColumnStats::Numerical { .. } | ColumnStats::Boolean { .. })
            })
        };
        let needs_time =
            aggregate.window_us.is_some() || aggregate.value == AggregateValue::SinceLast;
        aggregate.window_us.is_none_or(|length| length > 0)
            && (child.time.is_some() || !needs_time)
            && match aggregate.value {
                AggregateValue::Mean { column } => is_summed(column),
                AggregateValue::Count | AggregateValue::SinceLast => true,
            }
    }
}

fn wrong(what: impl std::fmt::Display) -> Result<()> {
    Err(Error::corrupt(format!("the metadata are wrong: {what}; prepare the store again")))
}
