//! The columns of a table as they are read, for its cells, keys, references and times.

use super::columns::ColumnSummary;
use super::read_batch::BatchReading;
use super::row_keys::KeyColumns;
use crate::error::{Error, Result};
use crate::prepare::schema::{Column, Table};
use crate::store::SemanticType;

/// The columns of a table to read, and the places among them of its keys, references and times.
pub(super) struct TableColumns {
    /// The columns to read; those that the store keeps come first.
    pub read: Vec<ColumnSummary>,
    /// The number of columns that the store keeps.
    pub kept: usize,
    /// The lists of columns by which rows are looked up. The key of the table, if it has one, is the first.
    pub keys: Vec<KeyColumns>,
    /// The places of the columns of each reference.
    pub references: Vec<Vec<usize>>,
    /// The place of the time column.
    pub time_place: Option<usize>,
    /// The places of the times at which other columns are known.
    pub known_places: Vec<usize>,
    has_key: bool,
}

impl TableColumns {
    /// Returns the columns of `table`, whose rows others look up by the lists `looked_up`.
    pub(super) fn of(table: &Table, looked_up: &[Vec<String>]) -> Result<Self> {
        let summary = |(name, column): (&String, &Column)| ColumnSummary::new(name, column.clone());
        let is_kept = |column: &Column| column.semantic != SemanticType::Ignored;
        let mut read: Vec<_> =
            table.columns.iter().filter(|(_, c)| is_kept(c)).map(summary).collect();
        let kept = read.len();
        let mut place_of = |name: &String| -> Result<usize> {
            if let Some(place) = read.iter().position(|c| c.name == *name) {
                return Ok(place);
            }
            let Some(entry) = table.columns.get_key_value(name) else {
                return Err(Error::schema(format!("there is no column {name:?}")));
            };
            read.push(summary(entry));
            Ok(read.len() - 1)
        };
        let mut lists: Vec<Vec<String>> = Vec::new();
        if !table.key.is_empty() {
            lists.push(table.key.clone());
        }
        lists.extend(looked_up.iter().filter(|list| **list != table.key).cloned());
        let keys = (lists.into_iter())
            .map(|columns| {
                let places = columns.iter().map(&mut place_of).collect::<Result<_>>()?;
                let is_looked_up = looked_up.contains(&columns);
                Ok(KeyColumns::new(columns, places, is_looked_up))
            })
            .collect::<Result<Vec<_>>>()?;
        let references = table
            .references
            .iter()
            .map(|reference| reference.columns.iter().map(&mut place_of).collect::<Result<_>>())
            .collect::<Result<Vec<_>>>()?;
        let time = table.time.as_ref().and_then(|time| time.column.as_ref());
        let time_place = time.map(&mut place_of).transpose()?;
        let known = table.known_times();
        let known_places: Vec<usize> =
            known.iter().map(|&name| place_of(name)).collect::<Result<_>>()?;
        // A column that is ignored as a cell is read as a time all the same.
        for (&place, name) in time_place.iter().zip(time).chain(known_places.iter().zip(known)) {
            let column = read[place].column.clone();
            let column = Column { semantic: SemanticType::Timestamp, ..column };
            read[place] = ColumnSummary::new(name, column);
        }
        let has_key = !table.key.is_empty();
        Ok(Self { read, kept, keys, references, time_place, known_places, has_key })
    }

    /// Returns the names of the columns to read.
    pub(super) fn names(&self) -> Vec<String> {
        self.read.iter().map(|column| column.name.clone()).collect()
    }

    /// Returns what to read of each batch.
    pub(super) fn reading(&self) -> BatchReading {
        let is_text = |place: &usize| self.read[*place].column.semantic == SemanticType::Text;
        BatchReading {
            columns: self.read.iter().map(|c| (c.name.clone(), c.column.clone())).collect(),
            keys: self.keys.iter().map(|list| list.places().to_vec()).collect(),
            references: self.references.clone(),
            texts: (0..self.kept).filter(is_text).collect(),
            has_key: self.has_key,
        }
    }
}
