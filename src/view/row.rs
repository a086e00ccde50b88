//! A row with its cells and its neighbours.

use serde::Serialize;

use super::cell::{CellView, row_name, time_text};
use super::relation::relation_name;
use crate::error::Result;
use crate::store::{ALWAYS_VISIBLE, Store, Table};

/// The most children of a row that are listed.
const CHILDREN_SHOWN: usize = 8;

/// A row with its cells and its neighbours.
#[derive(Serialize)]
pub(crate) struct RowView {
    pub(crate) table: String,
    pub(crate) row: u32,
    pub(crate) key: Option<String>,
    pub(crate) time: Option<String>,
    pub(crate) cells: Vec<CellView>,
    pub(crate) parents: Vec<Neighbours>,
    pub(crate) children: Vec<Neighbours>,
}

/// The neighbours of a row through one relation.
#[derive(Serialize)]
pub(crate) struct Neighbours {
    pub(crate) relation: String,
    pub(crate) table: String,
    pub(crate) count: usize,
    pub(crate) rows: Vec<String>,
}

impl RowView {
    pub(crate) fn of(store: &Store, table: &Table, row: u32) -> Result<Self> {
        let record = table.row(row)?;
        let cells = (table.metadata().columns.iter().enumerate())
            .map(|(place, column)| CellView::of(store, column, record.cell(place)))
            .collect::<Result<_>>()?;
        let (mut parents, mut children) = (Vec::new(), Vec::new());
        for (number, relation) in (0..).zip(store.relations()) {
            let metadata = relation.metadata();
            let child_table = &store.tables()[metadata.child as usize];
            let parent_table = &store.tables()[metadata.parent as usize];
            let name = relation_name(store, number);
            if std::ptr::eq(child_table, table) {
                let rows = relation.parent(&record)?.into_iter().map(|p| row_name(parent_table, p));
                let rows = rows.collect::<Result<Vec<_>>>()?;
                parents.push(Neighbours {
                    relation: name.clone(),
                    table: parent_table.metadata().name.clone(),
                    count: rows.len(),
                    rows,
                });
            }
            if std::ptr::eq(parent_table, table) {
                let all = relation.children(row)?.rows()?;
                let shown = all.iter().take(CHILDREN_SHOWN).map(|&c| row_name(child_table, c));
                children.push(Neighbours {
                    relation: name,
                    table: child_table.metadata().name.clone(),
                    count: all.len(),
                    rows: shown.collect::<Result<_>>()?,
                });
            }
        }
        Ok(Self {
            table: table.metadata().name.clone(),
            row,
            key: if table.metadata().key.is_empty() { None } else { Some(table.key(row)?.into()) },
            time: match record.time() {
                ALWAYS_VISIBLE => None,
                time => Some(time_text(time)),
            },
            cells,
            parents,
            children,
        })
    }
}
