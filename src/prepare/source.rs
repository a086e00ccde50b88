//! Where rows come from: a folder of files, one file, or a SQLite database.
//!
//! A source streams Arrow record batches in row order. CSV and SQLite carry their values as text,
//! exactly as they stand there; Parquet passes its Arrow types through. What the values mean is
//! the schema's matter.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use super::names::{did_you_mean, listed};
use super::sqlite::{self, Sqlite};
use super::{csv, parquet};
use crate::error::{Context, Error, Result};

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

/// Opens what lies at `path`: a folder of `.csv` and `.parquet` files, one such file, or a SQLite
/// file.
///
/// The table's name is the file's, without its ending. A sub-folder of Parquet files is one table,
/// whose parts follow each other by name. Hidden files, and files of other kinds, are left alone.
///
/// # Errors
/// `Io` when nothing can be read there; `Data` when there is no table, or two of the same name.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    match Files::at(path)? {
        Some(files) => Ok(Box::new(files)),
        None => Ok(Box::new(Sqlite::open(path)?)),
    }
}

/// Tables that are files.
struct Files {
    description: String,
    tables: BTreeMap<String, TableFile>,
}

/// The file or files of one table.
enum TableFile {
    Csv(PathBuf),
    Parquet(Vec<PathBuf>),
}

impl Files {
    /// Finds the tables at `path`; none when it is a SQLite file.
    fn at(path: &Path) -> Result<Option<Self>> {
        let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, "opening", e))?;
        if metadata.is_dir() {
            return Self::folder(path).map(Some);
        }
        if sqlite::is_sqlite(path)? {
            return Ok(None);
        }
        match table_file(path)? {
            Some(table) => Ok(Some(Self {
                description: format!("file {}", path.display()),
                tables: BTreeMap::from([table]),
            })),
            None => Err(Error::data(format!(
                "{} is neither a folder of .csv and .parquet files, nor a .csv or .parquet file, \
                 nor a SQLite file",
                path.display()
            ))),
        }
    }

    /// Finds the tables of a folder.
    fn folder(path: &Path) -> Result<Self> {
        let mut tables = BTreeMap::new();
        let mut places: BTreeMap<String, PathBuf> = BTreeMap::new();
        for entry in visible_entries(path)? {
            let found = if entry.is_dir() { table_folder(&entry)? } else { table_file(&entry)? };
            let Some((name, file)) = found else { continue };
            tables.insert(name.clone(), file);
            if let Some(earlier) = places.insert(name.clone(), entry.clone()) {
                return Err(Error::data(format!(
                    "{} and {} are both table {name:?}; remove or rename one of them",
                    earlier.display(),
                    entry.display()
                )));
            }
        }
        if tables.is_empty() {
            return Err(Error::data(format!(
                "folder {} holds no table; looked for NAME.csv, NAME.parquet and sub-folders of \
                 .parquet files",
                path.display()
            )));
        }
        Ok(Self { description: format!("folder {}", path.display()), tables })
    }

    fn find(&self, table: &str) -> Result<&TableFile> {
        self.tables.get(table).ok_or_else(|| {
            let names = self.tables.keys().map(String::as_str);
            let hint = did_you_mean(table, names);
            Error::schema(format!("{} has no table {table:?}; {hint}", self.description))
        })
    }
}

impl TableFile {
    fn columns(&self) -> Result<Vec<SourceColumn>> {
        match self {
            Self::Csv(path) => csv::columns(path),
            Self::Parquet(parts) => parquet::columns(parts),
        }
    }
}

impl Source for Files {
    fn describe(&self) -> String {
        self.description.clone()
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.tables.keys().cloned().collect())
    }

    fn columns(&self, table: &str) -> Result<Vec<SourceColumn>> {
        self.find(table)?.columns()
    }

    fn tables(&self) -> Result<Vec<SourceTable>> {
        let table = |(name, file): (&String, &TableFile)| {
            let columns = file.columns()?;
            Ok(SourceTable { name: name.clone(), columns, key: vec![], references: vec![] })
        };
        self.tables.iter().map(table).collect()
    }

    fn read(&self, table: &str, columns: &[String]) -> Result<Batches> {
        let file = self.find(table)?;
        let indices = positions(&file.columns()?, columns)
            .context(|| format!("table {table:?} of {}", self.description))?;
        match file {
            TableFile::Csv(path) => csv::read(path, indices),
            TableFile::Parquet(parts) => parquet::read(parts.clone(), indices),
        }
    }
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
                    "; written by pandas with its index? write it with index=False, or name the \
                     column"
                }
                _ => "",
            };
            return Err(Error::data(format!(
                "column {} has no name; the names are: {}{hint}",
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

/// The entries of a folder that are not hidden, by name.
fn visible_entries(path: &Path) -> Result<Vec<PathBuf>> {
    let fail = |e| Error::io(path, "listing", e);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

/// The table that a file holds, by its ending.
fn table_file(path: &Path) -> Result<Option<(String, TableFile)>> {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let file = match extension.to_ascii_lowercase().as_str() {
        "csv" => TableFile::Csv(path.to_owned()),
        "parquet" => TableFile::Parquet(vec![path.to_owned()]),
        _ => return Ok(None),
    };
    Ok(Some((table_name(path, path.file_stem())?, file)))
}

/// The table whose parts lie in a folder; none where no Parquet file does.
fn table_folder(path: &Path) -> Result<Option<(String, TableFile)>> {
    let is_parquet = |path: &Path| {
        path.extension().is_some_and(|e| e.eq_ignore_ascii_case("parquet")) && path.is_file()
    };
    let mut parts = visible_entries(path)?;
    parts.retain(|part| is_parquet(part));
    if parts.is_empty() {
        return Ok(None);
    }
    let ends = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("parquet"));
    let name = if ends { path.file_stem() } else { path.file_name() };
    Ok(Some((table_name(path, name)?, TableFile::Parquet(parts))))
}

fn table_name(path: &Path, name: Option<&OsStr>) -> Result<String> {
    name.and_then(OsStr::to_str).map(str::to_owned).ok_or_else(|| {
        let message = "a table takes its name from its file, and this one is not UTF-8; rename it";
        Error::data(format!("{}: {message}", path.display()))
    })
}
