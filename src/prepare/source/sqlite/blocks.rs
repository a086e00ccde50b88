//! The rows of a table in blocks: ranges of the numbers that the file has for them.

use rusqlite::{Connection, OptionalExtension};

use super::Sqlite;
use super::catalog::Kind;
use super::rows::{RowRange, quoted};
use crate::error::Result;
use crate::prepare::source::{Batches, Blocks};

/// The numbers of a block, unless a table has so many that the blocks would be more than [`BLOCKS_MAX`].
const BLOCK_NUMBERS: i128 = 1 << 16;

/// The most blocks of a table: its numbers may lie far apart.
const BLOCKS_MAX: i128 = 1024;

/// The names that SQLite has for the number of a row; a column of such a name takes it.
const NUMBERS: [&str; 3] = ["rowid", "oid", "_rowid_"];

/// The blocks of a table.
struct TableBlocks<'a> {
    source: &'a Sqlite,
    table: String,
    /// The rows of each block; one block has all rows where the rows have no numbers.
    ranges: Vec<Option<RowRange>>,
}

/// Returns the blocks of a table. Views and tables without numbers of rows are one block.
pub(super) fn blocks<'a>(source: &'a Sqlite, table: &str) -> Result<Box<dyn Blocks + 'a>> {
    let kind = source.kind(table)?;
    let (columns, _) = source.declared(table)?;
    let is_column = |name: &str| columns.iter().any(|c| c.name.eq_ignore_ascii_case(name));
    let number = NUMBERS.into_iter().find(|name| !is_column(name));
    let ranges = match (kind, number) {
        (Kind::Numbered, Some(name)) => {
            let table = table.to_owned();
            source.ask(move |connection| ranges(connection, &table, name))?
        }
        _ => vec![None],
    };
    Ok(Box::new(TableBlocks { source, table: table.to_owned(), ranges }))
}

/// Cuts the numbers of a table's rows into ranges of one width.
fn ranges(
    connection: &Connection,
    table: &str,
    name: &'static str,
) -> rusqlite::Result<Vec<Option<RowRange>>> {
    let is_table =
        "SELECT 1 FROM pragma_table_list WHERE schema = 'main' AND name = ?1 AND type = 'table'";
    let is_table = connection.query_row(is_table, [table], |_| Ok(())).optional()?.is_some();
    // The rows of a virtual table may come in any order.
    if !is_table {
        return Ok(vec![None]);
    }
    let table = quoted([table]);
    // Two queries: SQLite finds one of the two without a scan.
    let end = |which: &str| {
        let query = format!("SELECT {which}({name}) FROM {table}");
        connection.query_row(&query, [], |row| row.get::<_, Option<i64>>(0))
    };
    let (Some(first), Some(last)) = (end("min")?, end("max")?) else { return Ok(vec![]) };
    let (first, last) = (i128::from(first), i128::from(last));
    let width = BLOCK_NUMBERS.max((last - first + 1 + BLOCKS_MAX - 1) / BLOCKS_MAX);
    let mut ranges = Vec::new();
    let mut from = first;
    while from <= last {
        let to = last.min(from + width - 1);
        // Both lie between the first and the last number.
        ranges.push(Some(RowRange { name, numbers: from as i64..=to as i64 }));
        from = to + 1;
    }
    Ok(ranges)
}

impl Blocks for TableBlocks<'_> {
    fn count(&self) -> usize {
        self.ranges.len()
    }

    fn read(&self, block: usize, columns: &[String], first_row: u64) -> Result<Batches> {
        self.source.read_some(&self.table, columns, self.ranges[block].as_ref(), first_row)
    }

    fn rows_before(&self, block: usize) -> Result<u64> {
        let (Some(Some(first)), Some(range)) = (self.ranges.first(), &self.ranges[block]) else {
            return Ok(0);
        };
        let (name, table) = (range.name, quoted([&*self.table]));
        let (from, to) = (*first.numbers.start(), *range.numbers.start());
        let query =
            format!("SELECT count(*) FROM {table} WHERE {name} >= {from} AND {name} < {to}");
        self.source.ask(move |connection| {
            connection.query_row(&query, [], |row| row.get::<_, i64>(0)).map(|count| count as u64)
        })
    }
}
