//! Where rows come from: a folder of files, one file, or a SQLite database.
//!
//! A source streams Arrow record batches in row order. CSV and SQLite carry their values as text,
//! exactly as they stand there; Parquet passes its Arrow types through. The schema says what the
//! values mean.

mod csv;
mod files;
mod parquet;
mod sqlite;
#[cfg(feature = "python")]
pub(crate) mod typed;

use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use crate::error::{Error, Result};
use crate::prepare::names::{did_you_mean, listed};

pub use files::open;

/// How many rows a batch holds, but for the last.
pub(crate) const BATCH_ROWS: usize = 8192;

/// A column of a batch that holds this much text ends the batch, so that no offset overflows.
pub(super) const BATCH_BYTES: usize = 64 << 20;

/// A table's rows in their order.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Somebody's relational data.
pub trait Source: Send + Sync {
    /// What this is, for messages: `folder shop`, `SQLite file shop.db`.
    fn describe(&self) -> String;

    /// Lists the names of the tables, in their order.
    ///
    /// # Errors
    /// `Io` or `Data` when the source cannot be read.
    fn names(&self) -> Result<Vec<String>>;

    /// Lists the columns of `table`, without reading its rows or another table.
    ///
    /// # Errors
    /// `Schema` when the table is not there; `Io` or `Data` when its header cannot be read.
    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>>;

    /// Lists the tables by name, without reading their rows.
    ///
    /// # Errors
    /// `Io` or `Data` when a table's header cannot be read.
    fn tables(&self) -> Result<Vec<SourceTable>>;

    /// The names of those tables that are queries over others, and have no rows of their own.
    ///
    /// # Errors
    /// As [`Source::tables`].
    fn views(&self) -> Result<Vec<String>> {
        Ok(vec![])
    }

    /// Streams the rows of `table` in their order, with the columns asked for, in that order.
    ///
    /// # Determinism
    /// The rows come in the order of the source, whichever columns are asked for.
    ///
    /// # Errors
    /// `Schema` when the table or a column is not there; the message names the nearest one. `Io`
    /// and `Data`, also in the middle of the stream, when the source cannot be read.
    fn read(&self, table: &str, columns: &[String]) -> Result<Batches>;
}

/// A table as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTable {
    /// The source's name of it.
    pub name: String,
    /// Its columns, in the source's order.
    pub columns: Vec<SourceColumn>,
    /// The primary key that the source declares; none where it declares none.
    pub key: Vec<String>,
    /// The foreign keys that the source declares.
    pub references: Vec<DeclaredReference>,
}

/// A column as its source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceColumn {
    /// Its name.
    pub name: String,
    /// The type of its arrays.
    pub data_type: DataType,
    /// The type that the source declares, where the arrays are text whatever it says (SQLite).
    pub declared: Option<String>,
}

/// A foreign key that the source declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredReference {
    /// The columns of this table.
    pub columns: Vec<String>,
    /// The table referred to.
    pub to: String,
    /// The columns referred to; none when they are that table's key.
    pub to_columns: Vec<String>,
}

/// Where the columns asked for stand among those that there are.
pub(crate) fn positions(there: &[SourceColumn], asked: &[String]) -> Result<Vec<usize>> {
    let position = |name: &String| {
        there.iter().position(|column| column.name == *name).ok_or_else(|| {
            let names = there.iter().map(|c| c.name.as_str());
            Error::schema(format!("there is no column {name:?}; {}", did_you_mean(name, names)))
        })
    };
    asked.iter().map(position).collect()
}

/// Refuses column names that nobody could ask for.
pub(crate) fn check_names(columns: &[SourceColumn]) -> Result<()> {
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
        if let Some(earlier) = columns[..index].iter().position(|c| c.name == column.name) {
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
