//! Sources of tables: files, a SQLite file, and databases that the Python package reads.
//!
//! A source streams Arrow record batches in row order. CSV and SQLite give their values as text,
//! unchanged; Parquet and ArrayRecord keep their Arrow types. The schema defines the meaning of the values.

#[cfg(feature = "arrayrecord")]
mod arrayrecord;
mod blocks;
mod csv;
mod files;
mod open;
mod parquet;
mod selected;
mod sqlite;
mod table_files;
pub(crate) mod typed;

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::DataType;

use crate::error::{Error, Result};
use crate::prepare::names::{did_you_mean, listed};

pub use blocks::{Blocks, FileVersion, InBlocks};
pub use open::{Connect, Database, database_name, open, open_with, shown};
pub use selected::select;

/// The number of rows of every batch but the last.
pub const BATCH_ROWS: usize = 8192;

/// The size of all texts that ends a batch.
pub(super) const BATCH_BYTES: usize = 64 << 20;

/// The most bytes of a cell that is read as text. Longer ones are mostly what a missing quote swallows.
pub(super) const CELL_BYTES_MAX: usize = 16 << 20;

/// The most columns of a table.
const COLUMNS_MAX: usize = 1 << 16;

/// The rows of a table in their order.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Relational data: named tables of rows.
pub trait Source: Send + Sync {
    /// Describes the source in messages: `folder shop`, `SQLite file shop.db`.
    fn describe(&self) -> String;

    /// Lists the names of the tables, in their order.
    ///
    /// # Errors
    /// `Io` or `Data` when the source cannot be read.
    fn names(&self) -> Result<Vec<String>>;

    /// Lists the columns of `table`, without reading its rows or another table.
    ///
    /// # Errors
    /// `Schema` when there is no such table; `Io` or `Data` when its header cannot be read.
    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>>;

    /// Lists the tables by name, without reading their rows.
    ///
    /// # Errors
    /// `Io` or `Data` when a table's header cannot be read.
    fn tables(&self) -> Result<Vec<SourceTable>>;

    /// Lists the names of the views: tables that are queries over others.
    ///
    /// # Errors
    /// As [`Source::tables`].
    fn views(&self) -> Result<Vec<String>> {
        Ok(vec![])
    }

    /// Streams the rows of `table` in their order, with `columns` in that order. Texts may come as views.
    ///
    /// # Determinism
    /// The rows come in the order of the source, whatever the columns.
    ///
    /// # Errors
    /// `Schema` when there is no such table or column; the message suggests the nearest name. `Io`
    /// and `Data`, also in the middle of the stream, when the source cannot be read.
    fn read(&self, table: &str, columns: &[String]) -> Result<Batches>;

    /// Returns the source as one whose tables are cut into blocks; `None` if other processes could not tell
    /// that they read the same rows.
    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        None
    }
}

/// A table as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// The table's name in the source.
    pub name: String,
    /// The columns, in the source's order.
    pub columns: Vec<SourceColumn>,
    /// The columns of the declared primary key; empty if there is none.
    pub key: Vec<String>,
    /// The declared foreign keys.
    pub references: Vec<DeclaredReference>,
}

/// A column as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceColumn {
    /// The column's name.
    pub name: String,
    /// The type of the column's arrays.
    pub data_type: DataType,
    /// The declared type, if the arrays are text in any case (SQLite).
    pub declared: Option<String>,
}

/// A foreign key that the source declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredReference {
    /// The columns of this table.
    pub columns: Vec<String>,
    /// The table referred to.
    pub to: String,
    /// The columns referred to; empty if they are that table's key.
    pub to_columns: Vec<String>,
}

/// Returns the positions of the columns `names` among `columns`.
///
/// # Errors
/// `Schema` for a column that is not there.
pub fn positions(columns: &[SourceColumn], names: &[String]) -> Result<Vec<usize>> {
    let places: HashMap<&str, usize> =
        columns.iter().enumerate().map(|(place, column)| (&*column.name, place)).collect();
    let position = |name: &String| {
        places.get(&**name).copied().ok_or_else(|| {
            let known = columns.iter().map(|c| c.name.as_str());
            Error::schema(format!("there is no column {name:?}; {}", did_you_mean(name, known)))
        })
    };
    names.iter().map(position).collect()
}

/// Returns the error about a cell of `bytes` bytes.
pub(super) fn too_long(bytes: usize) -> Error {
    Error::limit(format!(
        "expected a cell of at most {} MiB, found one of {} MiB; shorten it",
        CELL_BYTES_MAX >> 20,
        bytes.div_ceil(1 << 20)
    ))
}

/// Checks that a table has few enough columns.
pub(crate) fn check_count(columns: usize) -> Result<()> {
    match columns <= COLUMNS_MAX {
        true => Ok(()),
        false => Err(Error::limit(format!(
            "expected at most {COLUMNS_MAX} columns, found {columns}; split the table"
        ))),
    }
}

/// Checks that every column has a name, and no two have the same.
///
/// # Errors
/// `Data` or `LimitExceeded`.
pub fn check_names(columns: &[SourceColumn]) -> Result<()> {
    check_count(columns.len())?;
    let mut places = HashMap::with_capacity(columns.len());
    for (index, column) in columns.iter().enumerate() {
        if column.name.is_empty() {
            let hint = match index {
                0 => {
                    "; if pandas wrote its index, write the file with index=False; otherwise name \
                     the column"
                }
                _ => "; name the column",
            };
            return Err(Error::data(format!(
                "column {} has no name; found the names {}{hint}",
                index + 1,
                listed(columns.iter().map(|c| c.name.as_str()))
            )));
        }
        if let Some(earlier) = places.insert(&*column.name, index) {
            return Err(Error::data(format!(
                "columns {} and {} are both named {:?}; rename one of them",
                earlier + 1,
                index + 1,
                column.name
            )));
        }
    }
    Ok(())
}
