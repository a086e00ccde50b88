//! A store as the walk needs it: what links each table to which, and the cells of its rows.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fold::ZScore;
use crate::store::{ColumnMetadata, ColumnStats, Relation, Store};

/// An open store, with what the walk wants to know of every table.
pub(super) struct Database {
    pub store: Arc<Store>,
    pub tables: Vec<TableShape>,
    /// How many columns have a name's vector: those of the tables and of the derived targets.
    pub column_count: u32,
}

/// One table among the others.
pub(super) struct TableShape {
    /// The relations by which its rows refer to others.
    pub parents: Vec<Link>,
    /// The relations by which others refer to its rows.
    pub children: Vec<Link>,
    pub columns: Vec<ColumnShape>,
}

/// A relation, and the table at its other end.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub relation: u32,
    pub table: u32,
}

/// What of a column goes into every cell of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnShape {
    pub semantic: i8,
    pub column_id: i32,
    /// How a timestamp becomes a z-score.
    pub time: ZScore,
}

impl ColumnShape {
    pub(super) fn of(column: &ColumnMetadata) -> Self {
        let time = match column.stats {
            ColumnStats::Timestamp { mean_us, std_us, .. } => ZScore { mean: mean_us, std: std_us },
            _ => ZScore { mean: 0.0, std: 0.0 },
        };
        Self { semantic: column.semantic() as i8, column_id: column.index as i32, time }
    }
}

impl Database {
    pub(super) fn new(store: Arc<Store>) -> Result<Self> {
        let metadata = store.metadata();
        let column_count = metadata.embedding.column_count;
        if i32::try_from(column_count).is_err() {
            return Err(Error::limit(format!(
                "{column_count} columns; a batch counts to 2^31 - 1"
            )));
        }
        let mut tables: Vec<TableShape> = (metadata.tables.iter())
            .map(|table| TableShape {
                parents: Vec::new(),
                children: Vec::new(),
                columns: table.columns.iter().map(ColumnShape::of).collect(),
            })
            .collect();
        for (relation, link) in (0..).zip(&metadata.relations) {
            tables[link.child as usize].parents.push(Link { relation, table: link.parent });
            tables[link.parent as usize].children.push(Link { relation, table: link.child });
        }
        Ok(Self { store, tables, column_count })
    }

    pub(super) fn relation(&self, link: Link) -> &Relation {
        &self.store.relations()[link.relation as usize]
    }
}
