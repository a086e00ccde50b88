//! The rows of a table in blocks: ranges of the numbers that the file has for them.

use rusqlite::{Connection, OptionalExtension};

use super::catalog::Kind;
use super::rows::{RowRange, quoted};
use crate::prepare::source::SourceColumn;

/// The numbers of a block, unless a table has so many that the blocks would be more than [`BLOCKS_MAX`].
const BLOCK_NUMBERS: i128 = 1 << 16;

/// The most blocks of a table: its numbers may lie far apart.
const BLOCKS_MAX: i128 = 1024;

/// The names that SQLite has for the number of a row; a column of such a name takes it.
const NUMBERS: [&str; 3] = ["rowid", "oid", "_rowid_"];

/// Returns the rows of each block of a table with these columns. Views and tables without numbers of rows are one
/// block, which has all rows.
pub(super) fn ranges(
    connection: &Connection,
    table: &str,
    kind: Kind,
    columns: &[SourceColumn],
) -> rusqlite::Result<Vec<Option<RowRange>>> {
    let is_column = |name: &str| columns.iter().any(|c| c.name.eq_ignore_ascii_case(name));
    let number = NUMBERS.into_iter().find(|name| !is_column(name));
    match (kind, number) {
        (Kind::Numbered, Some(name)) => ranges_of_numbers(connection, table, name),
        _ => Ok(vec![None]),
    }
}

/// Counts the rows from the first of one block up to that of a later one.
pub(super) fn count_between(
    connection: &Connection,
    table: &str,
    (first, later): (&RowRange, &RowRange),
) -> rusqlite::Result<u64> {
    let (name, table) = (later.name, quoted([table]));
    let (from, to) = (first.numbers.start(), later.numbers.start());
    let query = format!("SELECT count(*) FROM {table} WHERE {name} >= {from} AND {name} < {to}");
    connection.query_row(&query, [], |row| row.get::<_, i64>(0)).map(|count| count as u64)
}

/// Cuts the numbers of a table's rows into ranges of one width.
fn ranges_of_numbers(
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
