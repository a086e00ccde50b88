//! A store as the walk needs it: the relations of each table, and the cells of its rows.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fold::ZScore;
use crate::plan::Plan;
use crate::store::{
    AggregateMetadata, AggregateValue, ColumnMetadata, ColumnStats, KnownMetadata, Metadata,
    Relation, SemanticType, Store, TableMetadata, TargetMetadata, TimeMetadata,
};

/// An open store, with the shape of every table for the walk.
pub(super) struct Database {
    /// The name under which it is served.
    pub name: String,
    pub store: Arc<Store>,
    pub tables: Vec<TableShape>,
    /// The child width of each relation that has one of its own in the settings.
    pub child_widths: Vec<Option<u32>>,
    pub summaries: Vec<SummaryShape>,
    /// The number of column embeddings: the tables' columns, the derived targets and the aggregates.
    pub column_count: u32,
}

/// The relations and columns of one table.
pub(super) struct TableShape {
    /// The relations to the parents of its rows.
    pub parents: Vec<TableRelation>,
    /// The relations to the children of its rows.
    pub children: Vec<TableRelation>,
    pub columns: Vec<ColumnShape>,
    pub template: Template,
    /// The aggregates of the children of its rows, those of one relation and window together.
    pub aggregates: Vec<AggregateShape>,
}

/// What the cells of every row of a table have in common, as the tensors have it: copied for each row.
#[derive(Default)]
pub(super) struct Template {
    pub semantic_types: Vec<i8>,
    pub column_ids: Vec<i32>,
    pub may_be_masked: Vec<u8>,
}

impl Template {
    fn of(columns: &[ColumnShape]) -> Self {
        Self {
            semantic_types: columns.iter().map(|column| column.semantic).collect(),
            column_ids: columns.iter().map(|column| column.column_id).collect(),
            may_be_masked: columns.iter().map(|column| u8::from(column.may_be_masked)).collect(),
        }
    }
}

/// A relation of a table, seen from one of its rows.
#[derive(Clone, Copy)]
pub(super) struct TableRelation {
    /// The number of the store's relation.
    pub index: u32,
    /// The table of the neighbours.
    pub table: u32,
}

/// An aggregate of the children of a table's rows.
#[derive(Clone, Copy)]
pub(super) struct AggregateShape {
    /// The number of the store's aggregate.
    pub number: u32,
    pub column: ColumnShape,
    pub relation: TableRelation,
    pub window_us: Option<i64>,
    pub value: AggregateValue,
    /// How long after its row a value of the column of a mean is known.
    pub known_delay_us: i64,
}

/// A summary: a table with a row for each period.
pub(super) struct SummaryShape {
    /// By which the walk reaches its rows, and their table.
    pub relation: TableRelation,
    /// Whether every seed has the latest row; else each parent has rows of its own as children.
    pub is_global: bool,
    /// The table that is summarised, and the columns of it that are.
    pub of: u32,
    pub columns: Vec<u32>,
}

/// The part of a column that every cell of it carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnShape {
    pub semantic: i8,
    pub column_id: i32,
    /// The z-score of a timestamp column.
    pub time: ZScore,
    /// Whether its cells may be masked: no model predicts an identifier, other tensors tell the time of a row and
    /// the values that link rows, the rows tell what is made of them, and a label of a test row is nothing to learn
    /// from.
    pub may_be_masked: bool,
}

impl ColumnShape {
    pub(super) fn of(column: &ColumnMetadata) -> Self {
        let time = match column.stats {
            ColumnStats::Timestamp { mean_us, std_us, .. } => ZScore { mean: mean_us, std: std_us },
            _ => ZScore { mean: 0.0, std: 0.0 },
        };
        let semantic = column.semantic();
        Self {
            semantic: semantic as i8,
            column_id: column.index as i32,
            time,
            may_be_masked: semantic != SemanticType::Identifier,
        }
    }

    /// Returns the shape of an aggregate.
    fn of_aggregate(index: u32) -> Self {
        let time = ZScore { mean: 0.0, std: 0.0 };
        Self {
            semantic: SemanticType::Numerical as i8,
            column_id: index as i32,
            time,
            may_be_masked: false,
        }
    }
}

