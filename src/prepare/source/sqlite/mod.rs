//! Reads tables and views of a SQLite file, with the declared keys.
//!
//! SQLite types values, not columns, so every column is read as text: integers in decimal, reals as
//! other floats (5.0 is the key 5).
//!
//! All reads see the file in one state, that of its opening: [`session`].

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
use self::rows::{Query, Stream};
use self::session::Session;
use super::{Batches, Source, SourceColumn, SourceTable, positions};
use crate::error::{Context, Error, Result};
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
    session: Session,
    kinds: BTreeMap<String, Kind>,
}

impl Sqlite {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let session = Session::open(path)?;
        let names = session.ask(catalog::names)?.map_err(|e| fault(path, &e))?;
        let (path, kinds) = (path.to_owned(), names.into_iter().collect::<BTreeMap<_, _>>());
        let source = Self { path, session, kinds };
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
        let kind = self.kind(table)?;
        let (columns, key) = self.declared(table)?;
        let indices = positions(&columns, names)
            .context(|| format!("table {table:?} of {}", self.describe()))?;
        let query = Query::new(table, kind, &key, &columns, &indices);
        let stream = Stream::new(&self.path, table, kind, names, query);
        self.session.stream(stream)
    }
}
