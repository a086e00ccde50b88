//! Reads tables and views of a SQLite file, with the declared keys.
//!
//! SQLite types values, not columns, so every column is read as text: integers in decimal, reals as
//! other floats (5.0 is the key 5).
//!
//! All reads see the file in one state, that of its opening: [`session`].

mod blocks;
mod catalog;
mod fault;
mod rows;
mod session;
mod varying;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use self::catalog::Kind;
use self::fault::fault;
use self::rows::{Query, RowRange, Stream};
use self::session::{Session, wal_of};
use super::blocks::{Blocks, FileVersion, InBlocks, folder_of};
use super::{Batches, Source, SourceColumn, SourceTable, positions};
use crate::error::{Context, Error, Result};
use crate::files::found_at;
use crate::prepare::names::did_you_mean;

/// The first bytes of every SQLite file.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Whether a file with these first bytes is a SQLite file.
pub(super) fn is_sqlite(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// A SQLite file.
pub(super) struct Sqlite {
    path: PathBuf,
    /// The versions of the files when they were opened.
    files: Vec<FileVersion>,
    session: Session,
    kinds: BTreeMap<String, Kind>,
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self> {
        // Before the session: what is committed in between is noticed as a change.
        let files = versions(path)?;
        let session = Session::open(path)?;
        let names = session.ask(catalog::names)?.map_err(|e| fault(path, &e))?;
        let (path, kinds) = (path.to_owned(), names.into_iter().collect::<BTreeMap<_, _>>());
        let source = Self { path, files, session, kinds };
        match source.kinds.is_empty() {
            true => Err(Error::data(format!("{} holds no table", source.describe()))),
            false => Ok(source),
        }
    }

    /// Returns what `read` finds in the file.
    fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.session.ask(read)?.map_err(|e| fault(&self.path, &e))
    }

    fn kind(&self, table: &str) -> Result<Kind> {
        self.kinds.get(table).copied().ok_or_else(|| {
            let hint = did_you_mean(table, self.kinds.keys().map(String::as_str));
            Error::schema(format!("{} has no table {table:?}; {hint}", self.describe()))
        })
    }

    /// Streams rows of a table: all, or those whose numbers in the file are in a range.
    fn read_some(
        &self,
        table: &str,
        names: &[String],
        range: Option<&RowRange>,
        first_row: u64,
    ) -> Result<Batches> {
        let kind = self.kind(table)?;
        let (columns, key) = self.declared(table)?;
        let indices = positions(&columns, names)
            .context(|| format!("table {table:?} of {}", self.describe()))?;
        let query = Query::new(table, kind, &key, &columns, &indices, range);
        let stream = Stream::new(&self.path, table, kind, names, query, first_row);
        self.session.stream(stream)
    }

    /// Returns the columns of a table, and those of its key.
    fn declared(&self, table: &str) -> Result<(Vec<SourceColumn>, Vec<String>)> {
        let table = table.to_owned();
        self.ask(move |connection| catalog::columns(connection, &table))
    }
}

impl Source for Sqlite {
    fn describe(&self) -> String {
        format!("SQLite file {}", self.path.display())
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.kinds.keys().cloned().collect())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        self.kind(table)?;
        Ok(self.declared(table)?.0)
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let names: Vec<_> = self.kinds.keys().cloned().collect();
        self.ask(move |connection| catalog::tables(connection, names.iter()))
    }

    fn views(&self) -> Result<Vec<String>> {
        let views = self.kinds.iter().filter(|(_, kind)| matches!(kind, Kind::View));
        Ok(views.map(|(name, _)| name.clone()).collect())
    }

    fn read(&self, table: &str, names: &[String]) -> Result<Batches> {
        self.read_some(table, names, None, 0)
    }

    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        Some(self)
    }
}

impl InBlocks for Sqlite {
    fn files(&self, tables: &[&str]) -> Result<Vec<FileVersion>> {
        tables.iter().try_for_each(|table| self.kind(table).map(drop))?;
        let found = versions(&self.path)?;
        if found == self.files {
            return Ok(found);
        }
        let shown = |files: &[FileVersion]| {
            files.iter().map(FileVersion::to_string).collect::<Vec<_>>().join(", ")
        };
        Err(Error::data(format!(
            "{}: expected files that nobody changes while they are read, found {}, and {} before; wait \
             until their writer has ended, or read a copy",
            self.describe(),
            shown(&found),
            shown(&self.files)
        )))
    }

    fn blocks(&self, table: &str) -> Result<Box<dyn Blocks + '_>> {
        let (kind, (columns, _)) = (self.kind(table)?, self.declared(table)?);
        let table = table.to_owned();
        let name = table.clone();
        let ranges =
            self.ask(move |connection| blocks::ranges(connection, &name, kind, &columns))?;
        Ok(Box::new(TableBlocks { source: self, table, ranges }))
    }
}

/// The blocks of a table.
struct TableBlocks<'a> {
    source: &'a Sqlite,
    table: String,
    /// The rows of each block; one block has all rows where the rows have no numbers.
    ranges: Vec<Option<RowRange>>,
}

impl Blocks for TableBlocks<'_> {
    fn count(&self) -> usize {
        self.ranges.len()
    }

    fn read(&self, block: usize, columns: &[String], first_row: u64) -> Result<Batches> {
        self.source.read_some(&self.table, columns, self.ranges[block].as_ref(), first_row)
    }

    fn rows_before(&self, block: usize) -> Result<u64> {
        let (Some(Some(first)), Some(later)) = (self.ranges.first(), &self.ranges[block]) else {
            return Ok(0);
        };
        let (table, first, later) = (self.table.clone(), first.clone(), later.clone());
        self.source
            .ask(move |connection| blocks::count_between(connection, &table, (&first, &later)))
    }
}

/// Returns the versions of the file at `path` and of the WAL beside it, if that has pages.
fn versions(path: &Path) -> Result<Vec<FileVersion>> {
    let root = folder_of(path);
    let mut versions = vec![FileVersion::of(path, &root)?];
    let wal = wal_of(path);
    if found_at(&wal)?.is_some_and(|found| found.len() > 0) {
        versions.push(FileVersion::of(&wal, &root)?);
    }
    Ok(versions)
}