impl Database {
    pub(super) fn new(name: String, store: Arc<Store>) -> Result<Self> {
        let metadata = store.metadata();
        let column_count = metadata.embedding.column_count;
        if i32::try_from(column_count).is_err() {
            return Err(Error::limit(format!(
                "expected at most 2^31 - 1 columns, found {column_count}; ignore some in the schema"
            )));
        }
        let mut tables: Vec<TableShape> = (metadata.tables.iter())
            .map(|table| TableShape {
                parents: Vec::new(),
                children: Vec::new(),
                columns: table.columns.iter().map(ColumnShape::of).collect(),
                template: Template::default(),
                aggregates: Vec::new(),
            })
            .collect();
        for (number, (shape, table)) in (0..).zip(tables.iter_mut().zip(&metadata.tables)) {
            for (column, of) in shape.columns.iter_mut().zip(&table.columns) {
                column.may_be_masked &= !metadata.links_rows(number, &of.name);
            }
            if let Some(TimeMetadata::Column { column, .. }) = table.time {
                shape.columns[column as usize].may_be_masked = false;
            }
        }
        for (table, column) in labels(metadata) {
            tables[table as usize].columns[column as usize].may_be_masked = false;
        }
        for summary in &metadata.summaries {
            let columns = &mut tables[summary.table as usize].columns;
            columns.iter_mut().for_each(|column| column.may_be_masked = false);
        }
        // Only now is it known of all columns whether they may be masked.
        for table in &mut tables {
            table.template = Template::of(&table.columns);
        }
        for (index, relation) in (0..).zip(&metadata.relations) {
            let (child, parent) = (relation.child, relation.parent);
            tables[child as usize].parents.push(TableRelation { index, table: parent });
            tables[parent as usize].children.push(TableRelation { index, table: child });
        }
        for (number, aggregate) in (0..).zip(&metadata.aggregates) {
            let relation = &metadata.relations[aggregate.relation as usize];
            tables[relation.parent as usize].aggregates.push(AggregateShape {
                number,
                column: ColumnShape::of_aggregate(aggregate.index),
                relation: TableRelation { index: aggregate.relation, table: relation.child },
                window_us: aggregate.window_us,
                value: aggregate.value,
                known_delay_us: known_delay_us(
                    &metadata.tables[relation.child as usize],
                    aggregate,
                ),
            });
        }
        let summaries = metadata.summaries.iter().map(|summary| SummaryShape {
            relation: TableRelation { index: summary.relation, table: summary.table },
            is_global: !metadata.has_parents(summary),
            of: summary.of,
            columns: summary.columns.clone(),
        });
        let summaries = summaries.collect();
        let child_widths = vec![None; metadata.relations.len()];
        Ok(Self { name, store, tables, child_widths, summaries, column_count })
    }

    /// Returns the summary whose rows are the children through a relation.
    pub(super) fn summary_of(&self, relation: TableRelation) -> Option<&SummaryShape> {
        self.summaries.iter().find(|summary| summary.relation.index == relation.index)
    }

    /// Returns the most references that a row of a context has: those of its table and, for a seed of
    /// any task or of the tables `anchors`, to the summaries that are of no parent.
    pub(super) fn references_max(&self, anchors: impl Iterator<Item = u32>) -> usize {
        let metadata = self.store.metadata();
        let of_table = |table: usize| self.tables[table].parents.len();
        let of_rows = (0..self.tables.len()).map(of_table);
        let to_summaries = metadata.global_summaries().count();
        let anchors = metadata.tasks.iter().map(|task| task.anchor).chain(anchors);
        let of_seeds = anchors.map(|table| of_table(table as usize) + to_summaries);
        of_rows.chain(of_seeds).max().unwrap_or(0)
    }

    pub(super) fn relation(&self, relation: TableRelation) -> &Relation {
        &self.store.relations()[relation.index as usize]
    }
}

/// Returns the columns of the store whose cells are labels of a task, or that a task hides: as table and place.
/// All columns of a table of labels are among them.
fn labels(metadata: &Metadata) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for task in &metadata.tasks {
        if let TargetMetadata::Cell { column, hide } = &task.target {
            found.extend(hide.iter().chain([column]).map(|&column| (task.anchor, column)));
        }
    }
    for (_, table) in metadata.label_tables() {
        let columns = 0..metadata.tables[table as usize].columns.len() as u32;
        found.extend(columns.map(|column| (table, column)));
    }
    found
}

/// Returns how long after its row a value of the column of a mean is known.
fn known_delay_us(children: &TableMetadata, aggregate: &AggregateMetadata) -> i64 {
    let AggregateValue::Mean { column } = aggregate.value else { return 0 };
    match children.columns[column as usize].known {
        Some(KnownMetadata::Delay { delay_us }) => delay_us,
        _ => 0,
    }
}

/// Sets the child widths of single relations in the databases, and adds them to `plan`.
pub(super) fn set_child_widths(
    databases: &mut [Database],
    widths: &[(String, u32)],
    plan: &mut Plan,
) -> Result<()> {
    for (wanted, width) in widths {
        let mut is_known = false;
        for database in &mut *databases {
            let Database { name: served_as, store, child_widths, .. } = database;
            for (relation, of_relation) in child_widths.iter_mut().enumerate() {
                let name = store.relation_name(relation);
                let full = format!("{served_as}/{name}");
                if *wanted != name && *wanted != full {
                    continue;
                }
                is_known = true;
                if of_relation.replace(*width).is_some() {
                    return Err(Error::invalid(format!(
                        "found two child widths for {full:?}; give one"
                    )));
                }
                let parent = store.relations()[relation].metadata().parent;
                let parent = &store.tables()[parent as usize].metadata().name;
                plan.add(format!("child_width/{full} -> {parent}"), u64::from(*width))?;
            }
        }
        if !is_known {
            return Err(unknown_relation(databases, wanted));
        }
    }
    Ok(())
}

fn unknown_relation(databases: &[Database], wanted: &str) -> Error {
    let names = databases.iter().flat_map(|Database { store, .. }| {
        (0..store.relations().len()).map(|relation| store.relation_name(relation))
    });
    let names = names.collect::<Vec<_>>().join(", ");
    Error::invalid(format!("child_widths: no relation is called {wanted:?}; name one of {names}"))
}
