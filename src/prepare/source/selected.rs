//! Some of the tables of a source, for a draft of these alone.

use super::{Batches, InBlocks, Source, SourceColumn, SourceTable};
use crate::error::{Error, Result};
use crate::prepare::names::did_you_mean;

/// A source with some of another's tables.
struct Selected {
    source: Box<dyn Source>,
    names: Vec<String>,
}

/// Returns the source with the tables `names` alone. A view among them counts as a table.
///
/// # Errors
/// `Schema` when there is no table of a name; the message suggests the nearest one. The source's.
pub fn select(source: Box<dyn Source>, names: &[String]) -> Result<Box<dyn Source>> {
    let known = source.names()?;
    for name in names {
        if !known.contains(name) {
            return Err(Error::schema(format!(
                "{} has no table {name:?}; {}",
                source.describe(),
                did_you_mean(name, known.iter().map(String::as_str))
            )));
        }
    }
    let names = known.into_iter().filter(|name| names.contains(name)).collect();
    Ok(Box::new(Selected { source, names }))
}

impl Source for Selected {
    fn describe(&self) -> String {
        self.source.describe()
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.names.clone())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        self.source.columns(table)
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let mut tables = self.source.tables()?;
        tables.retain(|table| self.names.contains(&table.name));
        for table in &mut tables {
            // A source may leave the columns of views for later.
            if table.columns.is_empty() {
                table.columns = self.source.columns(&table.name)?;
            }
            table.references.retain(|reference| self.names.contains(&reference.to));
        }
        Ok(tables)
    }

    fn read(&self, table: &str, columns: &[String]) -> Result<Batches> {
        self.source.read(table, columns)
    }

    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        self.source.in_blocks()
    }
}
