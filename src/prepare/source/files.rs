//! Opens a source: a folder of table files, one table file, or a SQLite file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::sqlite::{self, Sqlite};
use super::{Batches, Source, SourceColumn, SourceTable, csv, parquet, positions};
use crate::error::{Context, Error, Result};
use crate::prepare::names::did_you_mean;

/// Opens the source at `path`: a folder of `.csv` and `.parquet` files, one such file, or a SQLite
/// file.
///
/// A table has the name of its file without the ending. A sub-folder of Parquet files is one table,
/// with its parts in the order of their names. Ignores hidden files and files of other types.
///
/// # Errors
/// `Io` when the path cannot be read; `Data` when there is no table, or two have the same name.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    match Files::at(path)? {
        Some(files) => Ok(Box::new(files)),
        None => Ok(Box::new(Sqlite::open(path)?)),
    }
}

/// A source whose tables are files.
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
    /// Finds the tables at `path`; `None` if it is a SQLite file.
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
                "expected a folder of .csv and .parquet files, a .csv or .parquet file, or a \
                 SQLite file, found {}",
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
                    "{} and {} both hold table {name:?}; remove or rename one of them",
                    earlier.display(),
                    entry.display()
                )));
            }
        }
        if tables.is_empty() {
            return Err(Error::data(format!(
                "folder {} holds no table; expected NAME.csv, NAME.parquet, or a sub-folder of \
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

/// Lists the entries of a folder that are not hidden, by name.
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

/// Returns the table in a file, by the file's ending.
fn table_file(path: &Path) -> Result<Option<(String, TableFile)>> {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let file = match extension.to_ascii_lowercase().as_str() {
        "csv" => TableFile::Csv(path.to_owned()),
        "parquet" => TableFile::Parquet(vec![path.to_owned()]),
        _ => return Ok(None),
    };
    Ok(Some((table_name(path, path.file_stem())?, file)))
}

/// Returns the table whose parts lie in a folder; `None` if it has no Parquet file.
fn table_folder(path: &Path) -> Result<Option<(String, TableFile)>> {
    let is_parquet = |path: &Path| {
        path.extension().is_some_and(|e| e.eq_ignore_ascii_case("parquet")) && path.is_file()
    };
    let mut parts = visible_entries(path)?;
    parts.retain(|part| is_parquet(part));
    if parts.is_empty() {
        return Ok(None);
    }
    let has_ending = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("parquet"));
    let name = if has_ending { path.file_stem() } else { path.file_name() };
    Ok(Some((table_name(path, name)?, TableFile::Parquet(parts))))
}

fn table_name(path: &Path, name: Option<&OsStr>) -> Result<String> {
    name.and_then(OsStr::to_str).map(str::to_owned).ok_or_else(|| {
        let message = "expected a file name in UTF-8, because it names the table; rename the file";
        Error::data(format!("{}: {message}", path.display()))
    })
}
