//! What a SQLite file declares: tables, views, columns and keys.

use std::collections::BTreeMap;

use arrow_schema::DataType;
use rusqlite::{Connection, Row};

use crate::prepare::source::{DeclaredReference, SourceColumn, SourceTable};

/// How SQLite stores the rows of a table.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// By row number.
    Numbered,
    /// By primary key (`WITHOUT ROWID`).
    Keyed,
    /// Not at all: the table is a query.
    View,
}

/// Lists tables and views by name.
pub(super) fn names(connection: &Connection) -> rusqlite::Result<Vec<(String, Kind)>> {
    let mut statement = connection.prepare(
        "SELECT name, type = 'view', wr FROM pragma_table_list WHERE schema = 'main' \
         AND type <> 'shadow' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let kind = |row: &Row<'_>| -> rusqlite::Result<Kind> {
        Ok(match (row.get(1)?, row.get(2)?) {
            (true, _) => Kind::View,
            (false, true) => Kind::Keyed,
            (false, false) => Kind::Numbered,
        })
    };
    statement.query_map([], |row| Ok((row.get(0)?, kind(row)?)))?.collect()
}

/// Returns the columns of a table, and those of its primary key in the key's order.
pub(super) fn columns(
    connection: &Connection,
    table: &str,
) -> rusqlite::Result<(Vec<SourceColumn>, Vec<String>)> {
    // `hidden` is 1 for arguments of virtual tables, 2 and 3 for generated columns.
    let mut statement = connection
        .prepare("SELECT name, type, pk FROM pragma_table_xinfo(?1) WHERE hidden <> 1")?;
    let mut columns = Vec::new();
    let mut key = BTreeMap::new();
    let mut rows = statement.query([table])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let declared: Option<String> = row.get(1)?;
        let position: i64 = row.get(2)?;
        if position > 0 {
            key.insert(position, name.clone());
        }
        let declared = declared.filter(|declared| !declared.is_empty());
        columns.push(SourceColumn { name, data_type: DataType::Utf8, declared });
    }
    Ok((columns, key.into_values().collect()))
}

/// Returns the declared foreign keys of a table.
fn references(connection: &Connection, table: &str) -> rusqlite::Result<Vec<DeclaredReference>> {
    let mut statement = connection.prepare(
        "SELECT id, \"table\", \"from\", \"to\" FROM pragma_foreign_key_list(?1) ORDER BY id, seq",
    )?;
    let mut references: BTreeMap<i64, DeclaredReference> = BTreeMap::new();
    let mut rows = statement.query([table])?;
    while let Some(row) = rows.next()? {
        let to: String = row.get(1)?;
        let reference = references.entry(row.get(0)?).or_insert_with(|| DeclaredReference {
            columns: vec![],
            to,
            to_columns: vec![],
        });
        reference.columns.push(row.get(2)?);
        reference.to_columns.extend(row.get::<_, Option<String>>(3)?);
    }
    // SQLite numbers foreign keys from the last to the first.
    Ok(references.into_values().rev().collect())
}

/// Gives the names in references the spelling of their tables, and drops references to missing
/// tables.
///
/// SQLite ignores case, and does not check that a declared target exists.
fn resolve_references(tables: &mut [SourceTable]) {
    let known: Vec<_> =
        tables.iter().map(|t| (t.name.clone(), t.columns.clone(), t.key.clone())).collect();
    let respell = |names: &mut Vec<String>, columns: &[SourceColumn]| {
        for name in names {
            if let Some(column) = columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)) {
                name.clone_from(&column.name);
            }
        }
    };
    for table in tables {
        for reference in &mut table.references {
            respell(&mut reference.columns, &table.columns);
        }
        table.references.retain_mut(|reference| {
            let parent = known.iter().find(|(name, ..)| name.eq_ignore_ascii_case(&reference.to));
            let Some((name, columns, key)) = parent else { return false };
            reference.to.clone_from(name);
            respell(&mut reference.to_columns, columns);
            if reference.to_columns == *key {
                reference.to_columns.clear();
            }
            true
        });
    }
}

/// Returns the tables with their declared keys, without their rows.
pub(super) fn tables<'a>(
    connection: &Connection,
    names: impl Iterator<Item = &'a String>,
) -> rusqlite::Result<Vec<SourceTable>> {
    let mut tables = Vec::new();
    for name in names {
        let (columns, key) = columns(connection, name)?;
        let references = references(connection, name)?;
        tables.push(SourceTable { name: name.clone(), columns, key, references });
    }
    resolve_references(&mut tables);
    Ok(tables)
}
